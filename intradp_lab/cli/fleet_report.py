# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The report of `intradp demo-fleet`: as data, as a table, as a page, and whether all is well."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
import math
from types import MappingProxyType
from typing import Any

from intradp_lab.fleet.fleet_scene import FleetScene, TARGET
from intradp_lab.fleet.killed_device import KilledDevice
from intradp_lab.fleet.streamed_plan import PlayedPlan
from intradp_ros.cli.output import milliseconds, Output, plain, table
from intradp_ros.report.fleet_plan_plot import TaskSpan
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.systems.fleet.planner import FleetPlan, OURS

#: Largest difference, in units of an output's spread, that is rounding of float32.
ROUNDING = 1e-4
FIGURES = {
    'latency_ms, fps, stream_ms, qoe_missed_s':
        'measured on emulated devices: all in one process, real bytes over a network in memory '
        'at the rates of the media, operators that take the seconds of a profile',
    'predicted_ms, predicted_fps, bound_ms, busy_ms': 'modelled, by the event simulator',
    'joules': 'modelled, of an inference, from declared power states',
    'killed': 'measured: real processes, real inferences over DDS, one of them killed with -9 '
              'and started again, a frame every 250 ms; recovered_ms is the longest time after it '
              'without a frame by the fleet',
    'frames, lost, max_rel_diff': 'measured: real inferences in one process, each compared with '
                                  'the unsplit model; lost counts the emulated ones too'}


@dataclass(frozen=True)
class PlanRun:
    """
    A plan, as the planner judged it and as it ran; `bound` is below a frame's seconds.

    A frame keeps each device and medium busy for `busy` seconds (modelled).
    """

    plan: FleetPlan
    stages: StagePlan
    played: PlayedPlan
    bound: float
    busy: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class FailedRun:
    """A plan that was to be run, and by what that failed."""

    plan: FleetPlan
    stages: StagePlan
    failed: str


@dataclass(frozen=True)
class Measured:
    """
    What the demo has seen: runs of systems by name, and those with half the air; the kill.

    Of a kill that failed there is the text that says by what.
    """

    scene: FleetScene
    systems: Mapping[str, PlanRun | FailedRun]
    burst: Mapping[str, PlanRun | FailedRun]
    killed: KilledDevice | str | None = None
    schedule: Sequence[TaskSpan] = ()


def fleet_report(measured: Measured) -> dict[str, Any]:
    """Return the report as plain data; `lost` counts frames of ours, rows have those of all."""
    runs = [run for run in (*measured.systems.values(), *measured.burst.values())
            if isinstance(run, PlanRun)]
    ours = [measured.systems[OURS], *measured.burst.values()]
    frames = [run.played for run in ours if isinstance(run, PlanRun)]
    return {
        'failed': '; '.join(run.failed for run in ours if isinstance(run, FailedRun)),
        'frames': sum(run.frames for run in frames),
        'lost': sum(run.lost for run in frames),
        'max_rel_diff': _finite(max((run.played.difference for run in runs), default=math.inf)),
        'systems': {name: _system(run) for name, run in measured.systems.items()},
        'burst': {name: _system(run) for name, run in measured.burst.items()},
        'bound_ms': 1e3 * measured.scene.bound(measured.systems[OURS].plan.placement),
        'target': {'latency_ms': 1e3 * TARGET.latency, 'fps': TARGET.rate},
        'air_mbps': measured.scene.topology.medium('air').bytes_per_second / 125e3,
        'devices': {d.name: d.speed for d in measured.scene.topology.devices},
        'killed': _killed(measured.killed), 'figures': FIGURES,
        'schedule': [(s.lane, s.kind, s.name, s.start, s.stop) for s in measured.schedule]}


#: What a row has that was not measured.
_BLANK: Mapping[str, Any] = MappingProxyType(dict.fromkeys((
    'latency_ms', 'predicted_ms', 'fps', 'predicted_fps', 'stream_ms', 'qoe_missed_s', 'bound_ms',
    'by_asker', 'lost')))


