# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a placement takes of each device's memory while all its frames are in flight.

All frames that a pipeline takes at a time are asked for at once.  A device holds its
weights, what a node works with, and of every frame each value that it was sent until its
last reader has run, and each that others read until it was sent.  How much that is at
most is known from a simulation.  Bounds, which take none, decide most placements.
"""
from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
import math

import numpy as np

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.placement_tasks import ABOVE, held_tasks
from intradp_ros.schedule.event_simulator import carried_bytes, peak_memory, play_arrays
from intradp_ros.schedule.task_arrays import (
    Floats,
    Holdings,
    holdings,
    Ints,
    task_arrays,
    TaskArrays,
)
from intradp_ros.schedule.task_graph import ComputeTask, TaskGraph, TransferTask


def frames_in_flight(placement: Sequence[int]) -> int:
    """Return how many frames a pipeline takes at a time by default: two a stage and one more."""
    return 2 * (1 + sum(a != b for a, b in zip(placement, placement[1:]))) + 1


class HeldMemory(Mapping[str, float]):
    """
    The most bytes that each device holds; simulated when one is first asked for.  No training.

    `least` and `most` are bounds of them, by device.

    :raises ValueError: if nothing joins two devices that must talk.
    """

    def __init__(self, costs: FleetCosts, placement: Sequence[int]) -> None:
        self._topology = costs.topology
        self._batches = math.ceil(frames_in_flight(placement) / costs.samples)
        self._one = held_tasks(costs, placement)
        self.least, self.most = memory_bounds(self._one, self._batches, costs.topology.names)

    def beyond(self, limits: Sequence[float]) -> bool:
        """Return whether some device would hold more than its limit, if possible by the bounds."""
        if any(held > limit * ABOVE for held, limit in zip(self.least.values(), limits)):
            return True
        if all(held * ABOVE <= limit for held, limit in zip(self.most.values(), limits)):
            return False
        return any(held > limit for held, limit in zip(self.values(), limits))

    @cached_property
    def _simulated(self) -> dict[str, float]:
        one = task_arrays(self._one, self._topology)
        alone = play_arrays(one)
        period = float(max(alone.busy.max(), (carried_bytes(one) / one.rate).max(initial=0.0)))
        arrays, held = repeated(one, holdings(self._one, self._topology), alone.start,
                                self._batches, period * ABOVE)
        return peak_memory(held, play_arrays(arrays), self._topology, self._one.resident)

    def __getitem__(self, device: str) -> float:
        """Return the bytes that a device holds."""
        return self._simulated[device]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names of devices."""
        return iter(self._topology.names)

    def __len__(self) -> int:
        """Return how many devices there are."""
        return len(self._topology.names)


def memory_bounds(one: TaskGraph, batches: int, names: Sequence[str],
                  ) -> tuple[dict[str, float], dict[str, float]]:
    """
    Return the least and the most bytes that devices hold, from the tasks of a micro-batch.

    All micro-batches arrive at time 0 by the first task.  A device surely holds at once: what
    a task works with and was sent, as it runs; and all inputs as the first task begins that
    reads one.  It never holds more than all values of all micro-batches and what its largest
    task works with.
    """
    sent: dict[int, float] = defaultdict(float)
    values, works, least = (dict.fromkeys(names, 0.0) for _ in range(3))
    for index, task in enumerate(one.tasks):  # a task comes after what it was sent
        if isinstance(task, TransferTask):
            values[task.target] += task.holds
            for user in task.until:
                if isinstance(reader := one.tasks[user], ComputeTask) and \
                        reader.device == task.target:
                    sent[user] += task.holds
        elif isinstance(task, ComputeTask):
            works[task.device] = max(works[task.device], task.holds)
            if task.seconds > 0:
                least[task.device] = max(least[task.device], task.holds + sent[index])
    arrival = one.tasks[0]
    assert isinstance(arrival, TransferTask)
    if all(task.seconds > 0 if isinstance(task, ComputeTask) else
           isinstance(task, TransferTask) and task.nbytes > 0
           for task in (one.tasks[user] for user in arrival.until)):
        begun = next((task for task in one.tasks if isinstance(task, ComputeTask)
                      and task.device == arrival.target), None)
        works_then = begun.holds if begun and begun.after == (0,) else 0.0
        least[arrival.target] = max(least[arrival.target], batches * arrival.holds + works_then)
    stay = {name: one.resident.get(name, 0.0) for name in names}
    return ({name: stay[name] + least[name] for name in names},
            {name: stay[name] + works[name] + batches * values[name] for name in names})


def repeated(one: TaskArrays, held: Holdings, starts: Floats, frames: int, period: float,
             ) -> tuple[TaskArrays, Holdings]:
    """
    Return the tasks of frames that are all there at time 0, and the memory these hold.

    Devices take them in the order of `starts` (seconds, by task) if each frame began one
    `period` after the one before; a frame's transfers have its number as priority.
    """
    count = len(one.device)
    frame = np.repeat(np.arange(frames), count)
    index = np.tile(np.arange(count), frames)
    order = np.lexsort((index, frame, frame * period + starts[index]))
    places = np.empty(len(order), np.int64)
    places[order] = np.arange(len(order))
    place = places.reshape(frames, count)
    task, frame = index[order], frame[order]

    sources, targets = _edges(one.after_at, one.after, place)
    edges = np.lexsort((targets, sources))
    device = one.device[task]
    working = np.flatnonzero(device >= 0)
    turn = working[np.argsort(device[working], kind='stable')]
    devices = len(one.turn_at) - 1
    arrays = one._replace(
        device=device, seconds=one.seconds[task], nbytes=one.nbytes[task],
        priority=np.where(device >= 0, 0.0, frame.astype(np.float64)), lead=one.lead[task],
        lag=one.lag[task], release=np.zeros(len(task)), route=one.route[task],
        source=one.source[task], target=one.target[task], waits=one.waits[task],
        after_at=_starts(np.bincount(sources, minlength=len(task))), after=targets[edges],
        turn_at=_starts(np.bincount(device[working], minlength=devices)), turn=turn)

    holders = place[:, held.task].reshape(-1)
    rows = np.argsort(holders)
    number, until = _edges(held.until_at, held.until, place, rows=len(held.task))
    row = np.empty(len(rows), np.int64)
    row[rows] = np.arange(len(rows))
    until_at = _starts(np.tile(np.diff(held.until_at), frames)[rows])
    return arrays, Holdings(
        holders[rows], np.tile(held.device, frames)[rows], np.tile(held.nbytes, frames)[rows],
        until_at, until[np.argsort(row[number], kind='stable')])


def _edges(starts: Ints, ends: Ints, place: Ints, rows: int | None = None) -> tuple[Ints, Ints]:
    """Return pairs in all frames: of tasks in their place, or of so many `rows` as they stand."""
    owner = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    if rows is None:
        return place[:, owner].reshape(-1), place[:, ends].reshape(-1)
    frames = np.arange(len(place))[:, None]
    return (frames * rows + owner).reshape(-1), place[:, ends].reshape(-1)


def _starts(counts: Ints) -> Ints:
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
