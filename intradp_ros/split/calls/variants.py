# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Kernel variants: other ways to compute an operator, equal within rounding.

``packed`` keeps the weight in oneDNN's own order, which plain calls make
anew every time (most of the fixed cost of late layers); a convolution's is
the one that oneDNN wants for just as many rows, since with another it falls
back on reference kernels, up to a hundred times slower.  ``channels_last``
keeps it in the layout in which every pixel's channels are side by side.
Both return convolutions in that layout, and what follows keeps it.
``separable`` takes maximum pools dimension by dimension, with vector
instructions in either layout.  Which one is fastest is up to the device.
"""
from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, ParameterRef, ValueRef
from intradp_ros.graph.paging import page_out
from intradp_ros.split.calls.call import Call, Implementation
from intradp_ros.split.calls.site import per_dim
from intradp_ros.split.kernel_device import HOST
from intradp_ros.split.local_operator import Kernel, Parameters

PLAIN, CHANNELS_LAST, PACKED, SEPARABLE = 'plain', 'channels_last', 'packed', 'separable'
LAYOUTS = {4: torch.channels_last, 5: torch.channels_last_3d}
"""Memory formats by rank in which rows of a single image are one block of memory."""

Packs = dict[Hashable, torch.Tensor]
Shape = tuple[int, ...]

#: Dtypes whose convolutions have other variants; packed weights are of the first one.
_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_CONVOLUTIONS = frozenset(
    [f'aten.conv{n}d.{overload}' for n in (2, 3) for overload in ('default', 'padding')]
    + ['aten.convolution.default'])
_POOLS = {f'aten.max_pool{n}d{suffix}.default': n
          for n in (1, 2, 3) for suffix in ('', '_with_indices')}


def variants_of(graph: OperatorGraph, operator: Operator) -> tuple[str, ...]:
    """Return the variants of an operator besides the plain one; none where it is not certain."""
    if operator.target in _CONVOLUTIONS and _has_float_weight(graph, operator):
        rank = len(graph.values[operator.inputs[0]].shape)
        weight = graph.parameters[operator.parameters[0]]
        call = Call.of(graph, operator)
        transposed = call.has('transposed') and bool(call.argument('transposed'))
        if rank == weight.dim() and not transposed:
            return (CHANNELS_LAST, *_packed(weight))
    if operator.target == 'aten.linear.default' and _has_float_weight(graph, operator):
        return _packed(graph.parameters[operator.parameters[0]])
    if operator.target in _POOLS and _can_separate(graph, operator):
        return (SEPARABLE,)
    return ()


@dataclass(frozen=True)
class Place:
    """
    Where a call is made: what it gives, from what, and the weights made for it before.

    `result` is the shape of the rows that are wanted, and `dim` their
    dimension (None if it is not split); `source` is the shape of the whole
    first input, of which `fed` rows are given (None: all).
    """

    packs: Packs
    source: Shape
    result: Shape
    dim: int | None
    fed: int | None = None


Make = Callable[[Call, Parameters, Place], 'Kernel | None']


def implementation(variant: str, place: Place) -> Implementation:
    """Return how a variant makes calls for some rows."""
    def make(call: Call, tensors: Parameters, fed: int | None) -> Kernel | None:
        maker = _MAKERS.get((variant, call.function))
        return maker(call, tensors, replace(place, fed=fed)) if maker else None

    return make


def in_layout(tensor: torch.Tensor) -> torch.Tensor:
    """Return an image or volume with all channels of a pixel side by side in memory."""
    return tensor.contiguous(memory_format=LAYOUTS[tensor.dim()])


@lru_cache(maxsize=1)
def can_pack() -> bool:
    """Return whether this build of torch and this processor take packed weights."""
    try:
        weight = torch.ops.mkldnn._reorder_convolution_weight(torch.zeros(8, 8, 3, 3))
        torch.ops.mkldnn._get_mkldnn_serialized_md(weight)
        torch.ops.mkldnn._convolution_pointwise(
            torch.zeros(1, 8, 4, 4), weight, None, [1, 1], [1, 1], [1, 1], 1, 'none', [], '')
        torch.ops.mkldnn._linear_pointwise(
            torch.zeros(1, 8), torch.ops.mkldnn._reorder_linear_weight(torch.zeros(8, 8)), None,
            'none', [], '')
    except (RuntimeError, AttributeError, NotImplementedError, TypeError):
        return False
    return True


def _packed(weight: torch.Tensor) -> tuple[str, ...]:
    packs = weight.device.type == HOST.name and weight.dtype == _FLOATS[0]
    return (PACKED,) if packs and can_pack() else ()


def _has_float_weight(graph: OperatorGraph, operator: Operator) -> bool:
    """Return whether values and weights are single or half precision, and the weights constant."""
    call = Call.of(graph, operator)
    value, weight, bias = call.args[0], call.argument('weight'), call.argument('bias')
    if not isinstance(value, ValueRef):
        return False
    dtype = graph.values[value.value].dtype
    if not isinstance(weight, ParameterRef) or isinstance(bias, ValueRef):
        return False
    tensors = [graph.parameters[ref.name] for ref in (weight, bias) if ref is not None]
    return dtype in _FLOATS and all(t.dtype == dtype and t.is_contiguous() for t in tensors)


def _can_separate(graph: OperatorGraph, operator: Operator) -> bool:
    call = Call.of(graph, operator)
    return graph.values[operator.inputs[0]].dtype.is_floating_point \
        and not call.argument('ceil_mode') and all(v is None for v in operator.outputs[1:])


def _convolve_channels_last(call: Call, tensors: Parameters, place: Place) -> Kernel | None:
    name = call.argument('weight').name
    weight = _kept(place.packs, (name, CHANNELS_LAST), tensors[name], in_layout)
    return call.compile(ChainMap({name: weight}, tensors))  # type: ignore[arg-type]


def _convolve_packed(call: Call, tensors: Parameters, place: Place) -> Kernel | None:
    name, bias = call.argument('weight').name, call.argument('bias')
    weight = tensors[name]
    spatial = weight.dim() - 2
    stride, dilation = (per_dim(call.argument(a), spatial) for a in ('stride', 'dilation'))
    padding, groups = _numeric(call, weight.shape[2:], dilation), call.argument('groups')
    if padding is None:
        return None
    fed = [place.result[0], *place.source[1:]]
    if place.dim is not None and place.fed is not None:
        fed[place.dim] = place.fed
    packed = _packed_for(place.packs, name, weight, (padding, stride, dilation, groups, fed))
    rest: Any = (packed, tensors[bias.name] if bias else None, padding, stride, dilation, groups,
                 'none', [], '')
    function = torch.ops.mkldnn._convolution_pointwise.default
    return lambda x: function(x[0], *rest)


def _packed_for(packs: Packs, name: str, weight: torch.Tensor, case: Sequence[Any],
                ) -> torch.Tensor:
    """
    Return a convolution's weight in the order that oneDNN wants for a case.

    `case` is padding, stride, dilation, groups and the shape of the input.
    Cases share the few orders there are.
    """
    def ordered(plain: torch.Tensor) -> torch.Tensor:
        packed = torch.ops.mkldnn._reorder_convolution_weight(plain, *case)
        described = torch.ops.mkldnn._get_mkldnn_serialized_md(packed).numpy().tobytes()
        return packs.setdefault((name, described), packed)

    return _kept(packs, (name, repr(case)), weight, ordered)


def _numeric(call: Call, sizes: Sequence[int], dilation: list[int]) -> list[int] | None:
    """Return equal padding on both sides as numbers; None where the sides differ."""
    padding = call.argument('padding')
    if padding == 'valid':
        return [0] * len(sizes)
    if padding == 'same':
        totals = [d * (k - 1) for d, k in zip(dilation, sizes)]
        return None if any(total % 2 for total in totals) else [t // 2 for t in totals]
    return per_dim(padding, len(sizes))


def _multiply_packed(call: Call, tensors: Parameters, place: Place) -> Kernel | None:
    name, bias = call.argument('weight').name, call.argument('bias')
    packed = _kept(place.packs, (name, PACKED), tensors[name],
                   torch.ops.mkldnn._reorder_linear_weight)
    rest: Any = (packed, tensors[bias.name] if bias else None, 'none', [], '')
    function = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: function(x[0], *rest)


def _kept(packs: Packs, key: Hashable, weight: torch.Tensor,
          make: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """Return a weight in another order, made once; the plain one need not stay in memory then."""
    if key not in packs:
        packs[key] = make(weight)
        page_out(weight)
    return packs[key]


def _pool_separably(call: Call, tensors: Parameters, place: Place, spatial: int) -> Kernel | None:
    sizes = per_dim(call.argument('kernel_size'), spatial)
    steps = per_dim(call.argument('stride') or sizes, spatial)
    padding, dilations = (
        per_dim(call.argument(a), spatial) for a in ('padding', 'dilation'))
    pads = [rows for pad in reversed(padding) for rows in (pad, pad)]
    windows = [(at - spatial, *window)
               for at, window in enumerate(zip(sizes, steps, dilations)) if window[:2] != (1, 1)]

    def pool(x: Sequence[torch.Tensor]) -> torch.Tensor:
        result = torch.constant_pad_nd(x[0], pads, float('-inf')) if any(pads) else x[0]
        for dim, size, step, dilation in windows:
            result = _greatest(result, dim, size, step, dilation)
        return result

    return pool if windows else None


def _greatest(x: torch.Tensor, dim: int, size: int, step: int, dilation: int) -> torch.Tensor:
    """Return the greatest of the elements under each window along one dimension."""
    count = (x.shape[dim] - dilation * (size - 1) - 1) // step + 1
    reach = (count - 1) * step + 1
    taps = [torch.ops.aten.slice.Tensor(x, dim, k * dilation, k * dilation + reach, step)
            for k in range(size)]
    result: torch.Tensor = taps[0].clone() if size == 1 else torch.maximum(taps[0], taps[1])
    for tap in taps[2:]:
        torch.maximum(result, tap, out=result)
    return result


_ATEN = torch.ops.aten
_MAKERS: dict[tuple[str, Any], Make] = {
    **{(variant, function): maker
       for variant, maker in ((CHANNELS_LAST, _convolve_channels_last), (PACKED, _convolve_packed))
       for function in (_ATEN.conv2d.default, _ATEN.conv2d.padding, _ATEN.conv3d.default,
                        _ATEN.conv3d.padding, _ATEN.convolution.default)},
    (PACKED, _ATEN.linear.default): _multiply_packed,
    **{(SEPARABLE, function): partial(_pool_separably, spatial=n)
       for n, functions in (
           (1, (_ATEN.max_pool1d.default, _ATEN.max_pool1d_with_indices.default)),
           (2, (_ATEN.max_pool2d.default, _ATEN.max_pool2d_with_indices.default)),
           (3, (_ATEN.max_pool3d.default, _ATEN.max_pool3d_with_indices.default)))
       for function in functions},
}
