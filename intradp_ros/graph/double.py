# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A captured graph in double precision, where an error of logic stands out from rounding."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from intradp_ros.graph.operator_graph import OperatorGraph


def in_double(graph: OperatorGraph) -> OperatorGraph:
    """Return the graph with float64 in place of every other floating point dtype."""
    return replace(
        graph,
        values=tuple(replace(value, dtype=_wide(value.dtype)) for value in graph.values),
        operators=tuple(replace(op, args=_wide(op.args), kwargs=_wide(op.kwargs))
                        for op in graph.operators),
        outputs=_wide(graph.outputs), arguments=_wide(graph.arguments),
        parameters={name: _wide(tensor) for name, tensor in graph.parameters.items()})


def double_inputs(inputs: Iterable[torch.Tensor]) -> tuple[torch.Tensor, ...]:
    """Return inputs for such a graph; integers stay as they are."""
    return tuple(_wide(tensor) for tensor in inputs)


def _wide(item: Any) -> Any:
    """Widen dtypes and tensors wherever they stand in nested arguments."""
    if isinstance(item, torch.dtype):
        return torch.float64 if item.is_floating_point else item
    if isinstance(item, torch.Tensor):
        return item.double() if item.is_floating_point() else item
    if isinstance(item, (list, tuple)):
        return type(item)(_wide(part) for part in item)
    if isinstance(item, Mapping):
        return {key: _wide(part) for key, part in item.items()}
    return item
