# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Judging partitions by the thousand: the kernels of lowering and simulation in one call."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.judge.compiled import kernels
from intradp_ros.systems.sharing.judge.records import as_plain, plain_rows, Record
from intradp_ros.systems.sharing.judge.simulator import result_of, Simulation
from intradp_ros.systems.sharing.judge.tables import (
    clock_for,
    layout_of,
    link_cost_of,
    most_steps,
    most_transfers,
    plain_clock,
    plain_step_costs,
    plain_tables_of,
    plain_work_for,
    step_costs_for,
    tables_of,
    work_for,
)
from intradp_ros.systems.sharing.partition.partition import Encodings, local, Partition


@dataclass(frozen=True, slots=True)
class Judged:
    """A partition with the latency (seconds) that the simulator gives it, and what that costs."""

    latency: float
    partition: Partition
    price: float


class Judge:
    """
    Says what partitions of one graph take on one link, as often as it is asked.

    The same as ``simulate(lower(split, partition), cost, link)``, without the
    objects.  `count` is how often it was asked; what is asked for again is
    remembered.
    """

    def __init__(self, cost: CostModel, link: LinkModel) -> None:
        self.cost, self.link, self.count = cost, link, 0
        self._kernels = kernels()
        compiled = self._kernels.compiled
        self._t = tables_of(cost.split) if compiled else plain_tables_of(cost.split)
        self._link_costs: dict[Encodings, Any] = {}
        self._known: dict[Partition, Simulation] = {}
        self._steps = 0

    def _taken(self, record: Record) -> Record:
        """Return a record as the kernels take it."""
        return record if self._kernels.compiled else as_plain(record)

    def __call__(self, partition: Partition) -> Simulation:
        """
        Judge a partition.

        :raises ValueError: if the stages do not tile the graph.
        """
        if partition not in self._known:
            self._kernels.judge(*self._records(partition))
            self._known[partition] = result_of(
                plain_rows(self._clock.device) if self._kernels.compiled else self._clock.device)
        self.count += 1
        return self._known[partition]

    def recurrence(self, partition: Partition) -> float:
        """Return T_robot^N of the paper's recurrences, in seconds; they know no bands."""
        records = self._records(partition)
        self.count += 1
        return float(self._kernels.complete(*records))

    def judged(self, partition: Partition) -> Judged:
        """Judge a partition and keep it with the result."""
        latency = self(partition).latency
        return Judged(latency, partition, latency)

    def _records(self, partition: Partition) -> tuple[Any, ...]:
        partition.check(self._t.operators, self._t.values)
        self._make_room(most_steps(partition))
        if partition.encodings not in self._link_costs:
            self._link_costs[partition.encodings] = self._taken(
                link_cost_of(self.cost, self.link, partition.encodings))
        return (self._t, self._taken(layout_of(partition)), self._work,
                self._link_costs[partition.encodings], self._costs, self._clock)

    def _make_room(self, steps: int) -> None:
        if steps <= self._steps:
            return
        self._steps = 2 * steps
        transfers = most_transfers(self._t, self._steps)
        if self._kernels.compiled:
            self._costs = step_costs_for(self.cost, transfers)
            self._work = work_for(self._t, self._steps)
            self._clock = clock_for(2 * self._work.entries, transfers)
        else:
            self._costs, self._clock = plain_step_costs(self.cost), plain_clock()
            self._work = plain_work_for(self._t, self._steps)


def judge(cost: CostModel, link: LinkModel, partition: Partition) -> Judged:
    """Judge a single partition."""
    return Judge(cost, link).judged(partition)


def make_ready(cost: CostModel) -> None:
    """Compile the kernels, or load them, so that processes forked from here need not."""
    every, whole = Judge(cost, LinkModel.symmetric(1.0)), local(len(cost.split.operators))
    every(whole)
    every.recurrence(whole)


def best_of(judged: Iterable[Judged]) -> Judged:
    """Return the fastest; the first among equals."""
    return min(judged, key=lambda j: j.latency)
