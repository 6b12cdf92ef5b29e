# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A captured graph in double precision, where an error of logic stands out from rounding."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from intradp_ros.graph.arguments import type_of
from intradp_ros.graph.operator_graph import (
    iter_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    Value,
    ValueRef,
)
from intradp_ros.graph.rewrite import rebuild


def in_double(graph: OperatorGraph) -> OperatorGraph:
    """
    Return the graph with float64 in place of every other floating point dtype.

    Where an operator makes floats of something else (a quotient of integers,
    say), of a dtype that nobody names, its result is converted.
    """
    graph = _name_dtypes(graph)
    return replace(
        graph,
        values=tuple(replace(value, dtype=widened(value.dtype)) for value in graph.values),
        operators=tuple(replace(op, args=widened(op.args), kwargs=widened(op.kwargs))
                        for op in graph.operators),
        outputs=widened(graph.outputs), arguments=widened(graph.arguments),
        parameters={name: widened(tensor) for name, tensor in graph.parameters.items()})


def double_inputs(inputs: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return inputs for such a graph; integers stay as they are."""
    return tuple(widened(tensor) for tensor in inputs)


def _name_dtypes(graph: OperatorGraph) -> OperatorGraph:
    """Convert each result whose floating point dtype is the default one to that dtype."""
    values: list[Value] = []
    operators: list[Operator] = []
    for operator in graph.operators:
        made = [v for v in operator.outputs if v is not None] if _unnamed(graph, operator) else []
        renamed = {}
        conversions = []
        for value in (graph.values[v] for v in made if graph.values[v].dtype.is_floating_point):
            number = len(graph.values) + len(values)
            values.append(replace(value, id=number, name=f'{value.name}.default'))
            renamed[value.id] = number
            conversions.append(_conversion(values[-1], value))
        outputs = tuple(v if v is None else renamed.get(v, v) for v in operator.outputs)
        operators += [replace(operator, outputs=outputs), *conversions]
    return rebuild(graph, operators=operators, values=values) if values else graph


def _unnamed(graph: OperatorGraph, operator: Operator) -> bool:
    """Return whether neither an argument's dtype nor an operand's is a floating point one."""
    refs = iter_refs((operator.args, operator.kwargs), (ValueRef, ParameterRef))
    named = iter_refs((operator.args, operator.kwargs), torch.dtype)
    return not any(dtype.is_floating_point or dtype.is_complex
                   for dtype in (*named, *(type_of(graph, ref)[1] for ref in refs)))


def _conversion(source: Value, result: Value) -> Operator:
    return Operator(0, result.name, 'aten._to_copy.default', (ValueRef(source.id),),
                    {'dtype': result.dtype}, (result.id,))


def widened(item: Any) -> Any:
    """Return nested arguments with float64 in place of every floating point dtype and tensor."""
    if isinstance(item, torch.dtype):
        return torch.float64 if item.is_floating_point else item
    if isinstance(item, torch.Tensor):
        return item.double() if item.is_floating_point() else item
    if isinstance(item, (list, tuple)):
        return type(item)(widened(part) for part in item)
    if isinstance(item, Mapping):
        return {key: widened(part) for key, part in item.items()}
    return item
