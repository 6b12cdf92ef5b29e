# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which rows of which operator each side computes, for many partitions at once.

One backward pass over the graph turns stages and shares into the sets X_i
(robot) and Y_i (server) of the paper's section 4.2, and the rows that must
cross the link into M_i and N_i.  Everything is an array over a population of
partitions, because differential evolution asks for hundreds at a time; a
single partition is a population of one.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.operators.region import EMPTY, Region, RowMap
from intradp_ros.planning.partition import Partition
from intradp_ros.planning.schedule import ROBOT, SERVER, SIDES

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
OTHER = {ROBOT: SERVER, SERVER: ROBOT}


@dataclass(frozen=True, slots=True)
class Rows:
    """Regions of a population: ``[start, stop)`` each; empty where ``stop <= start``."""

    start: Ints
    stop: Ints

    @classmethod
    def empty(cls, size: int, rows: int) -> Rows:
        """Return empty regions, written so that min and max give the hull."""
        return cls(np.full(size, rows), np.zeros(size, dtype=np.int64))

    @property
    def some(self) -> Bools:
        """Where there are any rows."""
        some: Bools = self.stop > self.start
        return some

    @property
    def count(self) -> Ints:
        """Count of rows."""
        count: Ints = np.maximum(self.stop - self.start, 0)
        return count

    def hull(self, other: Rows) -> Rows:
        """Return the smallest regions that cover both."""
        return Rows(np.minimum(self.start, other.start), np.maximum(self.stop, other.stop))

    def where(self, mask: Bools, rows: int) -> Rows:
        """Return the regions where `mask` holds, empty elsewhere."""
        return Rows(np.where(mask, self.start, rows), np.where(mask, self.stop, 0))

    def region(self, index: int) -> Region:
        """Return the region of one member of the population."""
        start, stop = int(self.start[index]), int(self.stop[index])
        return Region(start, stop) if stop > start else EMPTY


def needs(rowmap: RowMap, output: Rows, input_rows: int) -> Rows:
    """Return the input rows needed for output rows (the paper's *parent*)."""
    some = output.some
    start, stop = rowmap.hulls(np.where(some, output.start, 0), np.where(some, output.stop, 1))
    return Rows(start, stop).where(some & (stop > start), input_rows)


@dataclass(frozen=True)
class Assignment:
    """
    Rows computed and rows missing, for a population of partitions.

    `compute[side][operator]` are X_i and Y_i; `crossing[side][value]` are
    the rows of a value that the side reads from an earlier stage;
    `missing[side][value]` those of them it has to receive (M_i for the
    robot, N_i for the server).  `stage[operator]` is the stage index.
    """

    split: SplitGraph
    stage: Ints
    compute: dict[str, list[Rows]]
    crossing: dict[str, list[Rows]]
    missing: dict[str, list[Rows]]


class _Demand:
    """Rows of every value that each side reads, gathered backwards."""

    def __init__(self, split: SplitGraph, size: int) -> None:
        self.local, self.crossing = (
            {side: [Rows.empty(size, rows) for rows in split.rows] for side in SIDES}
            for _ in range(2))

    def add(self, side: str, value: int, rows: Rows, same: Bools | bool, limit: int) -> None:
        """Add rows that a consumer of the same (or a later) stage reads."""
        if same is not False:
            inside = rows if same is True else rows.where(same, limit)
            self.local[side][value] = self.local[side][value].hull(inside)
        if same is not True:
            later = rows if same is False else rows.where(~same, limit)
            self.crossing[side][value] = self.crossing[side][value].hull(later)


def assign(split: SplitGraph, stops: Sequence[int], shares: npt.NDArray[np.float64],
           exchange: Bools) -> Assignment:
    """
    Derive who computes what.

    Parameters
    ----------
    split :
        The graph with its row maps.
    stops :
        Where candidate stages end (operator index, exclusive), K ascending.
    shares :
        The robot's share of rows by stage, shape (K, population).
    exchange :
        Whether rows are exchanged at the end of a stage (False merges it
        with the next one), shape (K, population); the last row is ignored.

    Sources: paper section 4.1 (dependencies), 4.2 (X, Y, M, N).

    """
    size = shares.shape[1]
    group = np.vstack([np.zeros((1, size), np.int64), np.cumsum(exchange[:-1], 0)])
    shares = _share_of_group(shares, exchange)
    stage = np.searchsorted(np.asarray(stops), np.arange(len(split.operators)), side='right')
    demand = _Demand(split, size)
    for value in split.graph.output_values:
        whole = Rows(np.zeros(size, np.int64), np.full(size, split.rows[value]))
        demand.add(ROBOT, value, whole, False, split.rows[value])
    compute: dict[str, list[Rows]] = {side: [None] * len(split.operators)  # type: ignore
                                      for side in SIDES}
    for op in reversed(split.operators):
        own = _owned(op.rows, shares[stage[op.operator.id]])
        for side in SIDES:
            rows = _computed(split, demand, op.operator.outputs, side, own[side], op.rows)
            compute[side][op.operator.id] = rows
        for side in SIDES:
            _demand_inputs(split, demand, op.operator.id, side, compute[side], stage, group)
    return Assignment(split, stage, compute, demand.crossing, _missing(split, demand, compute))


