# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Rounds of training on this machine: as predicted, and what the loss of a device costs.

- ``--recovery N``: MobileNetV2 on three processes in network namespaces whose links `tc` shapes
  (Linux, as root); one is killed.  N times by light re-planning and N times by plans from
  scratch, in turn: detection, moves and replay, what they must take at least, and rounds after.
  Processes compute really, and take the seconds of slower devices.
- ``--real N``: two processes, each with one thread on a processor of its own, compute as fast as
  they can.  Their layers are profiled by both at once before and after each run of N; rounds by
  several plans against what these profiles predict; and, since wall time of a machine with other
  work says little, the processor seconds of each process against those of its passes and step.
"""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
import json
import os
from pathlib import Path
import signal
from statistics import median
import subprocess
import sys
import time
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from training_faults import Net, network

from intradp_lab.emulation.namespaces import run
from intradp_lab.training.least_times import measured_hop, port_seconds
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.systems.training.base.task import TensorData, TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.layer_profiler import measure_layers
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import judged, plan_round, stages_of
from intradp_ros.systems.training.plan.replanning import (
    costs_of,
    entering,
    layer_calls,
    linear,
    on_devices,
    replanner,
    runnable,
)
from intradp_ros.systems.training.plan.round_costs import RoundCosts
from intradp_ros.systems.training.plan.training_plan import TrainingPlan
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.process_fleet import ProcessFleet
from intradp_ros.systems.training.service.round_commit import RoundCommit

NAME = f'{Path(__file__).resolve()}:mobilenet'
#: Speeds of the devices to recover on; one of speed 1 takes `SAMPLE` seconds for a sample.
SPEEDS, SAMPLE = {'a': 1.0, 'b': 0.6, 'c': 0.4}, 0.04
KILLED_AT, ROUNDS_AFTER = 22, 12


def mobilenet() -> TrainingTask:
    """Return MobileNetV2 with random pictures, as large as the environment says."""
    torch.manual_seed(3)
    size, batch = int(os.environ.get('INTRADP_PIXELS', '64')), 16
    module = torchvision().models.mobilenet_v2(num_classes=10)
    data = TensorData((torch.randn(64, 3, size, size),), torch.randint(0, 10, (64,)))

    def sgd(named: Sequence[tuple[str, torch.nn.Parameter]]) -> torch.optim.Optimizer:
        return torch.optim.SGD([p for _, p in named], lr=1e-3, momentum=0.9)
    return TrainingTask(module, partial(F.cross_entropy, reduction='none'), sgd, data, batch, 2, 4,
                        500)


def shape(net: Net, mbits: float) -> None:
    """Let each device send, and receive, so many Mbit/s."""
    for name, space in net.spaces.items():
        limits = ('root', 'tbf', 'rate', f'{mbits}mbit', 'burst', '32kb', 'latency', '400ms')
        run('tc', '-n', space, 'qdisc', 'replace', 'dev', 'eth0', *limits)
        run('tc', 'qdisc', 'replace', 'dev', f'train{name}', *limits)


@dataclass
class Kill:
    """Kills a device at a round, and ends the run some rounds later."""

    name: str
    fleet: ProcessFleet | None = None
    at: float = 0.0
    before: TrainingPlan | None = None

    def __call__(self, commit: RoundCommit) -> None:
        """Look at where training stands."""
        if self.fleet and commit.plan and commit.committed >= KILLED_AT and not self.at:
            self.before, self.at = commit.plan, time.monotonic()
            self.fleet.links[self.name].process.send_signal(signal.SIGKILL)


def recovery(count: int, mbits: float) -> dict[str, Any]:
    """Kill one of three devices, by turns of both ways to plan anew."""
    task = mobilenet()
    graph = capture(task)
    measured = measure_layers('here', layer_calls(graph, task), entering(graph, task),
                              task.optimiser, 4)
    times = measured.times['here']
    scale = (sum(times.forward[-1]) + sum(times.backward[-1])) / times.batches[-1] / SAMPLE
    table = on_devices(linear(measured), {n: speed * scale for n, speed in SPEEDS.items()})
    devices = [Device(name, speed=speed) for name, speed in SPEEDS.items()]
    topology = behind_access_point(devices, 1e12, wired=list(SPEEDS), port=mbits * 125e3)
    unpaced = behind_access_point(devices, 1e12, wired=list(SPEEDS), port=1e12)
    first = replanner(task, table, topology)(tuple(SPEEDS), None)
    assert first is not None
    alone = [s.devices[0] for s in first.stages if len(s.devices) == 1]
    name = alone[-1] if alone else first.participants[-1]
    rows: list[dict[str, Any]] = []
    with network() as net:
        shape(net, mbits)
        for turn in range(2 * count):
            heavy = bool(turn % 2)
            watch = Kill(name)
            planner = replanner(task, table, topology, heavy=heavy)
            with ProcessFleet(NAME, task, graph, unpaced, planner, table,
                              Settings(3.0, 5, net.address), emulate=True, progress=watch,
                              places=net.places, sealed=False) as fleet:
                watch.fleet = fleet
                fleet.trainer.run(240.0, KILLED_AT + ROUNDS_AFTER)
                rows.append(_row(fleet.trainer.commit, watch, graph, mbits) | {'heavy': heavy})
            print(json.dumps(rows[-1]), flush=True)
    found: dict[str, Any] = {'plan': str(first), 'killed': name, 'rows': rows}
    for heavy in (False, True):
        some = [row for row in rows if row['heavy'] is heavy]
        found['heavy' if heavy else 'light'] = {
            key: median(row[key] for row in some)
            for key in ('detect', 'move', 'replay', 'least', 'round')}
    found['throughput_of_heavy'] = found['heavy']['round'] / found['light']['round']
    return found


def _row(commit: RoundCommit, watch: Kill, graph: LayerGraph, mbits: float) -> dict[str, Any]:
    """Return ms of a recovery, and the least: bytes at the rate, and work since the tag."""
    loss = next(one for one in commit.recoveries if watch.name in one.lost)
    assert commit.plan is not None and loss.caught_up
    rounds = [commit.figures[k]['seconds'] for k in range(KILLED_AT + 4,
                                                          KILLED_AT + ROUNDS_AFTER)]
    moved = port_seconds(loss.moved, commit.sizes, mbits * 125e3)
    work = (loss.reached - loss.tag) * median(rounds)
    detect, move, replay = loss.parts(watch.at)
    return {'detect': 1e3 * detect, 'move': 1e3 * move, 'replay': 1e3 * replay,
            'least_move': 1e3 * moved, 'least': 1e3 * (detect + moved + work),
            'rounds_replayed': loss.reached - loss.tag,
            'megabytes': sum(sum(2 * graph.nbytes(k) for k in m.layers)
                             for m in loss.moved) / 1e6,
            'round': 1e3 * median(rounds), 'plan': str(commit.plan)}


def profile() -> None:
    """Profile the layers in this process; print the table."""
    torch.set_num_threads(1)
    task = mobilenet()
    graph = capture(task)
    sys.stdin.readline()  # all begin at once
    print(measure_layers('here', layer_calls(graph, task), entering(graph, task), task.optimiser,
                         4).to_json())


def profiled(names: Sequence[str]) -> dict[str, LayerTable]:
    """Return what layers take on each processor, measured on all at once."""
    running = {name: subprocess.Popen(
        ['taskset', '-c', str(k), sys.executable, __file__, '--profile'], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True) for k, name in enumerate(names)}
    time.sleep(20.0)  # until all have captured it
    for one in running.values():
        assert one.stdin is not None
        one.stdin.write('\n')
        one.stdin.flush()
    return {name: LayerTable.from_json(one.communicate()[0].splitlines()[-1])
            for name, one in running.items()}


def real(rounds: int, turns: int = 1) -> dict[str, Any]:
    """Run rounds by several plans on two processors; return them beside what profiles say."""
    os.environ['INTRADP_PIXELS'] = '96'
    task, names = mobilenet(), ('a', 'b')
    graph = capture(task)
    hop = measured_hop() / 2
    ports = behind_access_point([Device(name) for name in names], 1e12, wired=names, port=1e9)
    topology = replace(ports, media=tuple(replace(port, delay=hop) for port in ports.media))
    tables, rows = [profiled(names)], list[dict[str, Any]]()
    plans = _plans(task, _of(tables[:1]), topology)
    for turn in range(turns):
        took = {what: _timed(task, graph, topology, runnable(
            costs_of(task, _of(tables[-1:]), topology), stages, task), rounds)
            for what, stages in plans.items()}
        tables.append(profiled(names))
        costs = costs_of(task, _of(tables[-2:]), topology)
        for what, (seconds, processor) in took.items():
            predicted, busy = judged(costs, plans[what]).seconds, _busy(costs, plans[what])
            rows.append({'turn': turn, 'plan': what, 'ms': 1e3 * seconds,
                         'predicted_ms': 1e3 * predicted, 'ratio': seconds / predicted,
                         'processor_ms': {name: 1e3 * processor[name] for name in busy},
                         'predicted_processor_ms': {n: 1e3 * busy[n] for n in busy},
                         'processor_ratio': sum(processor[n] for n in busy) / sum(busy.values()),
                         'load': os.getloadavg()[0]})
            print(json.dumps(rows[-1]), flush=True)
    return {'rows': rows} | {f'median_{key}': {what: median(
        row[key] for row in rows if row['plan'] == what) for what in plans}
        for key in ('ratio', 'processor_ratio')}


def _busy(costs: RoundCosts, stages: Sequence[HybridStage]) -> dict[str, float]:
    """Return the seconds in which each device computes in a round."""
    found: dict[str, float] = {}
    for stage in stages:
        for name in stage.devices:
            found[name] = sum(costs.stage_seconds(stage, name)) + costs.step_seconds(
                name, stage.first, stage.last)
    return found


def _of(tables: Sequence[Mapping[str, LayerTable]]) -> LayerTable:
    """Return one table of all devices: the mean of several profiles of each."""
    def mean(rows: Sequence[Any]) -> Any:
        if isinstance(rows[0], tuple):
            return tuple(mean(row) for row in zip(*rows, strict=True))
        return sum(rows) / len(rows)
    times = {}
    for name in tables[0]:
        found = [table[name].times['here'] for table in tables]
        times[name] = replace(found[0], forward=mean([one.forward for one in found]),
                              backward=mean([one.backward for one in found]),
                              step=mean([one.step for one in found]))
    return replace(next(iter(tables[0].values())), times=times)


def _plans(task: TrainingTask, table: LayerTable, topology: Topology,
           ) -> dict[str, tuple[HybridStage, ...]]:
    costs = costs_of(task, table, topology)
    work = [sum(costs.seconds('a', 0, k, 4)) for k in range(costs.layers + 1)]
    middle = min(range(1, costs.layers), key=lambda k: abs(work[k] - work[-1] / 2))
    found = {'best': plan_round(costs).stages}
    for what, wanted in (('one device', ((0, ('a',)),)), ('data parallel', ((0, ('a', 'b')),)),
                         ('pipeline', ((0, ('a',)), (middle, ('b',))))):
        if stages := stages_of(costs, wanted):
            found[what] = stages
    return found


def _timed(task: TrainingTask, graph: LayerGraph, topology: Topology, plan: TrainingPlan,
           rounds: int) -> tuple[float, dict[str, float]]:
    """Return the median seconds of a round, and the processor seconds of each device."""
    def always(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan:
        return plan
    table = LayerTable(('none',), (0.0,), (0.0,), (0.0,), (0.0, 0.0), (0.0, 0.0), {})
    places = {name: ('127.0.0.1', ('taskset', '-c', str(k)))
              for k, name in enumerate(topology.names)}

    def spent(fleet: ProcessFleet) -> dict[str, float]:
        return {name: sum(map(int, Path(f'/proc/{link.process.pid}/stat').read_text().rpartition(
            ')')[2].split()[11:13])) / os.sysconf('SC_CLK_TCK')
            for name, link in fleet.links.items()}
    with ProcessFleet(NAME, task, graph, topology, always, table, Settings(30.0, 1000),
                      places=places, sealed=False) as fleet:
        fleet.trainer.run(400.0, 2)
        first, begun = fleet.trainer.commit.committed, spent(fleet)
        fleet.trainer.run(400.0, rounds)
        last, ended = fleet.trainer.commit.committed, spent(fleet)
        return (median(fleet.trainer.commit.figures[k]['seconds'] for k in range(2, rounds)),
                {name: (ended[name] - begun[name]) / (last - first) for name in ended})


def main() -> None:
    """Run what is asked for, print figures, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--recovery', type=int, default=0)
    parser.add_argument('--mbits', type=float, default=100.0)
    parser.add_argument('--real', type=int, default=0, metavar='ROUNDS')
    parser.add_argument('--profile', action='store_true', help=argparse.SUPPRESS)
    parser.add_argument('--json', type=result_file, help='write the figures here')
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.profile:
        profile()
        return
    found: dict[str, Any] = {}
    if args.recovery:
        found['recovery'] = recovery(args.recovery, args.mbits)
    if args.real:
        found['real'] = real(args.real)
    for name, one in found.items():
        print(name, json.dumps({k: v for k, v in one.items() if k != 'rows'}))
    if args.json:
        write_atomically(args.json, json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
