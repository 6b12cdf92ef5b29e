# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Floating point operations of an operator, from shapes alone."""
from __future__ import annotations

from collections.abc import Callable
from math import log2, prod
from typing import Any

from intradp_ros.graph.arguments import type_of
from intradp_ros.graph.operator_graph import (
    iter_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    ValueRef,
)
from intradp_ros.split.calls.call import Call
from intradp_ros.split.calls.labelled import Label
from intradp_ros.split.rules.einsum import read_equation

Shape = tuple[int, ...]
_Count = Callable[['_Shapes'], int]


class _Shapes:
    """Shapes around an operator."""

    def __init__(self, graph: OperatorGraph, operator: Operator) -> None:
        self.call = Call.of(graph, operator)
        self.operands = [
            type_of(graph, ref)[0]
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


def _einsum(shapes: _Shapes) -> int:
    """Multiply-adds of one product after another, from the left; of one operand its elements."""
    terms, result = read_equation(
        shapes.call.argument('equation'), [len(shape) for shape in shapes.operands])
    sizes: dict[Label, int] = {}
    for term, shape in zip(terms, shapes.operands):
        for label, size in zip(term, shape):
            sizes[label] = max(size, sizes.get(label, 1))
    done, total = set(terms[0]), 0
    for k, term in enumerate(terms[1:], 2):
        total += 2 * prod(sizes[label] for label in done.union(term))
        done = done.union(term) & set(result).union(*terms[k:])
    return total or shapes.input


def _distances(shapes: _Shapes) -> int:
    """Difference, power and sum for each feature of each pair."""
    return 3 * shapes.output * shapes.operands[0][-1]


def _recurrence(shapes: _Shapes) -> int:
    """Multiply-adds: one for each weight of the matrices, at each step of each sequence."""
    steps = shapes.input // shapes.operands[0][-1]
    return 2 * steps * sum(prod(shape) for shape in shapes.operands[1:] if len(shape) == 2)


def _samples(shapes: _Shapes) -> int:
    """Multiply-adds: one for each element around a place."""
    along = {_NEAREST: 1, _CUBIC: 4}.get(shapes.call.argument('interpolation_mode'), 2)
    return 2 * shapes.output * prod([along] * (len(shapes.outputs[0]) - 2))


def _fourier(shapes: _Shapes) -> int:
    """Count 5 n log n, the usual count of a fast transform of n complex numbers."""
    size = max(shapes.input, shapes.output)
    return round(5 * size * log2(max(2, size)))


def _windows(shapes: _Shapes) -> int:
    size: Any = shapes.call.argument('kernel_size')
    spatial = len(shapes.outputs[0]) - 2
    sizes = size if isinstance(size, (list, tuple)) else [size]
    return shapes.output * (prod(sizes) if len(sizes) > 1 else sizes[0] ** max(1, spatial))


_NEAREST, _CUBIC = 1, 2  # ATen's numbers for the ways to interpolate in a grid

_MOVES = frozenset((
    'alias', 'cat', 'channel_shuffle', 'chunk', 'clone', 'constant_pad_nd', 'contiguous', 'detach',
    'embedding', 'expand', 'flatten', 'flip', 'gather', 'im2col', 'index', 'index_copy',
    'index_fill', 'index_put', 'index_select', 'lift_fresh_copy', 'max_unpool2d', 'max_unpool3d',
    'narrow', 'native_channel_shuffle', 'one_hot', 'pad', 'permute', 'pixel_shuffle',
    'pixel_unshuffle', 'reflection_pad1d', 'reflection_pad2d', 'reflection_pad3d', 'repeat',
    'repeat_interleave', 'replication_pad1d', 'replication_pad2d', 'replication_pad3d', 'reshape',
    'roll', 'scatter', 'select', 'select_scatter', 'slice', 'slice_scatter', 'split',
    'split_with_sizes', 'squeeze', 'stack', 't', 'take', 'take_along_dim', 'tile', 'to_copy',
    'transpose', 'unbind', 'unflatten', 'unfold', 'unsafe_index', 'unsafe_index_put',
    'unsafe_view', 'unsqueeze', 'view'))

_COUNTS: dict[str, _Count] = {
    **dict.fromkeys(('conv1d', 'conv2d', 'conv3d'), _convolution),
    **dict.fromkeys(
        ('conv_transpose1d', 'conv_transpose2d', 'conv_transpose3d'), _transposed_convolution),
    'convolution': _any_convolution,
    **dict.fromkeys(('linear', 'matmul', 'mm', 'mv', 'bmm', 'partial_product'), _product),
    **dict.fromkeys(('addmm', 'addmv', 'baddbmm', 'partial_linear'), _contracting_second),
    **dict.fromkeys((
        'partial_attention', 'scaled_dot_product_attention',
        'scaled_dot_product_flash_attention_for_cpu'), _attention),
    'einsum': _einsum,
    **dict.fromkeys(('cdist', 'cdist_forward'), _distances),
    **dict.fromkeys(('gru', 'lstm', 'rnn_relu', 'rnn_tanh'), _recurrence),
    **dict.fromkeys(('grid_sampler', 'grid_sampler_2d', 'grid_sampler_3d'), _samples),
    **dict.fromkeys(
        ('fft_c2c', 'fft_c2r', 'fft_fft2', 'fft_fftn', 'fft_ifft2', 'fft_irfft2', 'fft_irfftn',
         'fft_r2c', 'fft_rfft2', 'fft_rfftn'), _fourier),
    **{f'{kind}_pool{n}d{suffix}': _windows
       for kind in ('max', 'avg') for n in (1, 2, 3) for suffix in ('', '_with_indices')},
}