def _share_of_group(shares: npt.NDArray[np.float64], exchange: Bools) -> npt.NDArray[np.float64]:
    """Give merged stages the share of the last of them."""
    merged = shares.copy()
    for k in range(len(shares) - 2, -1, -1):
        merged[k] = np.where(exchange[k], shares[k], merged[k + 1])
    return merged


def _owned(rows: int, share: npt.NDArray[np.float64]) -> dict[str, Rows]:
    border = np.rint(share * rows).astype(np.int64)
    return {ROBOT: Rows(np.zeros_like(border), border),
            SERVER: Rows(border, np.full_like(border, rows))}


def _computed(split: SplitGraph, demand: _Demand, outputs: Sequence[int | None], side: str,
              own: Rows, rows: int) -> Rows:
    """Rows a side computes: what its stage needs, and what it owns of what leaves the stage."""
    result = Rows.empty(len(own.start), rows)
    for value in outputs:
        if value is None:
            continue
        other = OTHER[side]
        there = demand.local[other][value]
        asked = demand.crossing[other][value]
        unmet = asked.where((asked.start < there.start) | (asked.stop > there.stop), rows)
        leaving = demand.crossing[side][value].hull(unmet)
        start, stop = np.maximum(own.start, leaving.start), np.minimum(own.stop, leaving.stop)
        kept = Rows(start, stop).where(stop > start, rows)
        result = result.hull(demand.local[side][value]).hull(kept)
    return result


def _demand_inputs(split: SplitGraph, demand: _Demand, index: int, side: str,
                   compute: list[Rows], stage: Ints, group: Ints) -> None:
    op = split.operators[index]
    for value, rowmap in zip(op.operator.inputs, op.maps):
        rows = needs(rowmap, compute[index], split.rows[value])
        producer = split.graph.producer.get(value)
        same: Bools | bool = False
        if producer is not None:
            a, b = stage[producer], stage[index]
            same = True if a == b else group[a] == group[b]
        demand.add(side, value, rows, same, split.rows[value])


def _missing(split: SplitGraph, demand: _Demand, compute: dict[str, list[Rows]],
             ) -> dict[str, list[Rows]]:
    """
    Rows a side reads from an earlier stage and did not compute (M_i and N_i).

    What a side computed lies at one end of the value or covers what it
    reads, so the rest is one region.
    """
    result: dict[str, list[Rows]] = {side: [] for side in SIDES}
    for side in SIDES:
        for value, rows in enumerate(split.rows):
            asked = demand.crossing[side][value]
            producer = split.graph.producer.get(value)
            if producer is not None:
                asked = _minus(asked, compute[side][producer], rows)
            elif side == ROBOT:  # it has the inputs
                asked = Rows.empty(len(asked.start), rows)
            result[side].append(asked)
    return result


def _minus(asked: Rows, there: Rows, rows: int) -> Rows:
    """Return the hull of what is asked and not there."""
    overlap = there.some & (there.start < asked.stop) & (asked.start < there.stop)
    head = overlap & (there.start <= asked.start)
    tail = overlap & (there.stop >= asked.stop)
    start = np.where(head, np.maximum(asked.start, there.stop), asked.start)
    stop = np.where(tail & ~head, np.minimum(asked.stop, there.start), asked.stop)
    return Rows(start, stop).where(asked.some & (stop > start), rows)


def assign_one(split: SplitGraph, partition: Partition) -> Assignment:
    """Derive who computes what for a single partition (population of one)."""
    partition.check(len(split.operators))
    stages = partition.stages
    shares = np.array([[stage.share] for stage in stages])
    return assign(split, [stage.stop for stage in stages], shares,
                  np.ones((len(stages), 1), dtype=bool))
