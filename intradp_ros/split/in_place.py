# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Element-wise operators that may write over their first input, since nobody reads it again."""
from __future__ import annotations

from functools import cache
from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, resolve_target, ValueRef
from intradp_ros.split.calls.call import Call, Implemented
from intradp_ros.split.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.split.rules.pointwise import is_pointwise

_FRESH = frozenset(
    [f'aten.conv{n}d.{overload}' for n in (1, 2, 3) for overload in ('default', 'padding')]
    + ['aten.convolution.default', 'aten.linear.default', 'aten.conv_transpose1d.default',
       'aten.conv_transpose2d.input', 'aten.conv_transpose3d.input']
    + [f'aten.{name}_pool{n}d.default' for name in ('max', 'avg') for n in (1, 2, 3)]
    + ['aten.batch_norm.default', 'aten._native_batch_norm_legit_no_training.default'])
"""Operators other than element-wise ones that return memory of their own."""
_ELEMENTWISE = frozenset(['aten.hardswish.default'])
"""Element-wise operators that ATen does not declare so."""
_SOMETIMES_SAME = frozenset(['aten.conj_physical.default'])
"""Element-wise operators that may return their argument itself."""


def overwritable(split: SplitGraph) -> frozenset[int]:
    """
    Return the operators that may overwrite their first input once it is read for the last time.

    The input has memory of its own that nothing else shows: it comes from an
    operator that made it anew, and nobody who reads it returns a view of it.
    Whether a piece of it is read for the last time, and is not a transfer, is
    known to the program alone.
    """
    return frozenset(op.operator.id for op in split.operators if _is_overwritable(split, op))


def in_place(op: LocalOperator, region: Region, parameters: Parameters) -> Kernel:
    """Bind an operator to a region so that it overwrites its first input where it can."""
    return op.bind(region, Implemented(parameters, _overwrite))


def _overwrite(call: Call, tensors: Parameters, fed: int | None) -> Kernel | None:
    function = _in_place_of(call.function)
    return Call(function, call.args, call.kwargs).compile(tensors, fed) if function else None


def _is_overwritable(split: SplitGraph, op: LocalOperator) -> bool:
    graph, operator = split.graph, op.operator
    first = operator.args[0] if operator.args else None
    if not isinstance(first, ValueRef) or len(operator.outputs) != 1 \
            or operator.outputs[0] is None or operator.inputs.count(first.value) > 1:
        return False
    value, output = graph.values[first.value], graph.values[operator.outputs[0]]
    return value.dtype.is_floating_point \
        and (value.shape, value.dtype) == (output.shape, output.dtype) \
        and split.dims[value.id] == split.dims[output.id] \
        and not {value.id, output.id} & split.folded \
        and _has_in_place(operator.target) and _is_own(graph, value.id)


def _is_own(graph: OperatorGraph, value: int) -> bool:
    """Return whether a value has memory that no other value shows, graph outputs included."""
    producer = graph.producer.get(value)
    return producer is not None and value not in graph.output_values \
        and _is_fresh(graph.operators[producer]) \
        and all(_is_fresh(graph.operators[reader]) for reader in graph.consumers[value])


def _is_fresh(operator: Operator) -> bool:
    return operator.target in _FRESH or _has_in_place(operator.target)


@cache
def _has_in_place(target: str) -> bool:
    if not target.startswith('aten.') or target in _SOMETIMES_SAME:
        return False
    function = resolve_target(target)
    return (is_pointwise(function) or target in _ELEMENTWISE) \
        and _in_place_of(function) is not None


@cache
def _in_place_of(function: Any) -> Any:
    """Return the overload that writes its result over the first argument, None without one."""
    schema = getattr(function, '_schema', None)
    if schema is None:
        return None
    packet = getattr(torch.ops.aten, f'{schema.name.partition("::")[2]}_', None)
    overload = getattr(packet, function._overloadname, None)
    if overload is None:
        return None
    same = [a.name for a in overload._schema.arguments] == [a.name for a in schema.arguments]
    written = overload._schema.arguments[0].alias_info
    return overload if same and written is not None and written.is_write else None
