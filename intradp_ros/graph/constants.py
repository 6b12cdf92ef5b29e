# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Operators whose results do not depend on the model's inputs."""
from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from intradp_ros.graph.operator_graph import (
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    resolve_target,
    ValueRef,
)
from intradp_ros.graph.rewrite import rebuild, unique_name

LARGEST_CONSTANT = 64 * 2**20
"""Bytes up to which a constant may grow beyond the parameters that it is computed from."""


def fold_constants(graph: OperatorGraph) -> OperatorGraph:
    """Compute operators that read only parameters, or nothing, and keep their results."""
    known = dict(graph.parameters)
    same: dict[int, ParameterRef] = {}
    for operator in graph.operators:
        if all(v in same for v in operator.inputs) and not _arbitrary(operator):
            results = _compute(operator, known, same)
            read = sum(known[name].nbytes for name in operator.parameters)
            if sum(result.nbytes for result in results) > max(read, LARGEST_CONSTANT):
                continue
            for value, result in zip(operator.outputs, results):
                if value is not None:
                    name = unique_name(graph.values[value].name, known)
                    known[name] = result
                    same[value] = ParameterRef(name)
    return rebuild(graph, same=same, parameters=known)


def _compute(
        operator: Operator, known: Mapping[str, torch.Tensor],
        same: Mapping[int, ParameterRef]) -> Sequence[torch.Tensor]:
    def fetch(ref: ValueRef | ParameterRef) -> torch.Tensor:
        return known[(same[ref.value] if isinstance(ref, ValueRef) else ref).name]

    with torch.inference_mode(False), torch.no_grad():
        result = resolve_target(operator.target)(
            *map_refs(operator.args, fetch), **map_refs(operator.kwargs, fetch))
    return result if isinstance(result, (list, tuple)) else (result,)


def _arbitrary(operator: Operator) -> bool:
    """Tell whether the operator draws random numbers or leaves its result unset."""
    tags = resolve_target(operator.target).tags
    return 'empty' in operator.target or torch.Tag.nondeterministic_seeded in tags
