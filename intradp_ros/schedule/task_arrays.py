# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Task graphs as named arrays, which the event kernels take."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from intradp_ros.cluster.topology import Path, Topology
from intradp_ros.schedule.task_graph import ComputeTask, LoadTask, Task, TaskGraph, TransferTask

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class TaskArrays(NamedTuple):
    """
    Tasks, the turns of devices, routes and media.

    By task: the `device` that computes (-1: none, it moves bytes), its
    `seconds`, or the `nbytes` to move over a `route` with `priority`, `lead`
    and `lag`, from a `source` to a `target` (-1: from a disk); how many tasks
    it waits for, and which wait for it (`after[after_at[k]:after_at[k + 1]]`).
    By device: its tasks in order.  By route: its media in order.  By medium:
    its `rate` at first, and the times at which it changes to another
    (``change_at``, only where media serve chunks).
    """

    device: Ints
    seconds: Floats
    nbytes: Floats
    priority: Floats
    lead: Floats
    lag: Floats
    release: Floats
    route: Ints
    source: Ints
    target: Ints
    waits: Ints
    after_at: Ints
    after: Ints
    turn_at: Ints
    turn: Ints
    hop_at: Ints
    hop: Ints
    rate: Floats
    delay: Floats
    change_at: Ints
    change: Floats
    changed: Floats


#: By medium, times in seconds and the bytes per second from each of them on, ascending.
Changes = Mapping[str, Sequence[tuple[float, float]]]


class Holdings(NamedTuple):
    """
    Memory that tasks hold: bytes of a device from a task's start to the last end of some others.

    The tasks of holding k are ``until[until_at[k]:until_at[k + 1]]``; none
    of them: to the end.
    """

    task: Ints
    device: Ints
    nbytes: Floats
    until_at: Ints
    until: Ints


def task_arrays(graph: TaskGraph, topology: Topology, changes: Changes | None = None,
                ) -> TaskArrays:
    """
    Return a graph as arrays, on media whose rates may change while it is played.

    :raises ValueError: if it names a device that is not there, two that nothing joins, or a disk
        of a device that has none; or a rate is not above 0 and finite.
    """
    if endless := [m.name for m in topology.media if math.isinf(m.bytes_per_second)]:
        raise ValueError(f'medium {endless[0]!r} has no limit: give it a finite rate')
    devices = {name: index for index, name in enumerate(topology.names)}
    media = {medium.name: index for index, medium in enumerate(topology.media)}
    routes: dict[Path, int] = {}
    rows = [_row(task, topology, devices, routes) for task in graph.tasks]
    columns = [list(column) for column in zip(*rows)] or [[] for _ in range(9)]
    device, seconds, nbytes, priority, lead, lag, route, source, target = columns
    followers: list[list[int]] = [[] for _ in rows]
    for index, task in enumerate(graph.tasks):
        for earlier in set(task.after):
            followers[earlier].append(index)
    turns: list[list[int]] = [[] for _ in devices]
    for index, number in enumerate(device):
        if number >= 0:
            turns[int(number)].append(index)
    release = np.zeros(len(rows))
    release[list(graph.release)] = list(graph.release.values())
    change_at, change, changed = _changes(topology, changes or {})
    return TaskArrays(
        _ints(device), _floats(seconds), _floats(nbytes), _floats(priority), _floats(lead),
        _floats(lag), release, _ints(route), _ints(source), _ints(target),
        _ints(len(set(task.after)) for task in graph.tasks),
        *_ragged(followers), *_ragged(turns),
        *_ragged([[media[name] for name in path] for path in routes]),
        _floats(medium.bytes_per_second for medium in topology.media),
        _floats(medium.delay for medium in topology.media), change_at, change, changed)


def _changes(topology: Topology, changes: Changes) -> tuple[Ints, Floats, Floats]:
    steps = [list(changes.get(medium.name, ())) for medium in topology.media]
    for name in changes:
        topology.medium(name)
    for times in steps:
        late = any(b < a for (a, _), (b, _) in zip(times, times[1:]))
        if late or not all(0 < rate < math.inf and 0 <= time < math.inf for time, rate in times):
            raise ValueError('rates must be above 0, and their times ascend from 0')
    flat = [step for times in steps for step in times]
    return (_ints(accumulate(map(len, steps), initial=0)), _floats(time for time, _ in flat),
            _floats(rate for _, rate in flat))


def _row(task: Task, topology: Topology, devices: dict[str, int], routes: dict[Path, int],
         ) -> tuple[float, ...]:
    if isinstance(task, ComputeTask):
        return _device(task.device, devices), task.seconds, 0.0, 0.0, 0.0, 0.0, -1, -1, -1
    if isinstance(task, TransferTask):
        source, target = _device(task.source, devices), _device(task.target, devices)
        route = routes.setdefault(topology.path(task.source, task.target), len(routes))
        return (-1, 0.0, task.nbytes, task.priority, task.lead, task.lag, route, source, target)
    disk = topology.device(task.device).disk
    if not disk:
        raise ValueError(f'device {task.device!r} has no disk to load {task.name!r} from')
    return (-1, 0.0, task.nbytes, task.priority, 0.0, 0.0, routes.setdefault((disk,), len(routes)),
            -1, -1)


def _device(name: str, devices: dict[str, int]) -> int:
    if name not in devices:
        raise ValueError(f'there is no device {name!r}; there are {", ".join(devices)}')
    return devices[name]


def holdings(graph: TaskGraph, topology: Topology) -> Holdings:
    """Return what memory the tasks of a graph hold."""
    devices = {name: index for index, name in enumerate(topology.names)}
    found = [(index, *_holding(index, task)) for index, task in enumerate(graph.tasks)]
    held = [(index, devices[name], nbytes, until)
            for index, name, nbytes, until in found if nbytes]
    return Holdings(_ints(h[0] for h in held), _ints(h[1] for h in held),
                    _floats(h[2] for h in held), *_ragged([h[3] for h in held]))


def _holding(index: int, task: Task) -> tuple[str, float, tuple[int, ...]]:
    """Return device, bytes, and the tasks with whose last end they are given back."""
    if isinstance(task, LoadTask):
        return task.device, task.nbytes, task.until
    device = task.device if isinstance(task, ComputeTask) else task.target
    return device, task.holds, task.until or (index,)


def _ints(values: Iterable[float]) -> Ints:
    return np.array(list(values), np.int64)


def _floats(values: Iterable[float]) -> Floats:
    return np.array(list(values), np.float64)


def _ragged(lists: Sequence[Sequence[int]]) -> tuple[Ints, Ints]:
    """Return where each list starts, and all of them in one."""
    return _ints(accumulate(map(len, lists), initial=0)), _ints(chain.from_iterable(lists))
