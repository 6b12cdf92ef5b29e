# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which rows are needed at all, and how few input rows any so many output rows can need."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import RowMap

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
_EXACT = 1e-9


@dataclass(frozen=True, slots=True)
class Line:
    """A straight line: whichever `k` output rows, they need >= slope * k + offset input rows."""

    slope: float
    offset: float


def rows_read(rowmap: RowMap, rows: Bools, input_rows: int) -> Bools:
    """Return which rows of an input the given output rows need, each by itself."""
    some = rows & (rowmap.last > rowmap.first)
    count = np.zeros(input_rows + 1, dtype=np.int64)
    np.add.at(count, rowmap.first[some], 1)
    np.add.at(count, rowmap.last[some], -1)
    read: Bools = np.cumsum(count[:-1]) > 0
    return read


def operator_rows(split: SplitGraph, needed: tuple[Bools, ...], index: int) -> Bools:
    """Return which rows of an operator's outputs are needed."""
    rows = np.zeros(split.operators[index].rows, dtype=bool)
    for value in split.operators[index].operator.outputs:
        if value is not None:
            rows |= needed[value]
    return rows


def needed_rows(split: SplitGraph) -> tuple[Bools, ...]:
    """Return for every value which of its rows the graph's outputs depend on."""
    needed = tuple(np.zeros(rows, dtype=bool) for rows in split.rows)
    for value in split.graph.output_values:
        needed[value][:] = True
    for op in reversed(split.operators):
        rows = operator_rows(split, needed, op.operator.id)
        for value, rowmap in zip(op.operator.inputs, op.maps):
            needed[value][:] |= rows_read(rowmap, rows, split.rows[value])
    return needed


def lines_under(rowmap: RowMap) -> tuple[Line, ...]:
    """
    Return lines that hold for every choice of output rows, in one piece or many.

    One starts at (about) no rows and rises by the fewest input rows that an
    interval of output rows needs for each; the other ends at all rows and
    falls by the most that an interval alone needs for each.
    """
    some = rowmap.last > rowmap.first
    first, last = rowmap.first[some], rowmap.last[some]
    if not len(first):
        return ()
    rows, empty = len(some), len(some) - len(first)
    count = np.zeros(int(last.max()) + 1, dtype=np.int64)
    np.add.at(count, first, 1)
    np.add.at(count, last, -1)
    readers = np.cumsum(count)
    total = int((readers > 0).sum())
    if (np.diff(first) >= 0).all() and (np.diff(last) >= 0).all():
        least, most = _least_ratio(*_read_by(first, last)), _most_each(first, last, readers > 0)
    else:
        least = float((last - first).min() / readers.max())
        most = float((last - first).max())
    found = (Line(least, -least * empty), Line(most, total - most * rows))
    return found[:1] if found[0] == found[1] else found


def _most_each(first: Ints, last: Ints, read: Bools) -> float:
    """Return the greatest ratio of input rows that no other row needs, over all intervals."""
    before = np.concatenate(([0], np.cumsum(read)))
    ends = np.concatenate((before[first[1:]], before[-1:]))
    starts = np.concatenate((before[:1], before[last[:-1]]))
    return -_least_ratio(-ends, -starts)


def _least_ratio(ends: Ints, starts: Ints) -> float:
    """Minimise ``(ends[j] - starts[a]) / (j + 1 - a)`` over a <= j (Dinkelbach's method)."""
    index = np.arange(len(ends))
    ratio = float(ends[-1] - starts[0]) / len(ends)
    for _ in range(60):
        gain = starts - ratio * index
        best = np.maximum.accumulate(gain)
        j = int(np.argmin(ends - ratio * (index + 1) - best))
        a = int(np.argmax(gain[:j + 1]))
        found = float(ends[j] - starts[a]) / (j + 1 - a)
        if found >= ratio - 1e-12:
            break
        ratio = found
    return ratio


def fewest_reads(rowmap: RowMap) -> Ints:
    """
    Return by count of output rows how few input rows any so many of them need, or fewer.

    Rows whose windows touch can be completed to an interval of output rows
    without another input row, so no choice needs fewer than some intervals
    of that many rows do, each by itself.  Where windows do not ascend, the
    straight lines say how few.
    """
    some = rowmap.last > rowmap.first
    first, last = rowmap.first[some], rowmap.last[some]
    if not len(first) or (np.diff(first) < 0).any() or (np.diff(last) < 0).any():
        counts = np.arange(len(some) + 1)
        under = [line.slope * counts + line.offset for line in lines_under(rowmap)]
        few: Ints = np.ceil(np.max([0.0 * counts, *under], axis=0) - _EXACT).astype(np.int64)
        return few
    return np.concatenate((np.zeros(len(some) - len(first), dtype=np.int64),
                           _fewest_of_windows(first, last)))


def _fewest_of_windows(first: Ints, last: Ints) -> Ints:
    """Return how few rows so many ascending windows read; in linear time where that is plain."""
    if (first[1:] >= last[:-1]).all():  # nothing is read twice: the narrowest windows
        return np.concatenate(([0], np.cumsum(np.sort(last - first))))
    if (last == first + 1).all():  # one row each: the rows that most windows read
        readers = np.sort(np.bincount(first))[::-1]
        return np.searchsorted(np.cumsum(readers), np.arange(len(first) + 1)) + np.minimum(
            np.arange(len(first) + 1), 1)
    ends, starts = _read_by(first, last)
    least = np.array([0, *(int((ends[k:] - starts[:len(starts) - k]).min())
                           for k in range(len(first)))])
    for count in range(2, len(least)):
        least[count] = (least[:count + 1] + least[count::-1]).min()
    return least


def _read_by(first: Ints, last: Ints) -> tuple[Ints, Ints]:
    """Return `ends` and `starts`: rows a to b of ascending windows read ends[b] - starts[a]."""
    fresh = last - np.maximum(first, np.concatenate(([-1], last[:-1])))
    ends = np.cumsum(np.maximum(fresh, 0))
    return ends, ends - (last - first)


def lines_between(fewest: Ints, low: int, high: int) -> tuple[Line, ...]:
    """
    Return lines under a table of fewest rows, for counts from `low` to `high`.

    One starts at `low`, the other ends at `high`.
    """
    if low >= high:
        return (Line(0.0, float(fewest[high])),)
    part, span = fewest[low:high + 1], np.arange(1, high - low + 1)
    rise = float(((part[1:] - part[0]) / span).min())
    fall = float(((part[-1] - part[:-1]) / span[::-1]).max())
    found = (Line(rise, part[0] - rise * low), Line(fall, part[-1] - fall * high))
    return found[:1] if rise == fall else found
