# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Windows that slide along the split dimension: convolution and pooling arithmetic."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from intradp_ros.split.regions.region import Region, RowMap


class Alike(NamedTuple):
    """Rows to pad on each side, output rows to skip then, and those that are made in all."""

    padding: int
    skipped: int
    made: int


@dataclass(frozen=True)
class Window:
    """
    A sliding window along one dimension.

    Output row `a` reads input rows ``a * stride - before + k * dilation`` for
    k in 0..size-1; those outside ``[0, input_rows)`` are padding.
    """

    size: int
    stride: int
    before: int
    dilation: int
    input_rows: int
    output_rows: int

    @property
    def reach(self) -> int:
        """Rows from the window's first to its last, both counted."""
        return self.dilation * (self.size - 1) + 1

    def span(self, region: Region) -> Region:
        """Return the rows under the windows of a region, padding included (may be negative)."""
        start = region.start * self.stride - self.before
        return Region(start, (region.stop - 1) * self.stride - self.before + self.reach)

    @cached_property
    def row_map(self) -> RowMap:
        """
        Rows that a region needs, from the first to the last real row under its windows.

        A widely dilated window may have most of its rows in the padding, and
        then needs less than what lies between its ends.
        """
        starts = np.arange(self.output_rows) * self.stride - self.before
        # In closed form: a graph that arrived may have windows of any size.
        lowest = np.maximum(0, -(starts // self.dilation))
        highest = np.minimum(self.size - 1, (self.input_rows - 1 - starts) // self.dilation)
        real = lowest <= highest
        first = np.where(real, starts + self.dilation * lowest, self.input_rows)
        last = np.where(real, starts + self.dilation * highest + 1, 0)
        return RowMap(first, last)

    def is_all(self, region: Region) -> bool:
        """Return whether a region is the whole output and needs the whole input."""
        return region.rows == self.output_rows and self.row_map(region).rows == self.input_rows

    def padded_alike(self, region: Region) -> Alike | None:
        """
        Return how a region comes out if as many rows are padded on both sides.

        None where its windows would not all be among those.
        """
        before, after = self.missing(region)
        padding, handed = max(before, after), self.row_map(region)
        if not handed or padding < 0 or min(before, after) not in (0, padding):
            return None
        skipped, rest = divmod(padding - before, self.stride)
        made = (handed.rows + 2 * padding - self.reach) // self.stride + 1
        return None if rest or skipped + region.rows > made else Alike(padding, skipped, made)

    def missing(self, region: Region) -> tuple[int, int]:
        """
        Return how many rows to pad before and after the rows that `row_map` hands over.

        Negative: more is handed over than lies under the windows.
        """
        span, handed = self.span(region), self.row_map(region)
        if not handed:
            return span.rows, 0
        return handed.start - span.start, span.stop - handed.stop
