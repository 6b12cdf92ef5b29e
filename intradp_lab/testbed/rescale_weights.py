# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Weights under which the output of a captured network depends on its input.

With the random weights of an untrained network, signals often die out on
their way, and then rows that are wrong change nothing.  For checks, weights
may be others: a schedule does not depend on them.  (`operators.calibrate`
does as much to a module, before it is captured.)
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from intradp_ros.graph.operator_graph import (
    callee,
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    ValueRef,
)
from intradp_ros.graph.reference_evaluation import values_freed_after
from intradp_ros.split.checks.verify import output_error

_LAYERS = ('aten.conv1d.', 'aten.conv2d.', 'aten.conv3d.', 'aten.conv_transpose', 'aten.linear.')
#: Standard deviation of a layer's output over its positions, and of what is added to channels.
_SPREAD, _SHIFT = 0.5, 0.3
_FEWEST_POSITIONS = 4
_TINY = 1e-30
#: Another input must change an output by this part of its spread at least.
LEAST_REACTION = 0.05


def reaction(one: Sequence[object], other: Sequence[object]) -> float:
    """
    Return how far outputs move from one input to another, the least of them.

    Of floating point outputs in units of their spread, of others the share of elements that
    change; infinite if there is no output.
    """
    return min((_moved(a, b) for a, b in zip(one, other)
                if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) and a.numel()),
               default=float('inf'))


def _moved(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.is_floating_point():
        return output_error('', b, a).relative
    return (a != b).double().mean().item()


def rescale_weights(graph: OperatorGraph, inputs: Sequence[torch.Tensor]) -> OperatorGraph:
    """
    Return the graph with convolutions and linear layers rescaled on an input.

    Each layer's output then varies with standard deviation 0.5 from position
    to position, or from channel to channel where there are few positions.
    """
    parameters = dict(graph.parameters)
    values = dict(zip(graph.inputs, inputs))
    generator = torch.Generator().manual_seed(0)
    adjusted: set[str] = set()

    def fetch(ref: ValueRef | ParameterRef) -> torch.Tensor:
        return values[ref.value] if isinstance(ref, ValueRef) else parameters[ref.name]

    def run(operator: Operator) -> object:
        return callee(graph, operator)(*map_refs(operator.args, fetch),
                                       **map_refs(operator.kwargs, fetch))

    with torch.inference_mode():
        for operator, free in zip(graph.operators, values_freed_after(graph)):
            if _is_layer(operator) and adjusted.isdisjoint(operator.parameters):
                weight, *bias = operator.parameters
                parameters.update({name: torch.zeros_like(parameters[name]) for name in bias})
                factor, shift = _adjustment(operator, run(operator), generator)
                parameters[weight] = parameters[weight] * factor
                parameters.update({name: shift.to(parameters[name].dtype) for name in bias})
                adjusted |= {weight, *bias}
            result = run(operator)
            several = result if isinstance(result, (list, tuple)) else (result,)
            values.update({v: r for v, r in zip(operator.outputs, several) if v is not None})
            for value in free:
                del values[value]
    return replace(graph, parameters=parameters)


def _is_layer(operator: Operator) -> bool:
    """Return whether an operator is a layer whose weight and bias are parameters themselves."""
    return operator.target.startswith(_LAYERS) and all(
        isinstance(arg, ParameterRef) for arg in operator.args[1:3] if arg is not None)


def _adjustment(operator: Operator, plain: object, generator: torch.Generator,
                ) -> tuple[float, torch.Tensor]:
    """Return the factor for a layer's weights, and its bias, from its output without bias."""
    assert isinstance(plain, torch.Tensor)
    dim = -1 if operator.target.startswith('aten.linear.') else 1
    channels = plain.movedim(dim, 0).flatten(1).double()
    shift = _SHIFT * torch.randn(len(channels), generator=generator, dtype=torch.float64)
    if channels.shape[1] < _FEWEST_POSITIONS:
        return _SPREAD / max(channels.std().item(), _TINY), shift
    variance = channels.var(1, unbiased=False).mean().item()
    factor = _SPREAD / max(variance ** 0.5, _TINY)
    return factor, shift - factor * channels.mean(1)
