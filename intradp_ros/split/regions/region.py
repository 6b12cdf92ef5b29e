# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Half-open row intervals, and maps from output rows to the input rows they need."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]


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
        """Return whether there are any rows."""
        return self.stop > self.start

    def covers(self, other: Region) -> bool:
        """Return whether every row of `other` is in this region."""
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


EMPTY = Region(0, 0)


class RowMap:
    """
    Which rows of one input an operator needs for rows of its output.

    Row `a` of the output needs input rows ``[first[a], last[a])``, none where
    that is empty.  A region needs the hull of what its rows need; where both
    tables ascend, as they mostly do, that is read off the region's two ends.
    """

    __slots__ = ('first', 'last', '_ascending', '_ends')

    def __init__(self, first: npt.ArrayLike, last: npt.ArrayLike) -> None:
        self.first: Ints = np.asarray(first, dtype=np.int64)
        self.last: Ints = np.asarray(last, dtype=np.int64)
        self._ascending = _ascends(self.first) and _ascends(self.last)
        self._ends: tuple[list[int], list[int]] | None = None  # made when they are asked for

    @classmethod
    def of(cls, rows: int, need: Callable[[Ints], tuple[Any, Any]]) -> RowMap:
        """Build from a vectorised function of output row numbers to ``(first, last)``."""
        return cls(*need(np.arange(rows, dtype=np.int64)))

    @classmethod
    def identity(cls, rows: int) -> RowMap:
        """Row `a` needs row `a`."""
        return cls(np.arange(rows), np.arange(rows) + 1)

    @classmethod
    def whole(cls, rows: int, input_rows: int) -> RowMap:
        """Every row needs the whole input."""
        return cls(np.zeros(rows, dtype=np.int64), np.full(rows, input_rows, dtype=np.int64))

    @classmethod
    def copies(cls, source: Ints, input_rows: int) -> RowMap:
        """Row `a` is a copy of row ``source[a]``, or of none where the input has no such row."""
        real = (source >= 0) & (source < input_rows)
        return cls(np.where(real, source, input_rows), np.where(real, source + 1, 0))

    def __call__(self, region: Region) -> Region:
        """Return the input rows that `region` of the output needs."""
        if not region:
            return EMPTY
        if self._ascending:
            self._ends = self._ends or (self.first.tolist(), self.last.tolist())
            start, stop = self._ends[0][region.start], self._ends[1][region.stop - 1]
        else:
            rows = slice(*region)
            start, stop = int(self.first[rows].min()), int(self.last[rows].max())
        return Region(start, stop) if stop > start else EMPTY


def _ascends(rows: Ints) -> bool:
    return bool((rows[1:] >= rows[:-1]).all())
