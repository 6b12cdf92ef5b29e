# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Phase 2: in which order the transfers of a plan take the media that they share (Dora, 4.2).

The paper's Eq. 6 (rates over time) cannot be set without the access point.
What can be done by the senders is an order of chunks: each medium carries
the chunk of the transfer that comes first.  It must hold for frames without
end, so it is a *lead* for each transfer of a frame: that of frame k comes at
k - lead.  Leads are searched for: by the longest way that is left, by size,
within a frame or across frames; the best of them are improved by exchanging
transfers.  Fair sharing is tried, too, and is taken where nothing beats it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice, permutations, product
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.cluster.topology import Topology
from intradp_ros.planning.placement_tasks import longest_tails
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

Numbers = npt.NDArray[np.float64]

#: Bytes of a chunk at least: what DDS carries in one piece.
CHUNK_BYTES = 60_000.0
#: Chunks of the largest transfer: enough to let urgent ones pass, few enough to plan quickly.
CHUNKS = 8
#: Orders that are tried; among them all of five transfers or fewer.
TRIES = 120

#: A transfer of every frame: the value's name, source, target.
Kind = tuple[str, str, str]


@dataclass(frozen=True)
class TransferOrder:
    """
    How transfers take the media: `discipline`, and the tasks with their priorities.

    `leads` say by how many micro-batches each kind of transfer is ahead of
    its turn; there are none with fair sharing.  `latencies` are the seconds
    of each micro-batch, `fair` what they are with fair sharing; `bound` is
    below the latency of any order.
    """

    tasks: StageTasks
    discipline: Discipline
    played: Simulation
    latencies: tuple[float, ...]
    fair: tuple[float, ...]
    bound: float
    leads: Mapping[Kind, float] = field(default_factory=dict)

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
    kinds = _kinds(tasks.graph, arrays)
    leads, reached = _search(tasks, topology, arrays, kinds,
                             lambda leads: worst(kinds.priority(leads), chunks), tries)
    best = kinds.priority(leads)
    for finer in (Chunks(max(CHUNK_BYTES, chunks.nbytes / parts)) for parts in (2, 4)):
        if (seconds := worst(best, finer)) < reached:
            chunks, reached = finer, seconds
    chosen: Discipline = chunks if reached < fair else FAIR
    ordered = _with_priorities(tasks, best) if chosen is chunks else tasks
    played = simulate(ordered.graph, topology, chosen)
    shared = simulate(tasks.graph, topology, FAIR) if chosen is chunks else played
    return TransferOrder(ordered, chosen, played, ordered.latencies(played),
                         tasks.latencies(shared), lower_bound(tasks, topology),
                         dict(zip(kinds.names, leads.tolist())) if chosen is chunks else {})


@dataclass(frozen=True)
class _Kinds:
    """The kinds of transfers; by task its kind (-1: none) and the micro-batch it is of."""

    names: tuple[Kind, ...]
    kind: npt.NDArray[np.int64]
    batch: Numbers

    def priority(self, leads: Numbers) -> Numbers:
        """Return the priority of each task."""
        return self.batch - np.where(self.kind >= 0, np.append(leads, 0.0)[self.kind], 0.0)

    def mean(self, figures: Numbers) -> Numbers:
        """Return the mean of the tasks' figures by kind."""
        return np.array([figures[self.kind == k].mean() for k in range(len(self.names))])

    @property
    def batches(self) -> int:
        """How many micro-batches there are."""
        return int(self.batch.max(initial=0.0)) + 1


def _kinds(graph: TaskGraph, arrays: TaskArrays) -> _Kinds:
    moving = (arrays.route >= 0) & (arrays.nbytes > 0)
    numbers: dict[Kind, int] = {}
    kind = np.full(len(graph.tasks), -1)
    for index in np.flatnonzero(moving).tolist():
        task = graph.tasks[index]
        assert isinstance(task, TransferTask)
        kind[index] = numbers.setdefault((task.name, task.source, task.target), len(numbers))
    return _Kinds(tuple(numbers), kind, arrays.priority)


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


def _search(tasks: StageTasks, topology: Topology, arrays: TaskArrays, kinds: _Kinds,
            worst: Callable[[Numbers], float], tries: int) -> tuple[Numbers, float]:
    """Return the best leads that were found, and what they reach."""
    count = len(kinds.names)
    if not count:
        return np.zeros(0), math.inf
    steps = sorted({1 / (count + 1), 1.0, float(kinds.batches)})
    starts = [(np.zeros(count), steps[0])]
    starts += [(_leads(order, step), step)
               for order, step in product(_rules(tasks, topology, arrays, kinds), steps)]
    every = steps if count <= 4 else steps[:1]
    if count <= 5 and math.factorial(count) * len(every) <= tries:
        starts += [(_leads(np.array(order), step), step)
                   for order in permutations(range(count)) for step in every]
    best, step, reached = min(((leads, step, worst(leads)) for leads, step in starts),
                              key=lambda found: found[2])
    left = tries - len(starts)
    order = np.argsort(-best, kind='stable')
    improved = True
    while improved and left > 0:
        improved = False
        for other in islice(_exchanges(order), left):
            left -= 1
            leads = _leads(other, step)
            if (seconds := worst(leads)) < reached - 1e-12:
                best, reached, order, improved = leads, seconds, other, True
                break
    return best, reached


def _rules(tasks: StageTasks, topology: Topology, arrays: TaskArrays, kinds: _Kinds,
           ) -> list[npt.NDArray[np.int64]]:
    """Return orders of the kinds by rule: most time left first, small first, large first."""
    tails = kinds.mean(longest_tails(tasks.graph, seconds_alone(tasks.graph, topology)))
    nbytes = kinds.mean(arrays.nbytes)
    return [np.argsort(figures, kind='stable') for figures in (-tails, nbytes, tails, -nbytes)]


def _leads(order: npt.NDArray[np.int64], step: float) -> Numbers:
    """Return leads by which kinds come in an order, each so much ahead of the next."""
    leads = np.zeros(len(order))
    leads[order] = step * np.arange(len(order) - 1, -1, -1)
    return leads


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
