# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The report of `intradp demo-fleet`: as data, as a table, as a page, and whether all is well."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import math
from pathlib import Path
from typing import Any

from intradp_lab.fleet.fleet_scene import FleetScene, TARGET
from intradp_lab.fleet.killed_device import KilledDevice
from intradp_lab.fleet.streamed_plan import PlayedPlan
from intradp_lab.report.page import render
from intradp_ros.cli.output import milliseconds, Output, plain, table
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.systems.fleet.planner import FleetPlan, OURS

#: Largest difference, in units of an output's spread, that is rounding of float32.
ROUNDING = 1e-4
FIGURES = {
    'latency_ms, fps, stream_ms, qoe_missed_s':
        'measured on emulated devices: all in one process, real bytes over a network in memory '
        'at the rates of the media, operators that take the seconds of a profile',
    'predicted_ms, predicted_fps, bound_ms': 'modelled, by the event simulator',
    'joules': 'modelled, of an inference, from declared power states',
    'killed': 'measured: real processes, real inferences over DDS, one of them killed with -9 '
              'and started again, a frame every 250 ms; recovered_ms is the longest time after it '
              'without a frame by the fleet',
    'frames, lost, max_rel_diff': 'measured: real inferences in one process, each compared with '
                                  'the unsplit model; lost counts the emulated ones too'}


@dataclass(frozen=True)
class PlanRun:
    """A plan, as the planner judged it and as it ran; `bound` is below a frame's seconds."""

    plan: FleetPlan
    stages: StagePlan
    played: PlayedPlan
    bound: float


@dataclass(frozen=True)
class Measured:
    """What the demo has seen: runs of systems by name, and those with half the air; the kill."""

    scene: FleetScene
    systems: Mapping[str, PlanRun]
    burst: Mapping[str, PlanRun]
    killed: KilledDevice | None = None


def fleet_report(measured: Measured) -> dict[str, Any]:
    """Return the report as plain data."""
    runs = [*measured.systems.values(), *measured.burst.values()]
    return {
        'frames': sum(run.played.frames for run in runs),
        'lost': sum(run.played.lost for run in runs),
        'max_rel_diff': _finite(max(run.played.difference for run in runs)),
        'systems': {name: _system(run) for name, run in measured.systems.items()},
        'burst': {name: _system(run) for name, run in measured.burst.items()},
        'bound_ms': 1e3 * measured.systems[OURS].bound,
        'target': {'latency_ms': 1e3 * TARGET.latency, 'fps': TARGET.rate},
        'air_mbps': measured.scene.topology.medium('air').bytes_per_second / 125e3,
        'devices': {d.name: d.speed for d in measured.scene.topology.devices},
        'killed': _killed(measured.killed), 'figures': FIGURES}


def _system(run: PlanRun) -> dict[str, Any]:
    played = run.played
    return {
        'latency_ms': 1e3 * played.measured.latency,
        'predicted_ms': 1e3 * played.predicted.latency,
        'fps': played.measured.fps, 'predicted_fps': played.predicted.fps,
        'stream_ms': _finite(1e3 * played.usual), 'joules': sum(run.plan.joules.values()),
        'qoe_missed_s': played.missed_seconds, 'bound_ms': 1e3 * run.bound,
        'by_asker': played.by_asker, 'stages': [
            {'operators': len(stage.operators), 'devices': [m.device for m in stage.members]}
            for stage in run.stages.stages]}


def _killed(killed: KilledDevice | None) -> dict[str, Any] | None:
    """Return what became of the frames around the kill; None if nothing could be killed."""
    if killed is None:
        return None
    seen = killed.seen
    return {
        'device': killed.device, 'frames': len(seen),
        'lost': sum(not answer.answered for answer in seen),
        'by_asker': sum(not answer.pipelined for answer in seen),
        'max_rel_diff': _finite(max((a.difference for a in seen), default=math.inf)),
        'recovered_ms': 1e3 * killed.recovered, 'half_the_air_s': killed.burst,
        'network': killed.network}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def well(report: Mapping[str, Any]) -> bool:
    """Return whether no frame was lost, and all results are the unsplit model's."""
    parts = [report] if report['killed'] is None else [report, report['killed']]
    return all(part['frames'] > 0 and part['lost'] == 0 and part['max_rel_diff'] is not None
               and part['max_rel_diff'] <= ROUNDING
               for part in parts)


