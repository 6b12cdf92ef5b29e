# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Chains of reshapes and permutations as one rearrangement of factors.

Whatever the chain, it divides the dimensions of its source into factors,
orders the factors anew, and merges them into the dimensions of its result
(which is what an einops pattern says).
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from math import prod
from typing import NamedTuple

Shape = tuple[int, ...]


class Factor(NamedTuple):
    """A factor of a source dimension; one step in it is `inner` steps in that dimension."""

    dim: int
    inner: int
    size: int

    def divided(self, sizes: Iterable[int]) -> Iterator[Factor]:
        """Yield the parts of the factor, outer ones first, cut where inner parts have `sizes`."""
        for outer, inner in pairwise([self.size, *sorted(sizes, reverse=True), 1]):
            yield Factor(self.dim, self.inner * inner, outer // inner)

    def continues(self, outer: Factor) -> bool:
        """Return whether the factor is the next inner one of the same dimension."""
        return self.dim == outer.dim and self.inner * self.size == outer.inner


Dims = tuple[tuple[Factor, ...], ...]


@dataclass(frozen=True)
class Rearrangement:
    """
    The factors in each dimension of a result, outer ones first; none in one of size 1.

    `regrouped` says whether a step on the way merged factors that a later one set apart.
    """

    source: Shape
    dims: Dims
    regrouped: bool = False

    @classmethod
    def of(cls, shape: Shape) -> Rearrangement:
        """Return the one that changes nothing."""
        return cls(shape, tuple(
            (Factor(d, 1, size),) if size != 1 else () for d, size in enumerate(shape)))

    def permuted(self, order: Sequence[int]) -> Rearrangement:
        """Return the rearrangement followed by a permutation of the result's dimensions."""
        return Rearrangement(self.source, tuple(self.dims[d] for d in order), self.regrouped)

    def reshaped(self, shape: Shape) -> Rearrangement | None:
        """Return the rearrangement followed by a reshape; None if a factor has no such divisor."""
        cuts = sorted({*_ends(f.size for f in chain(*self.dims)), *_ends(shape)})
        if 0 in shape or any(b % a for a, b in pairwise(cuts)):
            return None
        finer = self._divided(cuts)
        parts = iter(list(chain(*finer)))
        dims = tuple(tuple(_filling(parts, size)) for size in shape)
        return Rearrangement(self.source, dims, self.regrouped or _sets_apart(finer, dims))

    def steps(self) -> tuple[Shape, Shape] | None:
        """
        Return the shape and then the order of dimensions that lead to the result.

        The result is a reshape of the source reshaped to the shape and
        permuted to the order.  The first reshape only divides dimensions, and
        no more than it must.  None: the factors are in the source's order, so
        that one reshape does.
        """
        order = _joined(list(chain(*self.dims)))
        if order == sorted(order, key=_place):
            return None
        ones = [Factor(d, 1, 1) for d, size in enumerate(self.source) if size == 1]
        before = sorted([*ones, *order], key=_place)
        permutation = tuple(before.index(factor) for factor in (*ones, *order))
        return tuple(f.size for f in before), permutation

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        return tuple(prod(factor.size for factor in dim) for dim in self.dims)

    def _divided(self, cuts: Sequence[int]) -> Dims:
        """Divide factors so that all counts of elements in `cuts` are behind some factor."""
        ends = iter(_ends(f.size for f in chain(*self.dims)))

        def parts(factor: Factor) -> Iterator[Factor]:
            end = next(ends)
            return factor.divided(c // end for c in cuts if end < c < end * factor.size)

        return tuple(tuple(part for f in dim for part in parts(f)) for dim in self.dims)


def _ends(sizes: Iterable[int]) -> list[int]:
    """Return for each size how many elements one step in it is, in row-major order."""
    ends = [1]
    for size in reversed(list(sizes)):
        ends.append(ends[-1] * size)
    return ends[-2::-1]


def _place(factor: Factor) -> tuple[int, int]:
    """Order factors as the source has them."""
    return factor.dim, -factor.inner


def _filling(factors: Iterator[Factor], size: int) -> Iterator[Factor]:
    """Take factors until they make up a size."""
    while size > 1:
        factor = next(factors)
        size //= factor.size
        yield factor


def _sets_apart(before: Dims, after: Dims) -> bool:
    """Return whether neighbours, which they are not in the source, are in two dimensions after."""
    place = {factor: d for d, dim in enumerate(after) for factor in dim}
    return any(
        place[a] != place[b] and not b.continues(a) for dim in before for a, b in pairwise(dim))


def _joined(factors: Sequence[Factor]) -> list[Factor]:
    """Join neighbours that are neighbours in one dimension of the source, too."""
    joined: list[Factor] = []
    for factor in factors:
        if joined and factor.continues(joined[-1]):
            outer = joined.pop()
            factor = Factor(factor.dim, factor.inner, outer.size * factor.size)
        joined.append(factor)
    return joined
