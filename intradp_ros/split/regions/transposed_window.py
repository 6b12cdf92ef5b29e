# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows that spread over others along the split dimension: transposed windows."""
from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import gcd

import numpy as np

from intradp_ros.split.regions.region import Region, RowMap


@dataclass(frozen=True)
class Spread:
    """
    How input rows spread over output rows along the split dimension.

    Input row `i` adds to output rows ``i * stride - before + k * dilation``
    for k in 0..size-1.
    """

    size: int
    stride: int
    before: int
    dilation: int
    input_rows: int
    output_rows: int

    @cached_property
    def row_map(self) -> RowMap:
        """
        Rows that add to a region, from the first to the last.

        Row `i` adds to output row `a` where ``a + before - i * stride`` is a
        multiple `k` of the dilation; such `k` repeat every `period`.
        """
        # In closed form: a graph that arrived may have kernels of any size.
        common = gcd(self.dilation, self.stride)
        period, dilation = self.stride // common, self.dilation // common
        taps = np.arange(self.output_rows) + self.before
        phase = taps // common % period * pow(dilation, -1, period) % period
        lowest = np.maximum(
            0, -((self.stride * (self.input_rows - 1) - taps) // self.dilation))
        highest = np.minimum(self.size - 1, taps // self.dilation)
        lowest, highest = lowest + (phase - lowest) % period, highest - (highest - phase) % period
        real = (taps % common == 0) & (lowest <= highest)
        first = np.where(real, (taps - highest * self.dilation) // self.stride, self.input_rows)
        last = np.where(real, (taps - lowest * self.dilation) // self.stride + 1, 0)
        return RowMap(first, last)

    def reached(self, rows: Region) -> Region:
        """Return the output rows, from first to last, that input rows add to."""
        start = rows.start * self.stride - self.before
        last = (rows.stop - 1) * self.stride - self.before + self.dilation * (self.size - 1)
        return Region(start, last + 1)

    def extended(self, region: Region) -> Region:
        """
        Return input rows, some of them perhaps not handed over, that reach all of `region`.

        Those beyond the handed ones stand for zeros: a row that adds to the
        region is always handed over.
        """
        handed = self.row_map(region)
        if not handed:
            first = (region.start + self.before) // self.stride
            handed = Region(first, first + 1)
        reached = self.reached(handed)
        above = max(0, -((region.start - reached.start) // self.stride))
        below = max(0, -((reached.stop - region.stop) // self.stride))
        return Region(handed.start - above, handed.stop + below)
