# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Phase 2: in which order the transfers of a plan take the media that they share (Dora, 4.2).

The paper's Eq. 6 (rates over time) cannot be set without the access point.
What can be done by the senders is an order of chunks: each medium carries
the chunk of the transfer that comes first.  So the order is what is searched
for: by the longest way that is left, by time of arrival, by size; the best
of them is improved by exchanging transfers.  Fair sharing stands beside it
and is taken where nothing beats it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, permutations
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.cluster.topology import Topology
from intradp_ros.schedule.event_simulator import (
    Chunks,
    Discipline,
    FAIR,
    Fair,
    play_arrays,
    simulate,
    Simulation,
)
from intradp_ros.schedule.stage_tasks import StageTasks
from intradp_ros.schedule.task_arrays import task_arrays, TaskArrays
from intradp_ros.schedule.task_graph import ComputeTask, TaskGraph, TransferTask
from intradp_ros.systems.fleet.placement_tasks import longest_tails

Numbers = npt.NDArray[np.float64]

#: Bytes of a chunk at least: what DDS carries in one piece.
CHUNK_BYTES = 60_000.0
#: Chunks of the largest transfer: enough to let urgent ones pass, few enough to plan quickly.
CHUNKS = 8
#: Orders that are tried, beside all of those of a few transfers.
TRIES = 120


@dataclass(frozen=True)
class TransferOrder:
    """
    How transfers take the media: `discipline`, and the tasks with their priorities.

    `latencies` are the seconds of each micro-batch, `fair` what they are
    with fair sharing; `bound` is below the latency of any order.
    """

    tasks: StageTasks
    discipline: Discipline
    played: Simulation
    latencies: tuple[float, ...]
    fair: tuple[float, ...]
    bound: float

    @property
    def latency(self) -> float:
        """The longest that a micro-batch takes."""
        return max(self.latencies)


def order_transfers(tasks: StageTasks, topology: Topology, tries: int = TRIES) -> TransferOrder:
    """Return the best order that was found; never one that is worse than fair sharing."""
    arrays = task_arrays(tasks.graph, topology)
    ends, due = list(tasks.ends), arrays.release[list(tasks.arrivals)]

    def worst(priority: Numbers, discipline: Discipline) -> float:
        finish = play_arrays(arrays._replace(priority=priority), discipline).finish[ends] - due
        return float(finish.max() + 1e-3 * finish.mean())

    fair = worst(arrays.priority, FAIR)
    chunks = chunks_of(tasks.graph)
    best, reached = _search(tasks, topology, arrays, lambda p: worst(p, chunks), tries)
    for finer in (Chunks(max(CHUNK_BYTES, chunks.nbytes / parts)) for parts in (2, 4)):
        if (seconds := worst(best, finer)) < reached:
            chunks, reached = finer, seconds
    chosen: Discipline = chunks if reached < fair else FAIR
    ordered = _with_priorities(tasks, best) if chosen is chunks else tasks
    played = simulate(ordered.graph, topology, chosen)
    shared = simulate(tasks.graph, topology, FAIR) if chosen is chunks else played
    return TransferOrder(ordered, chosen, played, ordered.latencies(played),
                         tasks.latencies(shared), lower_bound(tasks, topology))


def chunks_of(graph: TaskGraph) -> Chunks:
    """Return chunks of the size that orders are searched with."""
    largest = max((t.nbytes for t in graph.tasks if isinstance(t, TransferTask)), default=0.0)
    return Chunks(max(CHUNK_BYTES, largest / CHUNKS))


def fair_sharing(tasks: StageTasks, topology: Topology) -> TransferOrder:
    """Return what the media do when nobody orders transfers."""
    played = simulate(tasks.graph, topology, FAIR)
    latencies = tasks.latencies(played)
    return TransferOrder(tasks, Fair(), played, latencies, latencies,
                         lower_bound(tasks, topology))


def _search(tasks: StageTasks, topology: Topology, arrays: TaskArrays,
            worst: Callable[[Numbers], float], tries: int) -> tuple[Numbers, float]:
    moving = np.flatnonzero((arrays.route >= 0) & (arrays.nbytes > 0))
    starts = _rules(tasks, topology, arrays)
    if not len(moving):
        return starts[0], math.inf
    if len(moving) <= 5:
        starts += [_ranked(arrays, np.array(every)) for every in permutations(moving.tolist())]
    best, reached = min(((p, worst(p)) for p in starts), key=lambda found: found[1])
    left = tries - len(starts)
    order = moving[np.argsort(best[moving], kind='stable')]
    improved = True
    while improved and left > 0 and len(moving) > 5:
        improved = False
        for other in islice(_exchanges(order), left):
            left -= 1
            priority = _ranked(arrays, other)
            if (seconds := worst(priority)) < reached - 1e-12:
                best, reached, order, improved = priority, seconds, other, True
                break
    return best, reached


