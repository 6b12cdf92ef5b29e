# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
LOSS, the paper's local operator scheduling strategy (section 4.2), by differential evolution.

Variables: the robot's share of rows for each candidate stage, and whether
rows are exchanged where the stage ends.  They fix X_i, Y_i, M_i and N_i of
every operator (`assignment.py`); `completion` then evaluates the recurrences
for T_robot and T_server operator by operator over the DAG, for a whole
population at once.  Deviations from the paper, with the reasons, are in
doc/planning.md.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from scipy.optimize import differential_evolution

from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.planning.assignment import assign, Assignment, Rows
from intradp_ros.planning.cost import CostModel, LinkModel
from intradp_ros.planning.partition import Partition, Stage
from intradp_ros.planning.schedule import ROBOT, SERVER, SIDES

Floats = npt.NDArray[np.float64]


def completion(assignment: Assignment, cost: CostModel, link: LinkModel) -> Floats:
    """
    Return T_robot^N in seconds for a population of assignments, shape (population,).

    The recurrences of section 4.2 on a DAG: an operator starts when its
    device is free and the missing rows of its parents have arrived; a
    transfer starts when its rows are computed and the link is free.
    """
    clock = _Recurrence(assignment, cost, link)
    for value in cost.split.graph.inputs:
        clock.transmit(value)
    for op in cost.split.operators:
        for side in SIDES:
            clock.compute(side, op.operator.id)
        for produced in op.operator.outputs:
            if produced is not None:
                clock.transmit(produced)
    return clock.finish()


class _Recurrence:
    """T_robot and T_server while the operators are walked in topological order."""

    def __init__(self, assignment: Assignment, cost: CostModel, link: LinkModel) -> None:
        self.assignment, self.cost = assignment, cost
        size = len(assignment.compute[ROBOT][0].start)
        self.size = size
        self.rate = {ROBOT: link.up, SERVER: link.down}
        self.delay, self.overhead = link.delay, link.overhead
        self.ready = {side: np.zeros(size) for side in SIDES}
        self.link_free = {side: np.zeros(size) for side in SIDES}
        self.arrival: dict[tuple[str, int], Floats] = {}

    def compute(self, side: str, index: int) -> None:
        """Advance T^i: the later of T^{i-1} and the missing rows' arrival, and the compute."""
        rows: Rows = self.assignment.compute[side][index]
        active = rows.some
        if not active.any():
            return
        start = self.ready[side]
        for value in self.cost.split.operators[index].operator.inputs:
            arrival = self.arrival.get((side, value))
            if arrival is not None:
                start = np.maximum(start, arrival)
        seconds = self.cost.seconds[side][index][rows.count]
        self.ready[side] = np.where(active, start + seconds, self.ready[side])

    def transmit(self, value: int) -> None:
        """Queue M_i and N_i; a transfer also waits for the earlier ones."""
        for target, source in ((SERVER, ROBOT), (ROBOT, SERVER)):
            rows = self.assignment.missing[target][value]
            active = rows.some
            if not active.any():
                continue
            split = self.cost.split
            units = active if value in split.folded else rows.count
            nbytes = units * split.nbytes(value, 1)
            start = np.maximum(self.link_free[source], self.ready[source])
            stop = start + self.overhead + nbytes / self.rate[source]
            self.link_free[source] = np.where(active, stop, self.link_free[source])
            self.arrival[target, value] = np.where(active, stop + self.delay, 0.0)

    def finish(self) -> Floats:
        """Return when the robot is done and has all outputs."""
        end = self.ready[ROBOT]
        for value in self.cost.split.graph.output_values:
            arrival = self.arrival.get((ROBOT, value))
            if arrival is not None:
                end = np.maximum(end, arrival)
        return end


def candidate_stops(cost: CostModel, count: int = 6) -> list[int]:
    """
    Return where stages may end: few bytes cross, and the work between is alike.

    The robot's time is cut into `count` equal parts, and in each part the
    position that the fewest bytes cross is taken; places where rows must
    meet (in front of the first global operator) are always among them.
    """
    split = cost.split
    crossing = crossing_bytes(split)
    elapsed = np.cumsum([table[-1] for table in cost.seconds[ROBOT]])
    edges = np.searchsorted(elapsed, elapsed[-1] * np.arange(count + 1) / count)
    edges[-1] = len(elapsed)
    stops = {int(a + np.argmin(crossing[a:b])) + 1 for a, b in zip(edges, edges[1:]) if b > a}
    meeting = next((op.operator.id for op in split.operators if op.rows == 1), 0)
    return sorted((stops | {meeting, len(split.operators)}) - {0})


def crossing_bytes(split: SplitGraph) -> npt.NDArray[np.int64]:
    """
    Return the bytes that later operators read, after each operator, shape (operators,).

    A value counts from its producer to its last reader.
    """
    graph = split.graph
    alive = np.zeros(len(graph.operators) + 1, dtype=np.int64)
    for value in graph.values:
        first = graph.producer.get(value.id, 0)
        last = max(graph.consumers[value.id], default=first)
        alive[first] += value.nbytes
        alive[last] -= value.nbytes
    return np.cumsum(alive)[:-1]


def loss(cost: CostModel, link: LinkModel, *, stops: Sequence[int] | None = None, seed: int = 0,
         generations: int = 60, population: int = 8) -> Partition:
    """
    Solve min T_robot^N by differential evolution and return the partition found.

    Deterministic for a seed.  `population` is scipy's multiplier of the
    count of variables.
    """
    stops = list(stops or candidate_stops(cost))
    count = len(stops)

    def decode(x: Floats) -> tuple[Floats, npt.NDArray[np.bool_]]:
        shares, exchange = x[:count], np.ones((count, x.shape[1]), dtype=bool)
        exchange[:-1] = x[count:] > 0.5
        return shares, exchange

    def objective(x: Floats) -> Floats:
        x = x.reshape(2 * count - 1, -1)
        return completion(assign(cost.split, stops, *decode(x)), cost, link)

    result = differential_evolution(
        objective, [(0.0, 1.0)] * (2 * count - 1), vectorized=True, updating='deferred',
        popsize=population, maxiter=generations, tol=1e-3, rng=np.random.default_rng(seed),
        polish=False)
    shares, exchange = decode(result.x[:, None])
    return partition_of(stops, shares[:, 0], exchange[:, 0])


def partition_of(stops: Sequence[int], shares: Floats, exchange: npt.NDArray[np.bool_],
                 ) -> Partition:
    """Return the partition in which stages without an exchange are merged into the next."""
    return Partition(tuple(Stage(stop, float(round(share, 4)))
                           for stop, share, ends in zip(stops, shares, exchange) if ends))
