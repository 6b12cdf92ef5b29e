# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators that return one of their arguments unchanged."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from intradp_ros.graph.arguments import arguments_of, type_of
from intradp_ros.graph.operator_graph import Operator, OperatorGraph
from intradp_ros.graph.rewrite import rebuild

Arguments = dict[str, Any]


def drop_no_operations(graph: OperatorGraph) -> OperatorGraph:
    """Read an argument instead of the operator that returns it unchanged."""
    same = {}
    for operator in graph.operators:
        unchanged = _unchanged(graph, operator)
        if unchanged is not None and operator.outputs[0] is not None:
            same[operator.outputs[0]] = unchanged
    return rebuild(graph, same=same)


def reshape_views(graph: OperatorGraph) -> OperatorGraph:
    """
    Make every view a reshape.

    A view works for the strides that the captured tensor happened to have; a
    reshape gives the same values for any, so that memory formats are free
    and copies made just for a view can go.
    """
    return rebuild(graph, operators=[
        replace(op, target='aten.reshape.default', args=op.args[:2]) if op.target in _VIEWS
        else op for op in graph.operators])


def convert_by_dtype(graph: OperatorGraph) -> OperatorGraph:
    """Make every conversion to another value's dtype one that does not read that value."""
    return rebuild(graph, operators=[
        replace(op, target='aten._to_copy.default', args=op.args[:1],
                kwargs={'dtype': graph.values[op.outputs[0] or 0].dtype})
        if op.target == 'aten.type_as.default' else op for op in graph.operators])


_VIEWS = {'aten.view.default', 'aten._unsafe_view.default', 'aten._reshape_alias.default',
          'aten.view_copy.default', 'aten._reshape_copy.default'}


def _unchanged(graph: OperatorGraph, operator: Operator) -> Any:
    """Return the reference to what the operator returns unchanged, or None if it computes."""
    rule = _RULES.get(operator.target.split('.')[1])
    if rule is None or operator.target in _REINTERPRETING:
        return None
    ref = rule(arguments_of(operator))
    if ref is None or any(v is not None for v in operator.outputs[1:]):
        return None
    result = graph.values[operator.outputs[0] or 0]
    return ref if type_of(graph, ref) == (result.shape, result.dtype) else None


_REINTERPRETING = {'aten.view.dtype', 'aten.view_copy.dtype'}


def _first(arguments: Arguments) -> Any:
    """Return what a copy, or a change of nothing but shape or dtype, starts from."""
    return next(iter(arguments.values()))


def _outside_training(arguments: Arguments) -> Any:
    return None if arguments['train'] else arguments['input']


def _source(arguments: Arguments) -> Any:
    return arguments['src']


def _unpadded(arguments: Arguments) -> Any:
    return None if any(arguments['pad']) else arguments['self']


def _unpermuted(arguments: Arguments) -> Any:
    dims = arguments['dims']
    rank = len(dims)
    return arguments['self'] if [d % rank for d in dims] == list(range(rank)) else None


_RULES: dict[str, Callable[[Arguments], Any]] = {
    **dict.fromkeys(
        ('alias', 'alias_copy', 'clone', 'contiguous', 'detach', 'detach_copy', 'lift',
         'lift_fresh', 'lift_fresh_copy', '_to_copy', 'to', 'reshape', 'view',
         'view_as', 'expand', 'expand_as', 'expand_copy', 'broadcast_to', 'slice', 'slice_copy',
         'squeeze', 'squeeze_copy'), _first),
    **dict.fromkeys(
        ('dropout', 'alpha_dropout', 'feature_dropout', 'feature_alpha_dropout',
         'native_dropout'), _outside_training),
    'copy': _source,
    'constant_pad_nd': _unpadded,
    'pad': _unpadded,
    'permute': _unpermuted,
}
"""By operator: the argument that is returned, provided that its shape and dtype are, too."""
