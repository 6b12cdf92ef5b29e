# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plays a task graph on the devices and media of a topology, in model time.

A device runs its tasks one at a time in the order of the graph.  Media and
disks share their rates among all that is on them, or serve chunks in order
of priority.  A planner that asks for many graphs of one shape may keep the
arrays (`task_arrays`) and play them anew (`play_arrays`).
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
import math
from typing import Any

import numpy as np

from intradp_ros.cluster.topology import Topology
from intradp_ros.core.numba_compile import machine_code
from intradp_ros.schedule.event_kernels import flows, lines, loop, state
from intradp_ros.schedule.event_kernels.state import Report
from intradp_ros.schedule.task_arrays import (
    Changes,
    Floats,
    Holdings,
    holdings,
    Ints,
    task_arrays,
    TaskArrays,
)
from intradp_ros.schedule.task_graph import TaskGraph

_MODULES = (state, flows, lines, loop)


@dataclass(frozen=True, slots=True)
class Fair:
    """
    All transfers on a medium share its rate (max-min fairness over their paths).

    Bytes are on all media of a path at once; a path that names a medium
    twice takes twice of it.
    """


@dataclass(frozen=True, slots=True)
class Chunks:
    """
    A medium carries one chunk at a time: the first of the transfer that comes first.

    That is the one of the smallest priority, of equals the one that was ready
    first.  A chunk, of at most `nbytes`, is not interrupted; it goes through
    the media of its path one after another.  With endless chunks, media carry
    whole transfers.
    """

    nbytes: float = math.inf

    def __post_init__(self) -> None:
        """Check the size."""
        if not self.nbytes > 0:
            raise ValueError(f'chunks need a size above 0 bytes, got {self.nbytes}')


Discipline = Fair | Chunks
FAIR = Fair()


@dataclass(frozen=True)
class Simulation:
    """
    What a task graph takes: seconds from its start.

    By task, `start` (a transfer's first byte) and `finish`.  By device: `busy`
    seconds computing, seconds `sending` and `receiving`, `peak_memory` in
    bytes, and `joules`, modelled from its power states (only where these are
    known).  By medium: the `carried` bytes, each time they cross it, and how
    long these keep it busy at its full (first) rate (`in_use`).
    """

    start: Floats
    finish: Floats
    makespan: float
    busy: Mapping[str, float]
    sending: Mapping[str, float]
    receiving: Mapping[str, float]
    carried: Mapping[str, float]
    in_use: Mapping[str, float]
    peak_memory: Mapping[str, float]
    joules: Mapping[str, float]


def simulate(graph: TaskGraph, topology: Topology, discipline: Discipline = FAIR,
             changes: Changes | None = None) -> Simulation:
    """
    Play a task graph; `changes` are rates of media that change meanwhile.

    :raises ValueError: if the graph names a device that is not there, two that nothing joins, or a
        disk of a device that has none; or rates change where they are shared fairly.
    """
    if changes and not isinstance(discipline, Chunks):
        raise ValueError('rates may change only where media serve chunks')
    arrays = task_arrays(graph, topology, changes)
    report = play_arrays(arrays, discipline)
    names = topology.names
    makespan = float(report.finish.max(initial=0.0))
    carried = carried_bytes(arrays)
    return Simulation(
        report.start, report.finish, makespan, _named(names, report.busy),
        _named(names, report.sending), _named(names, report.receiving),
        _named([m.name for m in topology.media], carried),
        _named([m.name for m in topology.media], carried / arrays.rate),
        peak_memory(holdings(graph, topology), report, topology, graph.resident),
        _joules(topology, report, makespan))


def play_arrays(arrays: TaskArrays, discipline: Discipline = FAIR) -> Report:
    """Play tasks that are arrays already; the quick part of `simulate`."""
    chunk = float(discipline.nbytes) if isinstance(discipline, Chunks) else 0.0
    report: Report = _player()(arrays, chunk)
    return report


def _play(arrays: TaskArrays, chunk: float) -> Report:
    return loop.play(arrays, chunk)


@cache
def _player() -> Callable[..., Any]:
    """Return what plays: machine code, or plain where numba is not installed."""
    compiled = machine_code(_MODULES, (_play,), inline=False)
    return compiled[0] if compiled else _play


def _named(names: Any, values: Floats) -> dict[str, float]:
    return dict(zip(names, values.tolist()))


def carried_bytes(t: TaskArrays) -> Floats:
    """Return the bytes that cross each medium."""
    moves = np.flatnonzero(t.route >= 0)
    by_route = np.bincount(t.route[moves], t.nbytes[moves], len(t.hop_at) - 1)
    return np.bincount(t.hop, np.repeat(by_route, np.diff(t.hop_at)), len(t.rate)).astype(float)


def peak_memory(held: Holdings, report: Report, topology: Topology,
                resident: Mapping[str, float]) -> dict[str, float]:
    """
    Return the most bytes that each device holds at a time, with what is `resident`.

    What ends at a time is given back before what starts at that time is taken.
    """
    back = _given_back(held, report)
    keep = back > report.start[held.task]
    device = np.concatenate([held.device[keep]] * 2)
    when = np.concatenate([report.start[held.task[keep]], back[keep]])
    change = np.concatenate([held.nbytes[keep], -held.nbytes[keep]])
    order = np.lexsort((change, when, device))
    peaks = _peaks(device[order], change[order], len(topology.names))
    return {name: resident.get(name, 0.0) + peak
            for name, peak in _named(topology.names, peaks).items()}


def _given_back(held: Holdings, report: Report) -> Floats:
    counts = np.diff(held.until_at)
    back = np.full(len(held.task), np.inf)
    some = counts > 0
    if some.any():
        back[some] = np.maximum.reduceat(report.finish[held.until], held.until_at[:-1][some])
    return back


def _peaks(device: Ints, change: Floats, devices: int) -> Floats:
    """Return the highest running sum of each device's changes."""
    peaks = np.zeros(devices)
    sums = np.cumsum(change)
    for number, first in zip(*np.unique(device, return_index=True)):
        last = np.searchsorted(device, number, 'right')
        before = sums[first - 1] if first else 0.0
        peaks[number] = max(0.0, float((sums[first:last] - before).max()))
    return peaks


def _joules(topology: Topology, report: Report, makespan: float) -> dict[str, float]:
    return {device.name: device.power.joules(
                makespan, float(report.busy[k]), float(report.sending[k]),
                float(report.receiving[k]))
            for k, device in enumerate(topology.devices) if device.power is not None}
