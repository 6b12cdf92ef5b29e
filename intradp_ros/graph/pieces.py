# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators with a piece of their input for each result, as one operator for each piece."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Any

from intradp_ros.graph.arguments import arguments_of, type_of
from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.graph.rewrite import rebuild


def separate_pieces(graph: OperatorGraph) -> OperatorGraph:
    """
    Slice or select each piece that is read by an operator of its own.

    Pieces of several lengths have no rows in common, as the results of one
    operator that is split by rows must have; a slice has rows of its own.
    """
    operators: list[Operator] = []
    for operator in graph.operators:
        rule = _RULES.get(operator.target)
        operators += _separated(graph, operator, rule) if rule else [operator]
    return rebuild(graph, operators=operators)


def _separated(
        graph: OperatorGraph, operator: Operator, rule: Callable[..., Any]) -> Iterator[Operator]:
    arguments = arguments_of(operator)
    dim = arguments['dim']
    length = type_of(graph, arguments['self'])[0][dim]
    for value, (target, where) in zip(operator.outputs, rule(arguments, length)):
        if value is not None:
            args = (arguments['self'], dim, *where)
            yield Operator(0, graph.values[value].name, target, args, {}, (value,))


def _slices(sizes: list[int]) -> list[tuple[str, tuple[int, ...]]]:
    stops = accumulate(sizes)
    return [('aten.slice.Tensor', (stop - size, stop)) for size, stop in zip(sizes, stops)]


def _equal(arguments: dict[str, Any], length: int) -> list[tuple[str, tuple[int, ...]]]:
    """Return pieces of one size, the last of them perhaps shorter."""
    chunks = arguments.get('chunks')
    size = -(-length // chunks) if chunks else arguments['split_size']
    return _slices([min(size, length - start) for start in range(0, length, max(1, size))])


def _of_sizes(arguments: dict[str, Any], length: int) -> list[tuple[str, tuple[int, ...]]]:
    return _slices(arguments['split_sizes'])


def _rows(arguments: dict[str, Any], length: int) -> list[tuple[str, tuple[int, ...]]]:
    return [('aten.select.int', (k,)) for k in range(length)]


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys((
        'aten.chunk.default', 'aten.split.Tensor', 'aten.unsafe_chunk.default',
        'aten.unsafe_split.Tensor'), _equal),
    **dict.fromkeys((
        'aten.split_with_sizes.default', 'aten.unsafe_split_with_sizes.default'), _of_sizes),
    'aten.unbind.int': _rows,
}
