# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An operator's arguments by their names in its schema, and what they refer to."""
from __future__ import annotations

from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, resolve_target, ValueRef


def arguments_of(operator: Operator) -> dict[str, Any]:
    """Return the arguments by name, with the schema's defaults where none is given."""
    named = {}
    for k, declared in enumerate(resolve_target(operator.target)._schema.arguments):
        if k < len(operator.args):
            named[declared.name] = operator.args[k]
        else:
            named[declared.name] = operator.kwargs.get(declared.name, declared.default_value)
    return named


def type_of(graph: OperatorGraph, ref: Any) -> tuple[tuple[int, ...], torch.dtype]:
    """Return shape and dtype of the tensor that a reference stands for."""
    if isinstance(ref, ValueRef):
        value = graph.values[ref.value]
        return value.shape, value.dtype
    tensor = graph.parameters[ref.name]
    return tuple(tensor.shape), tensor.dtype
