# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split an operator graph: choose the axis, follow it, and find the local operators."""
from __future__ import annotations

from dataclasses import dataclass, field, replace

from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.operators.local_operator import LocalOperator, SplitGraph
from intradp_ros.operators.reductions import RULES as PARTS_OF_REDUCTIONS
from intradp_ros.operators.reductions.rewrite import fold_reductions
from intradp_ros.operators.rules import rule_for
from intradp_ros.operators.rules.whole import split_whole
from intradp_ros.operators.site import normal_dim, Site, Split

_MOST_COLOURS = 4


@dataclass
class _Tracks:
    """Split dimension and rows of every value, filled operator by operator."""

    dims: list[int | None] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    folded: set[int] = field(default_factory=set)

    def put(self, value: int, dim: int | None, rows: int) -> None:
        self.dims[value], self.rows[value] = dim, rows


def split_graph(graph: OperatorGraph, axis: int | None = None) -> SplitGraph:
    """
    Find the local operators of a graph along a split axis (paper, section 4.1).

    `axis` is a dimension of the leading input, which is the first one of three
    or more dimensions (if there is none, the first one that has any).  By
    default it is the longest spatial dimension (the earlier one of equals): 2
    and up, or height and width of an image with its colours in the last
    dimension; or dimension 0 of a matrix or vector.  Other inputs of the same
    rank are cut along the same dimension.

    Operators without a rule, and such that a rule finds unfit, are global.
    Global reductions that can be computed from records of parts are replaced
    by operators that do so; `SplitGraph.captured` is still the graph given.

    Raises
    ------
    ValueError
        If `axis` is no dimension of the leading input, or has just one row.

    """
    lead = _leading_input(graph)
    shape = graph.values[lead].shape if lead is not None else ()
    chosen = _default_axis(shape) if axis is None else _checked_axis(graph, lead, axis)
    split = _follow_axis(graph, chosen, shape)
    while (taken_apart := fold_reductions(split)) is not None:
        split = replace(_follow_axis(taken_apart, chosen, shape), source=graph)
    return split


def _follow_axis(graph: OperatorGraph, chosen: int, shape: tuple[int, ...]) -> SplitGraph:
    """Split inputs of the rank of `shape` along the axis, and every operator by its rule."""
    tracks = _Tracks([None] * len(graph.values), [1] * len(graph.values))
    for value in graph.inputs:
        own = graph.values[value].shape
        if shape and len(own) == len(shape) and own[chosen] > 1:
            tracks.put(value, chosen, own[chosen])
    operators = tuple(_localise(graph, operator, tracks) for operator in graph.operators)
    return SplitGraph(graph, chosen, tuple(tracks.dims), tuple(tracks.rows), operators,
                      frozenset(tracks.folded))


def _leading_input(graph: OperatorGraph) -> int | None:
    """Return the input whose dimensions the split axis counts, None if all are scalars."""
    by_rank = [[v for v in graph.inputs if len(graph.values[v].shape) >= n] for n in (3, 1)]
    return next((found[0] for found in by_rank if found), None)


def _default_axis(shape: tuple[int, ...]) -> int:
    if len(shape) < 3:
        return 0
    return max(_spatial_dims(shape), key=lambda dim: shape[dim])


def _spatial_dims(shape: tuple[int, ...]) -> range:
    """Return the dimensions after batch and channels, or before colours that come last."""
    colours_last = shape[-1] <= _MOST_COLOURS < min(shape[-3:-1])
    return range(len(shape) - 3, len(shape) - 1) if colours_last else range(2, len(shape))


def _checked_axis(graph: OperatorGraph, lead: int | None, axis: int) -> int:
    if lead is None:
        raise ValueError(f'model {graph.name!r} has no input with a dimension to split')
    value = graph.values[lead]
    rank = len(value.shape)
    if not -rank <= axis < rank:
        raise ValueError(
            f'split axis {axis} is no dimension of input {value.name!r} {list(value.shape)}; '
            f'choose one of 0..{rank - 1}')
    axis = normal_dim(axis, rank)
    if value.shape[axis] < 2:
        raise ValueError(
            f'split axis {axis} of input {value.name!r} {list(value.shape)} has one row only; '
            'choose a longer dimension')
    return axis


def _localise(graph: OperatorGraph, operator: Operator, tracks: _Tracks) -> LocalOperator:
    site = Site(graph, operator, tracks.dims, tracks.rows)
    split = _local_split(site) or split_whole(site)
    for value in operator.outputs:
        if value is not None:
            tracks.put(value, split.dim, split.rows)
            tracks.folded |= {value} if split.folded else set()
    return LocalOperator(operator, split.kind, split.rows, split.maps, split.bind)


def _local_split(site: Site) -> Split | None:
    """Return the rule's answer if there is one, and it fits all outputs."""
    outputs = [site.graph.values[v].shape for v in site.operator.outputs if v is not None]
    if not outputs or all(site.dims[v] is None for v in site.operator.inputs):
        return None
    target = site.operator.target
    rule = PARTS_OF_REDUCTIONS.get(target) or rule_for(target, site.call.function)
    split = rule(site) if rule else None
    if split is None or split.dim is None or split.folded:
        return split
    fits = split.rows > 1 and all(
        split.dim < len(shape) and shape[split.dim] == split.rows for shape in outputs)
    return split if fits else None
