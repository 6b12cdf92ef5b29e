# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Random topologies and task graphs."""
from __future__ import annotations

from collections.abc import Callable
import random

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, ring, Topology
from intradp_ros.schedule.task_graph import ComputeTask, LoadTask, Task, TaskGraph, TransferTask

Number = Callable[[float], float]


def random_topology(rng: random.Random, number: Number) -> Topology:
    """Return 2 to 5 devices, each with a disk, behind an access point or on a ring."""
    names = 'abcde'[:rng.randint(2, 5)]
    devices = [Device(name, disk=f'{name}.disk') for name in names]
    delay = rng.choice([0.0, number(1)])
    if rng.random() < 0.5:
        bare = [Device(d.name) for d in devices]
        wired = [name for name in names if rng.random() < 0.4]
        net = behind_access_point(bare, number(8), delay, wired, number(16))
    else:
        net = ring([Device(d.name) for d in devices], number(8), delay)
    disks = tuple(Medium(d.disk, number(8)) for d in devices)
    return Topology(tuple(devices), net.media + disks, net.paths)


def random_tasks(rng: random.Random, topology: Topology, number: Number,
                 count: int = 24) -> TaskGraph:
    """Return tasks of all kinds that wait for each other; `number` gives sizes up to a bound."""
    tasks: list[Task] = []
    for index in range(count):
        after = tuple(rng.sample(range(index), min(index, rng.choice([0, 1, 1, 2]))))
        until = tuple(rng.sample(range(count), rng.randint(0, 2)))
        kind, device = rng.random(), rng.choice(topology.names)
        if kind < 0.4:
            tasks.append(ComputeTask(device, number(4), after, '', number(8), until))
        elif kind < 0.9:
            lead, lag = (rng.choice([0.0, 0.0, number(2)]) for _ in range(2))
            size = rng.choice([0.0, number(32), number(32), number(32)])
            tasks.append(TransferTask(device, rng.choice(topology.names), size, after, '',
                                      float(rng.randint(0, 2)), lead, lag, number(8), until))
        else:
            tasks.append(LoadTask(device, number(32), after, '', float(rng.randint(0, 2)), until))
    release = {k: number(16) for k in range(count) if rng.random() < 0.2}
    return TaskGraph(tuple(tasks), release)