def _rules(tasks: StageTasks, topology: Topology, arrays: TaskArrays) -> list[Numbers]:
    """Return priorities by rule: least time left first, first come, small first, as they are."""
    alone = seconds_alone(tasks.graph, topology)
    tails = longest_tails(tasks.graph, alone)
    batch = arrays.priority
    late = 1e3 * float(alone.sum() + 1)
    return [-tails, batch, batch * late - tails, batch * late + arrays.nbytes / 1e12,
            np.zeros(len(batch)), arrays.nbytes]


def _ranked(arrays: TaskArrays, order: npt.NDArray[np.int64]) -> Numbers:
    priority = np.zeros(len(arrays.priority))
    priority[order] = np.arange(len(order))
    return priority


def _exchanges(order: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
    """Yield orders in which two transfers are exchanged, near ones first."""
    for distance in range(1, len(order)):
        for k in range(len(order) - distance):
            other = order.copy()
            other[k], other[k + distance] = other[k + distance], other[k]
            yield other


def _with_priorities(tasks: StageTasks, priority: Numbers) -> StageTasks:
    changed = tuple(replace(task, priority=float(priority[k]))
                    if isinstance(task, TransferTask) else task
                    for k, task in enumerate(tasks.graph.tasks))
    return replace(tasks, graph=replace(tasks.graph, tasks=changed))


def seconds_alone(graph: TaskGraph, topology: Topology) -> Numbers:
    """
    Return what each task takes at least, if it has its media for itself.

    Where a path names a medium twice, the delay of the first time may pass
    while other chunks are on their way.
    """
    def moving(task: TransferTask) -> float:
        path = topology.path(task.source, task.target)
        return (max((path.count(name) * task.nbytes / topology.medium(name).bytes_per_second
                     for name in path), default=0.0)
                + sum(topology.medium(name).delay for name in set(path)))

    return np.array([task.seconds if isinstance(task, ComputeTask)
                     else moving(task) if isinstance(task, TransferTask) else 0.0
                     for task in graph.tasks])


def lower_bound(tasks: StageTasks, topology: Topology) -> float:
    """
    Return seconds that no order of transfers can be below, for the longest micro-batch.

    The longest way through the tasks of each micro-batch, from when it was
    due; and, where all are due at once, for every medium its bytes at its
    rate, with what must come before the first of them and after the last.
    """
    alone = seconds_alone(tasks.graph, topology)
    heads = _heads(tasks.graph, alone)
    release = tasks.graph.release
    bound = max(float(heads[end] + alone[end]) - release.get(arrival, 0.0)
                for arrival, end in zip(tasks.arrivals, tasks.ends))
    if not any(release.values()):
        tails = longest_tails(tasks.graph, alone)
        for medium in topology.media:
            bound = max(bound, _medium_bound(tasks.graph, topology, medium.name, heads, tails))
    return bound


def _heads(graph: TaskGraph, alone: Numbers) -> Numbers:
    heads = np.zeros(len(graph.tasks))
    last: dict[str, int] = {}
    for index, task in enumerate(graph.tasks):
        before = list(task.after)
        if isinstance(task, ComputeTask):
            before += [last[task.device]] if task.device in last else []
            last[task.device] = index
        heads[index] = max((heads[k] + alone[k] for k in before), default=0.0)
        heads[index] = max(heads[index], graph.release.get(index, 0.0))
    return heads


def _medium_bound(graph: TaskGraph, topology: Topology, name: str, heads: Numbers,
                  tails: Numbers) -> float:
    rate = topology.medium(name).bytes_per_second
    work, first, last = 0.0, math.inf, math.inf
    for index, task in enumerate(graph.tasks):
        if isinstance(task, TransferTask) and task.nbytes > 0:
            times = topology.path(task.source, task.target).count(name)
            if times:
                work += times * task.nbytes / rate
                first, last = min(first, heads[index]), min(last, tails[index])
    return work + first + last if work else 0.0
