# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators at some of their rows, with the times that they took."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median
import time

import numpy as np

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
        return float(median(self.usual(track))) if self.samples else float('inf')

    def usual(self, track: SpeedTrack) -> list[float]:
        """Return the samples as they would be at the device's usual speed."""
        return (self.samples / track.slowness(self.moments)).tolist() if self.samples else []

    def took(self, seconds: float, moment: float | None = None) -> None:
        """Take note of what it took, until now if no moment (s, monotonic) is given."""
        self.samples.append(seconds)
        self.moments.append(time.monotonic() if moment is None else moment)

    def forget(self) -> None:
        """Forget what it took."""
        self.samples.clear()
        self.moments.clear()


@dataclass
class OperatorParts:
    """
    An operator's parts by rows, the whole last, that run one after another; and two that do not.

    In an inference other operators have run since one last did, and what it needs is no longer
    in the processor's caches.  So `first` is the lowest share again, as it runs before the
    others, right before itself (None if there is only the whole, or if replayed graphs take the
    place of calls), and `run` the whole, in runs of the graph.  One row is measured, too: what
    a kernel takes for any rows at all is most of what it takes for few.
    """

    parts: list[Part]
    first: Part | None
    run: Part

    @classmethod
    def of(cls, split: SplitGraph, op: BoundOperator) -> OperatorParts:
        """Return the parts that are always measured of an operator."""
        shares = heights(op.local.rows)
        parts = parts_of(split, op.local, op.overwrites, sorted({1, *shares}))
        lowest, whole = parts[-len(shares)], parts[-1]
        first = None if lowest is whole or split.device.runs_ahead else Part(
            lowest.region, lowest.kernel)
        return cls(parts, first, Part(whole.region, whole.kernel))

    @property
    def every(self) -> list[Part]:
        """All parts, `first` and `run` among them."""
        return [*self.parts, *filter(None, [self.first, self.run])]

    @property
    def lower(self) -> list[Part]:
        """All but the whole as they run in turn: `first`, the same part again, the others."""
        *lower, _ = self.parts
        if self.first is None:
            return lower
        again = next(part for part in lower if part.rows == self.first.rows)
        return [self.first, again, *(part for part in lower if part is not again)]

    def forget(self) -> None:
        """Forget what all of them took."""
        for part in self.every:
            part.forget()

    def once(self, track: SpeedTrack) -> float:
        """Return the seconds that an operator takes more when others have run since it did."""
        if self.first is None:
            return 0.0
        first, again, *_ = self.lower
        more = np.subtract(first.samples, again.samples)
        return max(0.0, float(median(more / track.slowness(first.moments))))

    def typical(self, track: SpeedTrack) -> list[float]:
        """Return the seconds that parts take in an inference, at the device's usual speed."""
        once, whole = self.once(track), self.parts[-1]
        in_rounds = np.add(whole.usual(track), once)
        return [*(part.typical(track) + once for part in self.parts[:-1]),
                float(median([*in_rounds, *self.run.usual(track)]))]


def heights(rows: int) -> list[int]:
    """Return the shares of so many rows that are always measured, ascending."""
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