def _system(run: PlanRun | FailedRun) -> dict[str, Any]:
    common = {'failed': '', 'joules': sum(run.plan.joules.values()), 'stages': [
        {'operators': len(stage.operators), 'devices': [m.device for m in stage.members]}
        for stage in run.stages.stages]}
    if isinstance(run, FailedRun):
        return {**common, **_BLANK, 'failed': run.failed}
    played = run.played
    return {
        **common, 'lost': played.lost,
        'latency_ms': 1e3 * played.measured.latency,
        'predicted_ms': 1e3 * played.predicted.latency,
        'fps': played.measured.fps, 'predicted_fps': played.predicted.fps,
        'stream_ms': _finite(1e3 * played.usual), 'qoe_missed_s': played.missed_seconds,
        'bound_ms': 1e3 * run.bound, 'by_asker': played.by_asker,
        'busy_ms': {lane: 1e3 * seconds for lane, seconds in run.busy.items()}}


def _killed(killed: KilledDevice | str | None) -> dict[str, Any] | None:
    """Return what became of the frames around the kill; None if nothing could be killed."""
    if killed is None:
        return None
    if isinstance(killed, str):
        return {'failed': killed, 'frames': 0, 'lost': 0, 'max_rel_diff': None}
    seen = killed.seen
    return {
        'device': killed.device, 'frames': len(seen),
        'lost': sum(not answer.answered for answer in seen),
        'by_asker': sum(not answer.pipelined for answer in seen),
        'max_rel_diff': _finite(max((a.difference for a in seen), default=math.inf)),
        'recovered_ms': 1e3 * killed.recovered, 'half_the_air_s': killed.burst,
        'network': killed.network, 'failed': ''}


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def well(report: Mapping[str, Any]) -> bool:
    """Return whether no frame was lost, and all results are the unsplit model's."""
    parts = [report] if report['killed'] is None else [report, report['killed']]
    return all(not part['failed'] and part['frames'] > 0 and part['lost'] == 0
               and part['max_rel_diff'] is not None and part['max_rel_diff'] <= ROUNDING
               for part in parts)


def show_report(report: Mapping[str, Any], out: Output) -> None:
    """Print the tables."""
    target = report['target']
    title = f'target: {target["latency_ms"]:g} ms at {target["fps"]:g} frames a second'
    out.show(_table(f'Plans, {title}', report['systems']),
             _table('With half the air', report['burst']),
             _stages({**report['systems'], **report['burst']}), *_failures(report),
             plain(verdict(report)),
             plain(killed_text(report['killed'])))


def _failures(report: Mapping[str, Any]) -> list[str]:
    """Return which systems failed by what, and which left frames without an answer."""
    rows = {**report['systems'], **report['burst']}
    return [plain(f'{name}: ' + (row['failed'] or f'{row["lost"]} frames without an answer'))
            for name, row in rows.items() if row['failed'] or row['lost']]


def killed_text(killed: Mapping[str, Any] | None) -> str:
    """Return in words what became of the frames around the kill."""
    if killed is None:
        return 'No device was killed: by our plan only the asker computes.'
    if killed['failed']:
        return f'A device of real processes was killed, and that failed: {killed["failed"]}'
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
        if row['failed']:
            shown.add_row(plain(name), 'failed')
            continue
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


#: What is said of the columns of the page.
MEASURED = {
    'alone, at the rate, frames a second, target missed': FIGURES[
        'latency_ms, fps, stream_ms, qoe_missed_s'],
    'predicted, bottleneck, and the least of a frame': FIGURES[
        'predicted_ms, predicted_fps, bound_ms, busy_ms'],
    'energy': FIGURES['joules'],
    'killed': 'measured: real processes, real inferences over DDS, one of them killed with -9 '
              'and started again, a frame every 250 ms',
    'frames and differences': FIGURES['frames, lost, max_rel_diff']}


def said(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the page says of a report: title, headline, remarks, how it was measured."""
    target = report['target']
    return {
        'title': 'One network over a fleet', 'well': well(report),
        'headline': f'{report["frames"] - report["lost"]} of {report["frames"]} frames answered; '
                    + ("every one that was compared is the unsplit model's." if well(report)
                       else 'not all is as it must be.'),
        'remarks': [f'Target: {target["latency_ms"]:g} ms at {target["fps"]:g} frames a second.',
                    f'No frame that is alone can take less than {report["bound_ms"]:.0f} ms by '
                    'our division (modelled).', *_failures(report),
                    killed_text(report['killed'])],
        'measured': [*MEASURED.items(),
                     ('devices', 'robot, robot2, laptop and box behind one access point of '
                                 f'{report["air_mbps"]:g} Mbit/s, the box wired; the robot takes '
                                 '0.4 s for the whole network, the others less by their speeds'),
                     ('again', '`make demo-fleet` makes these figures again; one run')]}
