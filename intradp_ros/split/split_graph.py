# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split an operator graph: choose the axis, follow it, and find the local operators."""
from __future__ import annotations

from dataclasses import dataclass, field, replace
import math

from intradp_ros.core.limits import MAX_ROWS
from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.split.axes import (
    axes_to_try,
    AxisCandidate,
    best_first,
    checked_axis,
    judge,
    leading_input,
    matching_dim,
)
from intradp_ros.split.calls.site import Site, Split, unchanged
from intradp_ros.split.local_operator import Kind, LocalOperator, SplitGraph
from intradp_ros.split.order import in_running_order
from intradp_ros.split.reductions import RULES as PARTS_OF_REDUCTIONS
from intradp_ros.split.reductions.rewriting import fold_reductions
from intradp_ros.split.regions.region import RowMap
from intradp_ros.split.rules import rule_for


@dataclass
class _Tracks:
    """Split dimension and rows of every value, filled operator by operator."""

    dims: list[int | None] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    folded: set[int] = field(default_factory=set)
    most_rows: float = math.inf

    def put(self, value: int, dim: int | None, rows: int) -> None:
        self.dims[value], self.rows[value] = dim, rows

    def check(self, rows: int) -> None:
        """Check that tables of so many rows may be made; ValueError if they are too many."""
        if rows > self.most_rows:
            raise ValueError('its values have too many rows')

    def spend(self, rows: int) -> None:
        """Count the rows of tables; ValueError if they are too many."""
        self.check(rows)
        self.most_rows -= rows


def split_graph(graph: OperatorGraph, axis: int | None = None,
                most_rows: float = math.inf) -> SplitGraph:
    """
    Find the local operators of a graph along a split axis (paper, section 4.1).

    `axis` is a dimension of the leading input, which is the first one of three
    or more dimensions (if there is none, the first one that has any).  By
    default it is the first of `axis_candidates`.  Other inputs are cut along
    the dimension that matches it, or held whole.

    Operators without a rule, and such that a rule finds unfit, are global.
    Global reductions that can be computed from records of parts are replaced
    by operators that do so, and operators stand in the order in which they
    run (`order.py`); `SplitGraph.captured` is still the graph given.

    :raises ValueError: if `axis` is not a dimension of the leading input, or has just one row; if
        values have more than `most_rows` rows together, each counted once for every value that it
        is computed from.
    """
    if axis is not None:
        return _split_along(graph, checked_axis(graph, axis), most_rows)
    axes = _axes(graph)
    # with a single one there is nothing to judge
    return _split_along(graph, axes[0], most_rows) if len(axes) == 1 else \
        _judged(graph, axes, most_rows)[0].split


def axis_candidates(graph: OperatorGraph) -> tuple[AxisCandidate, ...]:
    """
    Split a graph along each dimension of the leading input that is worth it, best first.

    The best one is, of those that divide the most work (to 3 %), the one that
    needs the fewest bytes from the other side; see `axes.best_first`.
    """
    return _judged(graph, _axes(graph))


def _axes(graph: OperatorGraph) -> list[int]:
    lead = leading_input(graph)
    return axes_to_try(graph.values[lead].shape) if lead is not None else [0]


def _judged(graph: OperatorGraph, axes: list[int], most_rows: float = math.inf,
            ) -> tuple[AxisCandidate, ...]:
    return best_first([judge(_split_along(graph, axis, most_rows)) for axis in axes])


def _split_along(graph: OperatorGraph, axis: int, most_rows: float = math.inf) -> SplitGraph:
    """Split along an axis, take apart the reductions that are global along it, and order."""
    split = _follow_axis(graph, axis, most_rows)
    while (taken_apart := fold_reductions(split)) is not None:
        split = replace(_follow_axis(taken_apart, axis, most_rows), source=graph)
    ordered = in_running_order(split.graph)
    if ordered is not split.graph:
        split = replace(_follow_axis(ordered, axis, most_rows), source=graph)
    return split


def _follow_axis(graph: OperatorGraph, axis: int, most_rows: float) -> SplitGraph:
    """Split inputs along the axis or what matches it, and every operator by its rule."""
    tracks = _Tracks([None] * len(graph.values), [1] * len(graph.values), most_rows=most_rows)
    lead = leading_input(graph)
    shape = graph.values[lead].shape if lead is not None else ()
    for value in graph.inputs if shape else ():
        own = graph.values[value].shape
        dim = matching_dim(own, shape, axis)
        if dim is not None:
            tracks.put(value, dim, own[dim])
            tracks.spend(own[dim])
    operators = tuple(_localise(graph, operator, tracks) for operator in graph.operators)
    return SplitGraph(graph, axis, tuple(tracks.dims), tuple(tracks.rows), operators,
                      frozenset(tracks.folded))


def _localise(graph: OperatorGraph, operator: Operator, tracks: _Tracks) -> LocalOperator:
    site = Site(graph, operator, tracks.dims, tracks.rows)
    longest = max((max(graph.values[v].shape, default=1) for v in operator.outputs
                   if v is not None), default=1)
    tracks.check(longest * len(operator.inputs))
    split = _local_split(site) or split_whole(site)
    tracks.spend(split.rows * len(operator.inputs))
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


def split_whole(site: Site) -> Split:
    """Run the operator as a whole or not at all: always right, never parallel."""
    maps = tuple(RowMap.whole(1, site.rows[value]) for value in site.operator.inputs)
    return Split(Kind.GLOBAL, None, 1, maps, unchanged(site))


def split_received(graph: OperatorGraph, axis: int | None = None) -> SplitGraph:
    """
    Split a graph that another process sent, as `split_graph` does.

    :raises ValueError: whatever is wrong with the graph; also if its values have more than
        `MAX_ROWS` rows together.
    """
    try:
        return split_graph(graph, axis, most_rows=MAX_ROWS)
    except ValueError:
        raise
    except Exception as error:  # rules compute with arguments that may be of any type
        raise ValueError(f'a graph that cannot be split: {error!r}') from error
