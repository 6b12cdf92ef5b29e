# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Floating point operations of an operator, from shapes alone."""
from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import Any

from intradp_ros.graph.operator_graph import (
    iter_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    ValueRef,
)
from intradp_ros.operators.call import Call

Shape = tuple[int, ...]
_Count = Callable[['_Shapes'], int]


class _Shapes:
    """Shapes around an operator."""

    def __init__(self, graph: OperatorGraph, operator: Operator) -> None:
        self.call = Call.of(graph, operator)
        self.operands = [
            _shape(graph, ref)
            for ref in iter_refs((operator.args, operator.kwargs), (ValueRef, ParameterRef))]
        self.outputs = [graph.values[v].shape for v in operator.outputs if v is not None]

    @property
    def output(self) -> int:
        """Elements of the first output."""
        return prod(self.outputs[0])

    @property
    def input(self) -> int:
        """Elements of the first operand."""
        return prod(self.operands[0]) if self.operands else 0


def operator_flops(graph: OperatorGraph, operator: Operator) -> int:
    """
    Count the floating point operations of an operator on its whole input.

    A multiply-add counts as two, a window's comparison or sum as one for each
    element under it, anything else as one for each element of the larger of
    input and output.  Moving elements counts nothing.
    """
    shapes = _Shapes(graph, operator)
    name = operator.target.rpartition('.')[0].rpartition('.')[2].lstrip('_')
    if not shapes.outputs or name in _MOVES:
        return 0
    count = _COUNTS.get(name)
    return count(shapes) if count else max(shapes.input, shapes.output)


def _shape(graph: OperatorGraph, ref: ValueRef | ParameterRef) -> Shape:
    if isinstance(ref, ValueRef):
        return graph.values[ref.value].shape
    return tuple(graph.parameters[ref.name].shape)


def _convolution(shapes: _Shapes) -> int:
    """Multiply-adds: one for each weight of an output channel and each output element."""
    return 2 * shapes.output * prod(shapes.operands[1][1:])


def _transposed_convolution(shapes: _Shapes) -> int:
    """Multiply-adds: one for each weight of an input channel and each input element."""
    return 2 * shapes.input * prod(shapes.operands[1][1:])


def _any_convolution(shapes: _Shapes) -> int:
    transposed = shapes.call.argument('transposed')
    return (_transposed_convolution if transposed else _convolution)(shapes)


def _product(shapes: _Shapes) -> int:
    """Multiply-adds: one for each output element and each contracted one."""
    return 2 * shapes.output * shapes.operands[0][-1]


def _contracting_second(shapes: _Shapes) -> int:
    """Multiply-adds, where the second operand's last dimension is the contracted one."""
    return 2 * shapes.output * shapes.operands[1][-1]


def _attention(shapes: _Shapes) -> int:
    """Both products of attention: queries by keys, and their result by values."""
    query, key, value = shapes.operands[:3]
    return 2 * prod(query[:-1]) * key[-2] * (query[-1] + value[-1])


def _windows(shapes: _Shapes) -> int:
    size: Any = shapes.call.argument('kernel_size')
    spatial = len(shapes.outputs[0]) - 2
    sizes = size if isinstance(size, (list, tuple)) else [size]
    return shapes.output * (prod(sizes) if len(sizes) > 1 else sizes[0] ** max(1, spatial))


_MOVES = frozenset((
    'alias', 'cat', 'chunk', 'clone', 'constant_pad_nd', 'contiguous', 'detach', 'expand',
    'flatten', 'lift_fresh_copy', 'narrow', 'pad', 'permute', 'pixel_shuffle', 'pixel_unshuffle',
    'reflection_pad1d', 'reflection_pad2d', 'reflection_pad3d', 'repeat', 'replication_pad1d',
    'replication_pad2d', 'replication_pad3d', 'reshape', 'roll', 'select', 'slice', 'split',
    'split_with_sizes', 'squeeze', 'stack', 't', 'to_copy', 'transpose', 'unbind', 'unflatten',
    'unsafe_view', 'unsqueeze', 'view'))

_COUNTS: dict[str, _Count] = {
    **dict.fromkeys(('conv1d', 'conv2d', 'conv3d'), _convolution),
    **dict.fromkeys(
        ('conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d'), _transposed_convolution),
    'convolution': _any_convolution,
    **dict.fromkeys(('linear', 'matmul', 'mm', 'bmm', 'partial_product'), _product),
    **dict.fromkeys(('addmm', 'baddbmm', 'partial_linear'), _contracting_second),
    **dict.fromkeys(('scaled_dot_product_attention', 'partial_attention'), _attention),
    **{f'{kind}_pool{n}d{suffix}': _windows
       for kind in ('max', 'avg') for n in (1, 2, 3) for suffix in ('', '_with_indices')},
}