def show_report(report: Mapping[str, Any], out: Output) -> None:
    """Print the tables."""
    target = report['target']
    title = f'target: {target["latency_ms"]:g} ms at {target["fps"]:g} frames a second'
    out.show(_table(f'Plans, {title}', report['systems']),
             _table('With half the air', report['burst']),
             _stages({**report['systems'], **report['burst']}), plain(verdict(report)),
             plain(killed_text(report['killed'])))


def killed_text(killed: Mapping[str, Any] | None) -> str:
    """Return in words what became of the frames around the kill."""
    if killed is None:
        return 'No device was killed: by our plan only the asker computes.'
    burst = f', then half the air for {killed["half_the_air_s"]:g} s' \
        if killed['half_the_air_s'] else ''
    return (f'Real processes, {killed["device"]} killed with -9 and back{burst}: '
            f'{verdict(killed)}; {killed["by_asker"]} finished by the asker; after the kill at '
            f'most {killed["recovered_ms"]:.0f} ms without the fleet. {killed["network"]}.')


def verdict(report: Mapping[str, Any]) -> str:
    """Return frames, losses and the largest difference in words."""
    worst = report['max_rel_diff']
    same = "not the unsplit model's" if worst is None \
        else f'largest difference {worst:.1e}'
    return f'{report["frames"]} frames, {report["lost"]} lost, {same}'


def _table(title: str, systems: Mapping[str, Any]) -> Any:
    shown = table(f'{title} (emulated devices)', 'plan', 'ms alone', 'predicted', 'at rate',
                  'fps', 'predicted', 'J', 'late s')
    for name, row in systems.items():
        shown.add_row(
            plain(name),
            f'{row["latency_ms"]:.0f}', f'{row["predicted_ms"]:.0f}',
            '-' if row['stream_ms'] is None else milliseconds(row['stream_ms'] / 1e3),
            f'{row["fps"]:.1f}', f'{row["predicted_fps"]:.1f}', f'{row["joules"]:.2f}',
            f'{row["qoe_missed_s"]:.2f}')
    return shown


def _stages(systems: Mapping[str, Any]) -> Any:
    shown = table('Operators of each stage', 'plan', 'stages', left=2)
    for name, row in systems.items():
        shown.add_row(plain(name), plain(stages_text(row)))
    return shown


def stages_text(row: Mapping[str, Any]) -> str:
    """Return stages in words: who runs how many operators."""
    return ', '.join(f'{"+".join(stage["devices"])} {stage["operators"]}'
                     for stage in row['stages'])


def write_page(out: Path, report: Mapping[str, Any]) -> None:
    """Write the page."""
    rows = {name: row | {'text': stages_text(row)} for name, row in report['systems'].items()}
    burst = {name: row | {'text': stages_text(row)} for name, row in report['burst'].items()}
    target = report['target']
    (out / 'page.html').write_text(render(
        'fleet.html', title='One network over a fleet',
        tables={'Plans side by side': rows, 'With half the air': burst}, ours=OURS,
        headline=f'{report["frames"] - report["lost"]} of {report["frames"]} frames answered; '
                 + ("every one that was compared is the unsplit model's." if well(report)
                    else 'not all is as it must be.'),
        remarks=[f'Target: {target["latency_ms"]:g} ms at {target["fps"]:g} frames a second.',
                 f'No frame that is alone can take less than {report["bound_ms"]:.0f} ms by our '
                 'division (modelled).',
                 killed_text(report['killed'])],
        measured=[*FIGURES.items(),
                  ('devices', 'robot, robot2, laptop and box behind one access point of '
                              f'{report["air_mbps"]:g} Mbit/s, the box wired; the robot takes '
                              '0.4 s for the whole network, the others less by their speeds'),
                  ('again', '`make demo-fleet` makes these figures again; one run')]))
