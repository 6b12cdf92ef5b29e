# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which dimensions of the inputs may be split, and how good a split axis is."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.split.calls.site import normal_dim
from intradp_ros.split.checks.flops import operator_flops
from intradp_ros.split.local_operator import LocalOperator, SplitGraph
from intradp_ros.split.regions.region import Region

_MOST_COLOURS = 4
_COARSEST = 32
_SHARE_STEP = 0.03

Shape = tuple[int, ...]


@dataclass(frozen=True)
class AxisCandidate:
    """
    A split axis, and what cutting every value in the middle along it would mean.

    `share` is the part of the floating point operations that can be divided:
    an operator of r rows counts with (r - 1) / r of its own, and so one that
    runs as a whole or not at all with nothing.  `exchanged` counts the bytes
    that change sides if each side keeps its half of the rows of every value:
    halos, gathered values and records of reductions.  `barriers` counts the
    operators that read all rows of a split value.
    """

    split: SplitGraph
    share: float
    exchanged: int
    barriers: int

    @property
    def axis(self) -> int:
        """Dimension of the leading input."""
        return self.split.axis

    @cached_property
    def rows(self) -> int:
        """Length of the leading input along the axis."""
        lead = leading_input(self.split.graph)
        return 1 if lead is None else self.split.rows[lead]


def judge(split: SplitGraph) -> AxisCandidate:
    """Say how good a split graph is for dividing the work."""
    flops = [operator_flops(split.graph, local.operator) for local in split.operators]
    divided = sum(n * (1 - 1 / local.rows) for n, local in zip(flops, split.operators))
    moved: dict[int, int] = {}
    barriers = 0
    for local in split.operators:
        meets = False
        for value, rows, every in _moved_rows(split, local):
            moved[value] = max(moved.get(value, 0), rows)
            meets |= every
        barriers += meets
    exchanged = sum(split.nbytes(value, rows) for value, rows in moved.items())
    return AxisCandidate(split, divided / max(1, sum(flops)), exchanged, barriers)


def best_first(candidates: Sequence[AxisCandidate]) -> tuple[AxisCandidate, ...]:
    """
    Order candidates: the fewest bytes exchanged among those that divide most work.

    Shares that are less than 3 % below the best one count as equal to it: so
    much hangs on how many rows the coarsest values happen to have.
    Equal in bytes, too, the longer axis comes first, then the earlier one.
    """
    best = max((c.share for c in candidates), default=0.0)

    def order(c: AxisCandidate) -> tuple[float, int, int, int]:
        lost = best - c.share
        return 0.0 if lost < _SHARE_STEP else lost, c.exchanged, -c.rows, c.axis

    return tuple(sorted(candidates, key=order))


def _moved_rows(split: SplitGraph, local: LocalOperator) -> Iterator[tuple[int, int, bool]]:
    """Yield each split value that is read, how many of its rows change sides, if all are read."""
    middle = local.rows // 2
    for value, row_map in zip(local.operator.inputs, local.maps):
        rows = split.rows[value]
        if split.dims[value] is None:
            continue
        if local.rows == 1:
            need = row_map(Region(0, 1)).rows
            yield value, -(-need // 2), need == rows and value not in split.folded
            continue
        first, second = row_map(Region(0, middle)), row_map(Region(middle, local.rows))
        over = (max(0, first.stop - rows // 2) if first else 0) + (
            max(0, rows // 2 - second.start) if second else 0)
        yield value, over, first.rows == second.rows == rows > 1 and value not in split.folded


def leading_input(graph: OperatorGraph) -> int | None:
    """Return the input whose dimensions the split axis counts, None if all are scalars."""
    by_rank = [[v for v in graph.inputs if len(graph.values[v].shape) >= n] for n in (3, 1)]
    return next((found[0] for found in by_rank if found), None)


def axes_to_try(shape: Shape) -> list[int]:
    """
    Return the dimensions of the leading input that are worth a try, the longest first.

    That is all of several rows, save a few colours.
    """
    long = [dim for dim, size in enumerate(shape) if size > _MOST_COLOURS]
    some = long or [dim for dim, size in enumerate(shape) if size > 1]
    return sorted(some, key=lambda dim: -shape[dim]) or [0] * bool(shape)


def checked_axis(graph: OperatorGraph, axis: int) -> int:
    """
    Return a split axis counted from the front.

    :raises ValueError: if it is not a dimension of the leading input, or has just one row.
    """
    lead = leading_input(graph)
    if lead is None:
        raise ValueError(f'model {graph.name!r} has no input with a dimension to split')
    value = graph.values[lead]
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise ValueError(
            f'split axis {axis} is not a dimension of input {value.name!r} {list(value.shape)}; '
            f'choose one of 0..{rank - 1}')
    axis = normal_dim(axis, rank)
    if value.shape[axis] < 2:
        raise ValueError(
            f'split axis {axis} of input {value.name!r} {list(value.shape)} has one row only; '
            'choose a longer dimension')
    return axis


def matching_dim(own: Shape, lead: Shape, axis: int) -> int | None:
    """
    Return the dimension of an input that corresponds to the axis of the leading one.

    Of the same rank it is the same dimension, where that is not next to
    nothing (a matrix of 3 rows next to an image).  Of another rank it is the
    one of the same length, in the same place from the last or the first
    dimension (from where more lengths agree), or wherever there is just one.
    None: the input stays whole.
    """
    rows, offset = lead[axis], len(own) - len(lead)
    if not offset:
        return axis if own[axis] > 1 and own[axis] * _COARSEST >= rows else None
    alike = [dim for dim, size in enumerate(own) if size == rows > 1]
    from_first = sum(a == b for a, b in zip(own, lead))
    from_last = sum(a == b for a, b in zip(own[::-1], lead[::-1]))
    places = (axis + offset, axis) if from_last >= from_first else (axis, axis + offset)
    return next((dim for dim in places if dim in alike), alike[0] if len(alike) == 1 else None)
