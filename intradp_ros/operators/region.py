# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Half-open row intervals, and maps from output rows to the input rows they need."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt


class Region(NamedTuple):
    """
    Rows ``[start, stop)`` of a value along its split axis.

    A value without a split axis counts as one row, so that it is either
    absent (an empty region) or there as a whole (``Region(0, 1)``).
    """

    start: int
    stop: int

    @property
    def rows(self) -> int:
        """Count of rows; 0 for an empty region."""
        return max(0, self.stop - self.start)

    def __bool__(self) -> bool:
        """Tell whether there are any rows."""
        return self.stop > self.start

    def covers(self, other: Region) -> bool:
        """Tell whether every row of `other` is in this region."""
        return not other or (self.start <= other.start and other.stop <= self.stop)

    def hull(self, other: Region) -> Region:
        """Return the smallest region that covers both."""
        if not self:
            return other
        if not other:
            return self
        return Region(min(self.start, other.start), max(self.stop, other.stop))

    def intersect(self, other: Region) -> Region:
        """Return the rows that are in both (an empty region where none are)."""
        start = max(self.start, other.start)
        return Region(start, max(start, min(self.stop, other.stop)))

    def minus(self, other: Region) -> tuple[Region, ...]:
        """Return the rows that are not in `other`, as at most two regions in order."""
        if not self:
            return ()
        cut = self.intersect(other)
        if not cut:
            return (self,)
        parts = (Region(self.start, cut.start), Region(cut.stop, self.stop))
        return tuple(part for part in parts if part)


EMPTY = Region(0, 0)


class RowMap:
    """
    Which rows of one input an operator needs for rows of its output.

    Row `a` of the output needs input rows ``[first[a], last[a])``.  Both
    tables are made monotone, so that the need of a region is read off its
    two ends: ``[first[start], last[stop - 1])``.  For an operator whose true
    map is not monotone (reflecting padding, say) this is a superset.
    """

    __slots__ = ('first', 'last', '_first', '_last')

    def __init__(self, first: npt.ArrayLike, last: npt.ArrayLike) -> None:
        starts = np.asarray(first, dtype=np.int64)
        stops = np.asarray(last, dtype=np.int64)
        self.first = np.minimum.accumulate(starts[::-1])[::-1].copy()
        self.last = np.maximum.accumulate(stops)
        self._first = self.first.tolist()
        self._last = self.last.tolist()

    @classmethod
    def of(cls, rows: int, need: Callable[[npt.NDArray[np.int64]], tuple[Any, Any]]) -> RowMap:
        """Build from a vectorised function of output row numbers to ``(first, last)``."""
        return cls(*need(np.arange(rows, dtype=np.int64)))

    @classmethod
    def identity(cls, rows: int) -> RowMap:
        """Row `a` needs row `a`."""
        return cls(np.arange(rows), np.arange(rows) + 1)

    @classmethod
    def whole(cls, rows: int, input_rows: int) -> RowMap:
        """Every row needs the whole input."""
        return cls(np.zeros(rows), np.full(rows, input_rows))

    def __call__(self, region: Region) -> Region:
        """Return the input rows that `region` of the output needs."""
        if not region:
            return EMPTY
        start, stop = self._first[region.start], self._last[region.stop - 1]
        return Region(start, stop) if stop > start else EMPTY

    def supply(self, start: int, available: int, stop: int) -> int:
        """Return how far output rows from `start` go while input rows < `available` are there."""
        return min(stop, max(start, int(np.searchsorted(self.last, available, side='right'))))
