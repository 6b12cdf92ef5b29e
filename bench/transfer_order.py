# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the order of transfers gains on a real medium: ``python bench/transfer_order.py`` (root).

The same stages are run twice, in turns: transfers take turns (*naive*), or go
in the order that the planner finds (*planned*).  Devices are nodes over DDS,
each in a network namespace behind one shaped access point; their operators
are emulated, bytes and air are real.  Next to what was measured stands what the
event simulator predicts, for a frame that is alone and for a camera's rate.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
import json
from pathlib import Path
import statistics
import tempfile
from typing import Any

from rich.console import Console
from rich.table import Table
import torch
from torch import nn

from intradp_lab.emulation.fleet_network import fleet_network, FleetNetwork
from intradp_lab.fleet.fleet_figures import for_payload
from intradp_lab.fleet.namespace_fleet import SILENCE, TRANSPORT
from intradp_lab.fleet.node_fleet import NodeFleet, running
from intradp_lab.fleet.stage_order import discipline_of, seconds_by_speed, with_order
from intradp_lab.zoo.dense import segmenter
from intradp_lab.zoo.hed import hed
from intradp_lab.zoo.mobilenet_v2 import mobilenet_v2
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.dds.transport_profile import find_transport, transport_environment
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.serialise import save_graph
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.stage_cuts import operator_weights
from intradp_ros.schedule.stage_plan import Member, Stage, StagePlan
from intradp_ros.schedule.stage_tasks import stage_tasks

TIMEOUT = 300.0
#: Inferences of a stream that are in flight at most; no camera here outruns its fleet.
INFLIGHT = 16
#: Frames that an order is searched for.
FRAMES_PLANNED = 8


class TwoCameras(nn.Module):
    """A classifier on one camera and a segmenter on another."""

    def __init__(self) -> None:
        super().__init__()
        self.classifier, self.segmenter = mobilenet_v2(), segmenter()

    def forward(self, ahead: torch.Tensor, below: torch.Tensor) -> tuple[Any, Any]:
        """Return what both say."""
        return self.classifier(ahead), self.segmenter(below)


@dataclass(frozen=True)
class Setting:
    """
    A network in stages on devices behind one access point of `mbps`.

    `stages` are operators of the branch of an input (or all, -1), divided
    before those named, and who runs the parts.  All operators together take
    `whole` seconds at speed 1, each in proportion to its work.
    """

    model: str
    whole: float
    speeds: Mapping[str, float]
    mbps: float
    stages: Sequence[tuple[int, Sequence[int], Sequence[str]]]
    interval: float

    @property
    def topology(self) -> Topology:
        """The devices behind their access point; the last one is wired."""
        names = list(self.speeds)
        return behind_access_point([Device(n, speed=s) for n, s in self.speeds.items()],
                                   self.mbps * 125e3, wired=names[-1:])


MODELS: Mapping[str, tuple[Callable[[], nn.Module], Sequence[tuple[int, ...]]]] = {
    'two cameras': (TwoCameras, ((1, 3, 224, 224), (1, 3, 192, 256))),
    'HED': (hed, ((1, 3, 144, 336),)),
}
SETTINGS: Mapping[str, Setting] = {
    'two cameras, 3 devices': Setting(
        'two cameras', 0.8, {'robot': 1.0, 'box': 0.5, 'server': 4.0}, 20.0,
        ((0, (), ('box',)), (1, (), ('server',))), 0.4),
    'two cameras, 4 devices': Setting(
        'two cameras', 0.8, {'robot': 1.0, 'robot2': 0.5, 'box': 1.0, 'server': 3.0}, 20.0,
        ((0, (41,), ('robot2', 'box')), (1, (), ('server',))), 0.5),
    'HED, 5 devices': Setting(
        'HED', 0.6, {'robot': 1.0, 'robot2': 2.0, 'robot3': 2.0, 'box': 2.0, 'server': 4.0},
        100.0, ((-1, (22, 30, 37), ('robot2', 'box', 'server', 'robot')),), 0.5),
}


@dataclass(frozen=True)
class Prepared:
    """What a setting is run with."""

    setting: Setting
    model: SharedModel
    profile: Profile
    plans: Mapping[str, StagePlan]


def prepare(setting: Setting) -> Prepared:
    """Capture the network, and make the plans that differ in the order of transfers."""
    factory, shapes = MODELS[setting.model]
    model = share_module(factory().eval(), [torch.zeros(s, dtype=torch.uint8) for s in shapes])
    weights = operator_weights(model.split.graph)
    profile = Profile('modelled', 2, 'by work', 1, tuple(
        OperatorTiming((op.rows,), (setting.whole * weight / sum(weights),))
        for op, weight in zip(model.split.operators, weights)), setting.whole)
    source = next(iter(setting.speeds))
    stages = tuple(stage for parts in setting.stages
                   for stage in _stages(model.split.graph, *parts))
    plan = StagePlan(model.digest, source, 1, stages)
    seconds = seconds_by_speed(model.split, profile, setting.topology)
    planned = with_order(model.split, plan, seconds, payload(setting), FRAMES_PLANNED,
                         setting.interval)
    return Prepared(setting, model, profile, {
        'naive': replace(plan, order=None), 'planned': planned})


