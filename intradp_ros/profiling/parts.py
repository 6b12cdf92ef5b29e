# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators at some of their rows, with the times that they took."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from intradp_ros.profiling.rounds import bind, BoundOperator, clock, Values
from intradp_ros.split.local_operator import Kernel, LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region

#: Shares of an operator's rows that are always measured.
HEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0625)


@dataclass
class Part:
    """An operator bound to rows in the middle, with the seconds that it took each time."""

    region: Region
    kernel: Kernel
    samples: list[float] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Count of rows."""
        return self.region.rows

    @property
    def least(self) -> float:
        """Seconds that it took when nothing disturbed it; infinite before it ran."""
        return min(self.samples, default=float('inf'))

    @property
    def typical(self) -> float:
        """Seconds that it took in the middle of all times; infinite before it ran."""
        return median(self.samples) if self.samples else float('inf')


def heights(rows: int) -> list[int]:
    """Return the heights that are always measured of so many rows, ascending."""
    return sorted({max(1, round(rows * share)) for share in HEIGHTS})


def parts_of(split: SplitGraph, op: LocalOperator, overwrites: bool, rows: Iterable[int],
             ) -> list[Part]:
    """Bind an operator to rows in the middle, for each of some heights."""
    found = []
    for height in rows:
        start = (op.rows - height) // 2
        region = Region(start, start + height)
        found.append(Part(region, bind(split, op, region, overwrites)))
    return found


def time_part(split: SplitGraph, op: BoundOperator, part: Part, values: Values) -> None:
    """Run a part on rows of the values, or on its own if it writes over them, and time it."""
    cut = [split.cut(value, values[value], row_map(part.region))
           for value, row_map in zip(op.local.operator.inputs, op.local.maps)]
    if op.overwrites:
        cut[0] = cut[0].clone()
    now = clock(split.device)
    start = now()
    part.kernel(cut)
    part.samples.append(now() - start)
