# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Expansions that element-wise operators do by themselves."""
from __future__ import annotations

from dataclasses import replace

import torch

from intradp_ros.graph.arguments import type_of
from intradp_ros.graph.operator_graph import (
    iter_refs,
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    resolve_target,
    ValueRef,
)
from intradp_ros.graph.rewrite import rebuild


def leave_out_expansions(graph: OperatorGraph) -> OperatorGraph:
    """
    Read what was expanded instead of the expansion, where broadcasting does the same.

    An expanded gate is a large value without rows of its own; what it was
    expanded from is small.
    """
    small = {
        op.outputs[0]: op.args[0] for op in graph.operators
        if op.target == 'aten.expand.default' and isinstance(op.args[0], ValueRef)}
    return rebuild(graph, operators=[_broadcast(graph, op, small) for op in graph.operators])


def _broadcast(
        graph: OperatorGraph, operator: Operator, small: dict[int | None, ValueRef]) -> Operator:
    """Return the operator with operands that it broadcasts, if it is one that does."""
    if not (small.keys() & set(operator.inputs) and _is_pointwise(operator.target)):
        return operator

    def unexpanded(ref: ValueRef | ParameterRef) -> ValueRef | ParameterRef:
        return small.get(ref.value, ref) if isinstance(ref, ValueRef) else ref

    changed = replace(operator, args=map_refs(operator.args, unexpanded),
                      kwargs=map_refs(operator.kwargs, unexpanded))
    refs = iter_refs((changed.args, changed.kwargs), (ValueRef, ParameterRef))
    shapes = (type_of(graph, ref)[0] for ref in refs)
    shape = torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call]
    result = graph.values[operator.outputs[0] or 0].shape
    return changed if tuple(shape) == result else operator


def _is_pointwise(target: str) -> bool:
    return torch.Tag.pointwise in getattr(resolve_target(target), 'tags', ())
