# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What putting rows of two pieces together takes, as where a band of rows begins."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import median

from intradp_ros.profiling.profile import JoinCost
from intradp_ros.profiling.rounds import BoundOperator, clock, Values
from intradp_ros.split.local_operator import LocalOperator, SplitGraph

#: Rows of the band before, and the parts of all rows that are put together with them.
EDGE, PARTS = 1, (0.0625, 0.5)


@dataclass
class Joins:
    """Puts together rows of what operators read, at two sizes; keeps what each round found."""

    found: list[JoinCost] = field(default_factory=list)
    _count: int = 0
    _seconds: list[float] = field(default_factory=lambda: [0.0] * len(PARTS))
    _nbytes: list[int] = field(default_factory=lambda: [0] * len(PARTS))

    def time(self, split: SplitGraph, op: BoundOperator, values: Values) -> None:
        """Put rows together of what an operator reads beyond its own rows, and time it."""
        now = clock(split.device)
        for value in set(_read_beyond(split, op.local)):
            tensor, dim = values[value], split.dims[value] or 0
            self._count += 1
            for size, part in enumerate(PARTS):
                rows = max(EDGE + 1, round(part * tensor.shape[dim]))
                pieces = [tensor.narrow(dim, 0, EDGE), tensor.narrow(dim, EDGE, rows - EDGE)]
                start = now()
                joined = split.device.join(pieces, dim)
                self._seconds[size] += now() - start
                self._nbytes[size] += joined.nbytes

    def end_round(self) -> None:
        """Note what the round has found."""
        (few, many), (small, large) = self._seconds, self._nbytes
        if large > small:
            byte = max(0.0, (many - few) / (large - small))
            self.found.append(JoinCost(max(0.0, few - small * byte) / self._count, byte))
        self._count, self._seconds, self._nbytes = 0, [0.0] * len(PARTS), [0] * len(PARTS)

    @property
    def typical(self) -> JoinCost:
        """Return the medians; nothing if nothing was put together."""
        if not self.found:
            return JoinCost()
        return JoinCost(median(each.once for each in self.found),
                        median(each.byte for each in self.found))


def _read_beyond(split: SplitGraph, op: LocalOperator) -> Iterator[int]:
    """Yield the values of which two neighbouring rows of an operator read the same row."""
    for value, row_map in zip(op.operator.inputs, op.maps):
        if value not in split.folded and split.dims[value] is not None \
                and split.rows[value] > EDGE + 1 and (row_map.first[1:] < row_map.last[:-1]).any():
            yield value
