# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How quick the event simulator is, by tasks and devices.

Frames go through a pipeline with a stage on every device; between stages a
transfer over the air of one access point, or over a ring.  A task has two
events, its start and its end.  Seconds are of one processor, the best of
several plays: of tasks that are arrays already (`play_arrays`), and of all of
`simulate`.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable
import json
import time
from typing import Any

from rich.console import Console
from rich.table import Table

from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, ring, Topology
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.schedule.event_simulator import (
    Chunks,
    Discipline,
    FAIR,
    play_arrays,
    simulate,
)
from intradp_ros.schedule.task_arrays import task_arrays
from intradp_ros.schedule.task_graph import ComputeTask, Task, TaskGraph, TransferTask

NBYTES, RATE = 1e5, 12.5e6
DISCIPLINES: dict[str, Discipline] = {
    'fair': FAIR, 'whole transfers': Chunks(), '30 kB chunks': Chunks(30e3)}


def pipeline(topology: Topology, frames: int) -> TaskGraph:
    """Return frames that all come at once and go from device to device."""
    tasks: list[Task] = []
    for frame in range(frames):
        before: tuple[int, ...] = ()
        for number, name in enumerate(topology.names):
            if number:
                tasks.append(TransferTask(topology.names[number - 1], name, NBYTES, before))
                before = (len(tasks) - 1,)
            tasks.append(ComputeTask(name, 0.01 + 0.003 * (frame * 7 % 5), before))
            before = (len(tasks) - 1,)
    return TaskGraph(tuple(tasks))


def best_seconds(work: Callable[[], object], times: int) -> float:
    """Return the processor seconds of the quickest of several calls after a first."""
    work()
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def measure(net: str, devices: int, tasks: int, name: str, times: int) -> dict[str, Any]:
    """Return what one pipeline takes."""
    members = [Device(f'd{k}') for k in range(devices)]
    topology = (behind_access_point(members, RATE) if net == 'access point'
                else ring(members, RATE))
    graph = pipeline(topology, max(1, tasks // (2 * devices - 1)))
    arrays, discipline = task_arrays(graph, topology), DISCIPLINES[name]
    played = best_seconds(lambda: play_arrays(arrays, discipline), times)
    return {'net': net, 'devices': devices, 'tasks': len(graph.tasks), 'media': name,
            'play_seconds': played, 'events_per_second': 2 * len(graph.tasks) / played,
            'simulate_seconds': best_seconds(lambda: simulate(graph, topology, discipline), times)}


def main() -> None:
    """Measure, print a table, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', type=result_file, help='write the figures here')
    parser.add_argument('--times', type=int, default=5, help='plays of each case')
    arguments = parser.parse_args()
    cases = [('access point', 5, tasks, 'fair') for tasks in (100, 1000, 10_000, 100_000)]
    cases += [(net, devices, 10_000, 'fair') for net in ('access point', 'ring')
              for devices in (2, 8, 32)]
    cases += [('access point', 5, 10_000, name) for name in DISCIPLINES if name != 'fair']
    rows = [measure(*case, arguments.times) for case in cases]
    table = Table('net', 'devices', 'tasks', 'media', 'play, ms', 'events/s', 'simulate, ms')
    for r in rows:
        table.add_row(str(r['net']), str(r['devices']), str(r['tasks']), str(r['media']),
                      f'{1e3 * r["play_seconds"]:.2f}', f'{r["events_per_second"]:,.0f}',
                      f'{1e3 * r["simulate_seconds"]:.1f}')
    Console(width=110).print(table)
    if arguments.json:
        write_atomically(arguments.json, json.dumps(rows, indent=1))


if __name__ == '__main__':
    main()
