# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators at some of their rows, with the times that they took."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
import time

from intradp_ros.profiling.rounds import bind, BoundOperator, clock, Values
from intradp_ros.profiling.speed_track import SpeedTrack
from intradp_ros.split.local_operator import Kernel, LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region

#: Shares of an operator's rows that are always measured.
HEIGHTS = (1.0, 0.5, 0.25, 0.125, 0.0625)


@dataclass
class Part:
    """An operator bound to rows in the middle, with the seconds that it took, and when."""

    region: Region
    kernel: Kernel
    samples: list[float] = field(default_factory=list)
    moments: list[float] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Count of rows."""
        return self.region.rows

    @property
    def least(self) -> float:
        """Seconds that it took when nothing disturbed it; infinite before it ran."""
        return min(self.samples, default=float('inf'))

    def typical(self, track: SpeedTrack) -> float:
        """Return the seconds that it takes at the device's usual speed; infinite before it ran."""
        if not self.samples:
            return float('inf')
        return float(median(self.samples / track.slowness(self.moments)))

    def took(self, seconds: float, moment: float | None = None) -> None:
        """Take note of what it took, until now if no moment (s, monotonic) is given."""
        self.samples.append(seconds)
        self.moments.append(time.monotonic() if moment is None else moment)

    def forget(self) -> None:
        """Forget what it took."""
        self.samples.clear()
        self.moments.clear()


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
    part.took(now() - start)
