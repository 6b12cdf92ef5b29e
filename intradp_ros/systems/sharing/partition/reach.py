# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What lower bounds know of a graph, and how many rows a side has time for at all."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.split.regions.region import RowMap
from intradp_ros.systems.sharing.judge.rows_needed import (
    fewest_reads,
    Ints,
    Line,
    lines_between,
    needed_rows,
    operator_rows,
)
from intradp_ros.systems.sharing.partition.barriers import find_barriers

Floats = npt.NDArray[np.float64]
#: By side, how many rows of each operator it computes at most.
Most = Mapping[str, Ints]
# How much of a price is the link's time, the rest being the device's.
_LINK = np.array([0.0, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 1.0])[:, None]
_ROUNDING = 1e-9
# Of values of more rows the price of all together is taken to be that of the dearest.
_JOINED = 128
# Counts of rows that are distinguished: more rows are taken in blocks, each at its least price.
_TOLD_APART = 2048


def row_prices(table: Floats) -> Floats:
    """Return by count of rows the least price of a row, in bands of up to so many rows."""
    prices = np.minimum.accumulate(table[1:] / np.arange(1, len(table)))
    return np.concatenate(([0.0], prices))


class Facts:
    """
    What neither link nor time changes: needed rows, bytes, prices, windows, barriers.

    `needed` are the rows of values that the outputs depend on, `wanted` how
    many rows of each operator those are, of `heights`, and `fraction` which
    part; `nbytes` are of whole values, in their best encodings.  `alone` are
    the seconds of the robot by itself, at the least price of every row.
    """

    def __init__(self, cost: CostModel) -> None:
        self.split = cost.split
        self.needed = needed_rows(self.split)
        operators = range(len(self.split.operators))
        self.heights: Ints = np.array([op.rows for op in self.split.operators], dtype=np.int64)
        self.wanted: Ints = np.array([operator_rows(self.split, self.needed, i).sum()
                                      for i in operators], dtype=np.int64)
        self.fraction = self.wanted / np.maximum(self.heights, 1)
        self.nbytes = np.array([float(self.split.nbytes(v, rows))
                                for v, rows in enumerate(self.split.rows)])
        ratios = np.ones(len(self.nbytes))
        for (value, _), wire in cost.wire.items():
            ratios[value] = min(ratios[value], wire.ratio)
        self.nbytes *= ratios
        self.prices = {side: [row_prices(table) for table in cost.seconds[side]]
                       for side in SIDES}
        every = dict.fromkeys(SIDES, self.heights)
        self.barriers = find_barriers(self.split, self.needed,
                                      self.seconds(ROBOT, every) + self.seconds(SERVER, every))
        self.alone = float(self.seconds(ROBOT, every) @ self.fraction)
        self._fewest: dict[tuple[bytes, bytes], Ints] = {}
        self.fewest = [tuple(map(self._fewest_reads, op.maps)) for op in self.split.operators]
        self._lines: dict[tuple[int, int, int], tuple[Line, ...]] = {}

    def seconds(self, side: str, most: Most) -> Floats:
        """Return seconds of all rows of each operator, at the least price of a row."""
        return np.array([prices[rows] * (len(prices) - 1)
                         for prices, rows in zip(self.prices[side], most[side])])

    def lines(self, index: int, position: int, low: int, high: int) -> tuple[Line, ...]:
        """Return lines under the rows of an input that so many rows of an operator read."""
        fewest = self.fewest[index][position]
        key = id(fewest), low, high
        if key not in self._lines:
            self._lines[key] = lines_between(fewest, low, high)
        return self._lines[key]

    def _fewest_reads(self, rowmap: RowMap) -> Ints:
        key = rowmap.first.tobytes(), rowmap.last.tobytes()
        if key not in self._fewest:
            self._fewest[key] = fewest_reads(rowmap)
        return self._fewest[key]


