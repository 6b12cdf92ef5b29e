# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How much longer than forward a network runs backward, measured as a whole."""
from __future__ import annotations

from collections.abc import Sequence
import statistics
import time
from typing import Any

import torch

from intradp_ros.graph.operator_graph import (
    callee,
    map_refs,
    OperatorGraph,
    ParameterRef,
    ValueRef,
)
from intradp_ros.graph.reference_evaluation import named_results


def backward_factor(graph: OperatorGraph, inputs: Sequence[torch.Tensor], rounds: int = 3,
                    ) -> float | None:
    """
    Return backward seconds of a captured network in forward ones; None if it cannot run backward.

    Both passes are timed after each other; the figure is the middle of
    `rounds` quotients, after one that is not counted.
    """
    parameters = {name: value.detach().clone().requires_grad_(value.is_floating_point())
                  for name, value in graph.parameters.items()}
    found = []
    for _ in range(rounds + 1):
        try:
            found.append(_quotient(graph, parameters, inputs))
        except (RuntimeError, NotImplementedError):  # an operator without a derivative
            return None
    return statistics.median(found[1:])


def _quotient(graph: OperatorGraph, parameters: dict[str, torch.Tensor],
              inputs: Sequence[torch.Tensor]) -> float:
    with torch.enable_grad():
        begun = time.perf_counter()
        results = [r for r in _run(graph, parameters, inputs) if r.requires_grad]
        middle = time.perf_counter()
        if not results:
            raise RuntimeError('nothing has a gradient')
        torch.autograd.backward(results, [torch.ones_like(r) for r in results])
        ended = time.perf_counter()
    return (ended - middle) / (middle - begun)


def _run(graph: OperatorGraph, parameters: dict[str, torch.Tensor],
         inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    values: dict[int, Any] = {v: x.detach().clone() for v, x in zip(graph.inputs, inputs)}

    def fetch(ref: ValueRef | ParameterRef) -> Any:
        return values[ref.value] if isinstance(ref, ValueRef) else parameters[ref.name]

    for operator in graph.operators:
        args, kwargs = map_refs(operator.args, fetch), map_refs(operator.kwargs, fetch)
        values.update(named_results(operator, callee(graph, operator)(*args, **kwargs)))
    outputs = map_refs(graph.outputs, fetch)
    return [value for value in outputs if isinstance(value, torch.Tensor)]
