# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reference evaluation of a whole operator graph, operator by operator."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from intradp_ros.graph.graph_errors import GraphInputError
from intradp_ros.graph.operator_graph import (
    callee,
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    Value,
    ValueRef,
)


def run_graph(graph: OperatorGraph, inputs: Sequence[torch.Tensor]) -> list[Any]:
    """
    Evaluate the graph on its flattened inputs and return its flattened outputs.

    Every value is freed after its last use.  Nothing is split or optimised:
    this is the result that every other way to run the graph must reproduce.

    :raises GraphInputError: if an input has another shape or dtype than the graph was captured
        with.
    """
    check_inputs(graph, inputs)
    values: dict[int, torch.Tensor] = dict(zip(graph.inputs, inputs))
    freed = values_freed_after(graph)

    def fetch(ref: ValueRef | ParameterRef) -> torch.Tensor:
        if isinstance(ref, ValueRef):
            return values[ref.value]
        return graph.parameters[ref.name]

    with torch.inference_mode():
        for operator, free in zip(graph.operators, freed):
            function = callee(graph, operator)
            args, kwargs = map_refs(operator.args, fetch), map_refs(operator.kwargs, fetch)
            values.update(named_results(operator, function(*args, **kwargs)))
            for value in free:
                del values[value]
        return list(map_refs(graph.outputs, fetch))


def check_inputs(graph: OperatorGraph, inputs: Sequence[torch.Tensor]) -> None:
    """
    Compare flattened inputs with the graph's own.

    :raises GraphInputError: if count, shape or dtype differ; names the input.
    """
    if len(inputs) != len(graph.inputs):
        raise GraphInputError(
            f'model {graph.name!r} takes {len(graph.inputs)} tensors, got {len(inputs)}')
    for value, given in zip((graph.values[i] for i in graph.inputs), inputs):
        if tuple(given.shape) != value.shape or given.dtype != value.dtype:
            raise GraphInputError(
                f'input {value.name!r} must be {describe(value)} as in the captured example, '
                f'got {describe(given)}; capture the model again for another shape or dtype')


def describe(tensor: torch.Tensor | Value) -> str:
    """Return dtype and shape as in ``float32[1, 3, 224, 224]``."""
    return f'{str(tensor.dtype).removeprefix("torch.")}{list(tensor.shape)}'


def values_freed_after(graph: OperatorGraph) -> list[tuple[int, ...]]:
    """Return for each operator the values that nobody reads after it; graph outputs stay."""
    last: dict[int, int] = {}
    for operator in graph.operators:
        for value in (*operator.outputs, *operator.inputs):
            if value is not None:
                last[value] = operator.id
    kept = set(graph.output_values)
    freed: list[list[int]] = [[] for _ in graph.operators]
    for value, operator_id in last.items():
        if value not in kept:
            freed[operator_id].append(value)
    return [tuple(free) for free in freed]


def named_results(operator: Operator, result: Any) -> dict[int, torch.Tensor]:
    """Pair an operator's result, a tensor or several, with the ids of its values."""
    results = result if isinstance(result, (list, tuple)) else (result,)
    return {value: item for value, item in zip(operator.outputs, results) if value is not None}