def most_rows(facts: Facts, side: str, link: LinkModel, within: float) -> Ints:
    """
    Return for each operator how many rows a side computes at most, in a schedule of some seconds.

    For several prices of the device's and of the link's time: the least that
    any so many rows of a value cost a side that computes some of them and
    receives the others, from the inputs on.  What is dearer than the time
    that there is, is out of reach.
    """
    split, hops = facts.split, 2 * (link.overhead + link.delay)
    rate = link.down if side == ROBOT else link.up
    crossing = max(0.0, within - hops)
    budget = (1 - _LINK) * (within if side == ROBOT else crossing) + _LINK * crossing
    reach = _Reach(_LINK * facts.nbytes / (rate * np.maximum(split.rows, 1)), split.rows,
                   split.graph.producer)
    for value in split.graph.inputs:
        reach.given(value, free=side == ROBOT)
    found = np.zeros(len(split.operators), dtype=np.int64)
    for op in split.operators:
        index, blocks = op.operator.id, _blocks(op.rows)
        alone = facts.prices[side][index] * np.arange(op.rows + 1)
        done = reach.reads(op.operator.inputs, facts.fewest[index], op.rows)
        done += (1 - _LINK) * np.minimum.reduceat(alone, blocks)
        in_reach = (done <= budget * (1 + _ROUNDING)).all(axis=0)
        found[index] = _block_ends(blocks, op.rows)[in_reach].max(initial=0)
        for output in op.operator.outputs:
            if output is not None:
                reach.made(output, done)
    return found


def _blocks(rows: int) -> Ints:
    """Return the first counts of the blocks into which counts up to all rows are divided."""
    return np.arange(0, rows + 1, _block_size(rows))


def _block_size(rows: int) -> int:
    return rows // _TOLD_APART + 1


def _block_ends(blocks: Ints, rows: int) -> Ints:
    """Return the last counts of the blocks."""
    return np.append(blocks[1:] - 1, rows)


class _Reach:
    """
    The least prices of rows of values, by how much of a price is the link's time.

    `computed` are prices of computing at least so many rows of a value, with
    all that they are made from; `had` those of having them, any of them
    received at `priced` each; both by blocks of counts.  `order` are the
    operators that make values.
    """

    def __init__(self, priced: Floats, rows: Sequence[int], order: Mapping[int, int]) -> None:
        self.priced, self.rows, self.order = priced, rows, order
        self.computed: dict[int, Floats] = {}
        self.had: dict[int, Floats] = {}
        self.together: dict[tuple[int, ...], Floats] = {}

    def given(self, value: int, free: bool) -> None:
        """Add an input of the graph."""
        price = self.priced[:, value, None] * (0.0 if free else 1.0)
        self.had[value] = price * _blocks(self.rows[value])

    def made(self, value: int, done: Floats) -> None:
        """Add what an operator makes for a price."""
        blocks, priced = _blocks(self.rows[value]), self.priced[:, value, None]
        ends = _block_ends(blocks, self.rows[value])
        spared = np.minimum.accumulate(done - priced * ends, axis=1)
        had = done.copy()
        had[:, 1:] = np.minimum(done[:, 1:], spared[:, :-1] + priced * blocks[1:])
        self.computed[value], self.had[value] = _at_least(done), _at_least(had)

    def reads(self, values: Sequence[int], fewest: Sequence[Ints], rows: int) -> Floats:
        """Return the least price of what any so many rows of an operator read."""
        blocks = _blocks(rows)
        price = np.zeros((len(_LINK), len(blocks)))
        for value, least in zip(values, fewest):
            if value in self.had:
                block = least[blocks] // _block_size(self.rows[value])
                price = np.maximum(price, self.had[value][:, block])
        alike = {v for v, least in zip(values, fewest) if v in self.had and least is fewest[0]}
        heights = {self.rows[v] for v in alike}
        if len(alike) > 1 and len(heights) == 1 and max(heights) < min(_JOINED, _TOLD_APART):
            price = np.maximum(price, self._join(self._in_order(alike))[:, fewest[0][blocks]])
        return price

    def _in_order(self, values: Iterable[int]) -> tuple[int, ...]:
        return tuple(sorted(values, key=lambda value: (self.order.get(value, -1), value)))

    def _join(self, values: tuple[int, ...]) -> Floats:
        """
        Return the least price of at least so many rows of each of several values.

        Rows received of the last one are needed for none of the others, so
        their price comes on top.
        """
        if len(values) == 1:
            return self.had[values[0]]
        if values not in self.together:
            rest, last = self._join(values[:-1]), values[-1]
            if last not in self.computed:  # several inputs of the graph
                return np.maximum(rest, self.had[last])
            counts = np.arange(rest.shape[1])
            received = np.maximum(counts[:, None] - counts, 0)  # rows had by rows computed
            prices = (self.priced[:, last, None, None] * received
                      + np.maximum(rest[:, :, None], self.computed[last][:, None, :]))
            self.together[values] = _at_least(prices.min(axis=2))
        return self.together[values]


def _at_least(prices: Floats) -> Floats:
    """Return the least price of so many or more."""
    return np.minimum.accumulate(prices[:, ::-1], axis=1)[:, ::-1]
