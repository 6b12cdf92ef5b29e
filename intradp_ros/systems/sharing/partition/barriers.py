# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Barrier points: operators of which no row can be computed before all of their input is.

They divide an inference in time.  What a barrier depends on is computed
before it somewhere, what depends on the barrier after it, on either device.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import RowMap
from intradp_ros.systems.sharing.judge.rows_needed import Bools, operator_rows, rows_read

Ints = npt.NDArray[np.int64]
# What part of the whole weight divides an inference for the better.
_HEAVY = 1e-3


@dataclass(frozen=True)
class Barriers:
    """
    A chain of barriers and, for every operator, between which of them it runs.

    Barrier `k` of `operators` starts at moment `k + 1`; moment 0 is the
    start, ``len(operators) + 1`` the end.  Nothing of an operator is computed
    before moment ``after[operator]``; all that is needed of it has been
    computed, at least once, by moment ``before[operator]``.  `whole` are the
    inputs that each barrier needs all of.
    """

    operators: tuple[int, ...]
    whole: tuple[tuple[int, ...], ...]
    after: Ints
    before: Ints

    @property
    def end(self) -> int:
        """The moment at which the inference ends."""
        return len(self.operators) + 1


class _Edges:
    """What holds between an operator and each input, by producer, value and consumer."""

    def __init__(self, split: SplitGraph, needed: tuple[Bools, ...]) -> None:
        self.split = split
        self.after: list[list[int]] = []  # producers without which no row can be computed
        self.covers: list[list[int]] = []  # producers all of which is needed for all rows
        self.whole: list[list[int]] = []  # values all of which is needed for any row
        for op in split.operators:
            rows = operator_rows(split, needed, op.operator.id)
            pairs = list(zip(op.operator.inputs, op.maps))
            self.whole.append([v for v, m in pairs if rows.any() and _whole(m, needed[v])])
            self.after.append(self._producers(v for v, m in pairs if (m.last > m.first).all()))
            self.covers.append(self._producers(
                v for v, m in pairs
                if not (needed[v] & ~rows_read(m, rows, split.rows[v])).any()))

    def _producers(self, values: Iterable[int]) -> list[int]:
        producer = self.split.graph.producer
        return [producer[v] for v in values if v in producer]

    def ancestors(self, barrier: int) -> Bools:
        """Return the operators that are needed entirely before a barrier can start."""
        found = np.zeros(len(self.after), dtype=bool)
        found[self._producers(self.whole[barrier])] = True
        for index in range(barrier, -1, -1):
            if found[index]:
                found[self.covers[index]] = True
        return found

    def descendants(self, barrier: int) -> Bools:
        """Return the operators of which no row can be computed before a barrier has started."""
        found = np.zeros(len(self.after), dtype=bool)
        found[barrier] = True
        for index in range(barrier + 1, len(found)):
            found[index] = any(found[producer] for producer in self.after[index])
        return found


def _whole(rowmap: RowMap, needed: Bools) -> bool:
    """Return whether every output row needs every input row that is needed at all."""
    rows = np.flatnonzero(needed)
    return bool(len(rows) and (rowmap.first <= rows[0]).all() and (rowmap.last > rows[-1]).all())


def find_barriers(split: SplitGraph, needed: tuple[Bools, ...], weight: npt.NDArray[np.float64],
                  most: int = 12) -> Barriers:
    """
    Return a chain of at most so many barriers.

    Operators that need all of a value of several rows come first, then
    those with the greatest `weight`, if that is any part of the whole; any
    chain would do.
    """
    edges = _Edges(split, needed)
    several = [any(split.rows[v] > 1 for v in whole) for whole in edges.whole]
    chain: list[int] = []
    heavy = weight >= _HEAVY * weight.sum()
    ancestors = {i: edges.ancestors(i) for i, whole in enumerate(edges.whole)
                 if whole and (several[i] or heavy[i])}
    descendants = {i: edges.descendants(i) for i in ancestors}
    for index in sorted(ancestors, key=lambda i: (not several[i], -weight[i], i)):
        if len(chain) < most and all(_ordered(ancestors, descendants, *sorted((index, other)))
                                     for other in chain):
            chain.append(index)
    chain.sort()
    count = len(split.operators)
    before = np.full(count, len(chain) + 1)
    after = np.zeros(count, dtype=np.int64)
    for moment, index in reversed(list(enumerate(chain, 1))):
        before[ancestors[index]] = moment
    for moment, index in enumerate(chain, 1):
        after[descendants[index]] = moment
    return Barriers(tuple(chain), tuple(tuple(edges.whole[i]) for i in chain), after, before)


def _ordered(ancestors: dict[int, Bools], descendants: dict[int, Bools], first: int, second: int,
             ) -> bool:
    return bool(ancestors[second][first] and descendants[first][second])