def _stages(graph: OperatorGraph, branch: int, cuts: Sequence[int], devices: Sequence[str],
            ) -> list[Stage]:
    known = set(graph.inputs if branch < 0 else graph.inputs[branch:branch + 1])
    own = []
    for index, op in enumerate(graph.operators):
        if known.intersection(op.inputs):
            own.append(index)
            known.update(v for v in op.outputs if v is not None)
    edges = [0, *cuts, len(own)]
    return [Stage(tuple(own[a:b]), (Member(device, 1),))
            for a, b, device in zip(edges, edges[1:], devices)]


def payload(setting: Setting) -> Topology:
    """Return the topology with what tensors get of the air."""
    return for_payload(setting.topology, find_transport(TRANSPORT).payload_share)


def predicted(prepared: Prepared, plan: StagePlan, frames: int) -> tuple[float, float]:
    """Return the median seconds of frames alone, and at the camera's rate."""
    split, setting = prepared.model.split, prepared.setting
    topology, discipline = payload(setting), discipline_of(plan)
    seconds = seconds_by_speed(split, prepared.profile, setting.topology)
    one = stage_tasks(split, plan, seconds, topology)
    many = stage_tasks(split, plan, seconds, topology, frames, setting.interval, INFLIGHT)
    return (one.latencies(simulate(one.graph, topology, discipline))[0],
            statistics.median(many.latencies(simulate(many.graph, topology, discipline))))


def measured(prepared: Prepared, plan: StagePlan, network: FleetNetwork, folder: Path, alone: int,
             frames: int) -> tuple[list[float], list[float]]:
    """Return the seconds of frames alone, and of frames at the camera's rate."""
    folder.mkdir()
    for name, text in (('plan.json', json.dumps(plan.to_json())),
                       ('profile.json', prepared.profile.to_json())):
        (folder / name).write_text(text)
    save_graph(prepared.model.split.captured, folder / 'model.graph')
    fleet = NodeFleet(
        str(folder / 'model.graph'), plan.source, prepared.setting.speeds, folder,
        plan=str(folder / 'plan.json'),
        profiles=dict.fromkeys(prepared.setting.speeds, str(folder / 'profile.json')),
        network=network,
        environment={**network.discovery,
                     **transport_environment(TRANSPORT)})
    with running(fleet) as run:
        seen = run.answers(run.asker(
            alone=alone, frames=alone + frames, interval=prepared.setting.interval,
            inflight=INFLIGHT, silence=SILENCE), TIMEOUT)
    if lost := [s.reason for s in seen if not s.pipelined]:
        raise SystemExit(f'{len(lost)} frames were not computed by the fleet: {lost[0]}')
    return [s.latency for s in seen[:alone]], [s.latency for s in seen[alone:]]


def run(name: str, rounds: int, alone: int, frames: int) -> list[dict[str, Any]]:
    """Run both orders of a setting in turns; return a row for each."""
    prepared, setting = prepare(SETTINGS[name]), SETTINGS[name]
    found: dict[str, tuple[list[float], list[float]]] = {key: ([], []) for key in prepared.plans}
    with tempfile.TemporaryDirectory() as folder, fleet_network(
            list(setting.speeds), setting.mbps, list(setting.speeds)[-1:]) as network:
        for number in range(rounds):
            for key, plan in prepared.plans.items():
                one, many = measured(prepared, plan, network, Path(folder) / f'{key}{number}',
                                     alone, frames)
                found[key][0].extend(one)
                found[key][1].extend(many)
                print(name, key, f'{_ms(one):.0f} ms alone, {_ms(many):.0f} ms', flush=True)
    rows = []
    for key, plan in prepared.plans.items():
        says = predicted(prepared, plan, frames)
        rows.append({'setting': name, 'order': key,
                     'alone_ms': _ms(found[key][0]), 'alone_predicted_ms': 1e3 * says[0],
                     'stream_ms': _ms(found[key][1]), 'stream_predicted_ms': 1e3 * says[1],
                     'stream_p90_ms': 1e3 * statistics.quantiles(found[key][1], n=10)[-1]})
    return rows


def _figures(row: Mapping[str, Any], kind: str) -> tuple[str, str, str]:
    found, says = row[f'{kind}_ms'], row[f'{kind}_predicted_ms']
    return f'{found:.0f}', f'{says:.0f}', f'{found / says - 1:+.1%}'


def _ms(seconds: Sequence[float]) -> float:
    return 1e3 * statistics.median(seconds)


def main() -> None:
    """Run all settings, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--settings', nargs='+', choices=list(SETTINGS), default=list(SETTINGS))
    parser.add_argument('--rounds', type=int, default=3, help='runs of each order, in turns')
    parser.add_argument('--alone', type=int, default=8, help='frames one at a time, each run')
    parser.add_argument('--frames', type=int, default=40, help="frames at the camera's rate")
    parser.add_argument('--json', type=result_file, help='write the figures here')
    arguments = parser.parse_args()
    rows = [row for name in arguments.settings
            for row in run(name, arguments.rounds, arguments.alone, arguments.frames)]
    table = Table('setting', 'order', 'alone, ms', 'predicted', 'apart', 'at the rate, ms',
                  'predicted', 'apart', '90 % below')
    for row in rows:
        table.add_row(row['setting'], row['order'], *_figures(row, 'alone'),
                      *_figures(row, 'stream'), f'{row["stream_p90_ms"]:.0f}')
    Console(width=120).print(table)
    if arguments.json:
        write_atomically(arguments.json, json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
