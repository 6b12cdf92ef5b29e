# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Write chains of reshapes and permutations in their shortest form."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from intradp_ros.graph.arguments import arguments_of
from intradp_ros.graph.operator_graph import Operator, OperatorGraph, Value, ValueRef
from intradp_ros.graph.rearrangement import Rearrangement, Shape
from intradp_ros.graph.rewrite import rebuild


@dataclass(frozen=True)
class _Chain:
    """
    Views one after the other, none but the last of which is read elsewhere.

    `reordered` is the effect up to the last permutation, `effect` that of all.
    """

    source: int
    members: tuple[Operator, ...]
    reordered: Rearrangement
    effect: Rearrangement

    @property
    def result(self) -> int:
        """Value of the last view."""
        (value,) = self.members[-1].outputs
        assert value is not None
        return value


def shorten_view_chains(graph: OperatorGraph) -> OperatorGraph:
    """
    Replace a chain of views by a reshape, a permutation and a reshape, or less.

    This is done where it saves operators, or where the chain merges
    dimensions on the way that it divides again later: merged with a
    dimension to its left, rows of an image are no longer rows.
    """
    operators: dict[int, Sequence[Operator]] = {op.id: (op,) for op in graph.operators}
    values: list[Value] = []
    same: dict[int, ValueRef] = {}
    for found in _chains(graph):
        short = _written(graph, found, values)
        if len(short) < len(found.members) or found.effect.regrouped:
            operators.update((op.id, ()) for op in found.members)
            operators[found.members[-1].id] = short
            if not short:
                same[found.result] = ValueRef(found.source)
    return rebuild(graph, operators=chain(*operators.values()), same=same, values=values)


def _chains(graph: OperatorGraph) -> list[_Chain]:
    """Find all chains of two or more views, as long as can be."""
    growing: dict[int, _Chain] = {}
    for operator in graph.operators:
        if operator.target not in _REORDERED and operator.target not in _RESHAPED:
            continue
        (source,), (result,) = operator.inputs or (None,), operator.outputs
        if source is None or result is None:
            continue
        before = growing.get(source) if _read_once(graph, source) else None
        longer = _extended(graph, before, operator) if before else None
        if longer:
            del growing[source]
        else:
            unchanged = Rearrangement.of(graph.values[source].shape)
            longer = _extended(graph, _Chain(source, (), unchanged, unchanged), operator)
        if longer:
            growing[result] = longer
    return [views for views in growing.values() if len(views.members) > 1]


def _read_once(graph: OperatorGraph, value: int) -> bool:
    return len(graph.consumers[value]) == 1 and value not in graph.output_values


def _extended(graph: OperatorGraph, views: _Chain, operator: Operator) -> _Chain | None:
    """Return a chain with one more view; None if factors cannot express what it does."""
    members, order = (*views.members, operator), _REORDERED.get(operator.target)
    if order:
        effect = views.effect.permuted(order(arguments_of(operator), len(views.effect.dims)))
        return _Chain(views.source, members, effect, effect)
    reshaped = views.reordered.reshaped(graph.values[operator.outputs[0] or 0].shape)
    return _Chain(views.source, members, views.reordered, reshaped) if reshaped else None


def _written(graph: OperatorGraph, views: _Chain, values: list[Value]) -> list[Operator]:
    """Return operators for a chain; the values between them are added to `values`."""
    shape, dtype = graph.values[views.source].shape, graph.values[views.source].dtype
    name, operators, source = views.members[-1].name, [], views.source
    steps = list(_steps(views.effect, shape))
    for k, (target, argument, shape) in enumerate(steps):
        result = views.result
        if k < len(steps) - 1:
            result = len(graph.values) + len(values)
            values.append(Value(result, f'{name}_{k}', shape, dtype))
        operators.append(Operator(
            0, f'{name}_{k}', target, (ValueRef(source), list(argument)), {}, (result,)))
        source = result
    return operators


def _steps(effect: Rearrangement, shape: Shape) -> Iterator[tuple[str, Shape, Shape]]:
    """Yield target, argument and result's shape of what a chain needs at least."""
    steps = effect.steps()
    if steps:
        divided, order = steps
        if divided != shape:
            yield 'aten.reshape.default', divided, divided
        shape = tuple(divided[d] for d in order)
        yield 'aten.permute.default', order, shape
    if effect.shape != shape:
        yield 'aten.reshape.default', effect.shape, effect.shape


def _permuted(arguments: Mapping[str, Any], rank: int) -> list[int]:
    return [dim % rank for dim in arguments['dims']]


def _transposed(arguments: Mapping[str, Any], rank: int) -> list[int]:
    order = list(range(rank))
    a, b = arguments['dim0'] % rank, arguments['dim1'] % rank
    order[a], order[b] = b, a
    return order


def _reversed(arguments: Mapping[str, Any], rank: int) -> list[int]:
    return list(range(rank))[::-1]


_REORDERED: dict[str, Callable[[Mapping[str, Any], int], list[int]]] = {
    'aten.permute.default': _permuted,
    'aten.transpose.int': _transposed,
    'aten.t.default': _reversed,
}
"""Views that permute the dimensions: the order of the source's dimensions in the result."""

_RESHAPED = frozenset((
    'aten.flatten.using_ints', 'aten.reshape.default', 'aten.squeeze.default',
    'aten.squeeze.dim', 'aten.squeeze.dims', 'aten.unflatten.int', 'aten.unsqueeze.default'))
"""Views that keep the elements in row-major order."""
