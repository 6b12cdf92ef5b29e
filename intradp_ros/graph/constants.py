# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Operators whose results do not depend on the model's inputs.

Floating point numbers are computed in double precision and rounded: sines, sums and products in
single precision differ between processors in their last bit, and with them
the digest of a model that robot and server capture each for itself.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from intradp_ros.graph.compare import explained_by_rounding
from intradp_ros.graph.operator_graph import (
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    resolve_target,
    ValueRef,
)
from intradp_ros.graph.rewrite import rebuild, unique_name
from intradp_ros.graph.to_float64 import widened

LARGEST_CONSTANT = 64 * 2**20
"""Bytes up to which a constant may grow beyond the parameters that it is computed from."""


def fold_constants(graph: OperatorGraph) -> OperatorGraph:
    """Compute operators that read only parameters, or nothing, and keep their results."""
    known = dict(graph.parameters)
    same: dict[int, ParameterRef] = {}
    for operator in graph.operators:
        if not _is_constant(operator, same) or not _is_small(graph, operator, known, same):
            continue
        for value, result in zip(operator.outputs, _compute(graph, operator, known, same)):
            if value is not None:
                name = unique_name(graph.values[value].name, known)
                known[name] = result
                same[value] = ParameterRef(name)
    return rebuild(graph, same=same, parameters=known)


_SHAPE_ONLY = ('zeros_like', 'ones_like', 'full_like', 'new_zeros', 'new_ones', 'new_full')
"""Operators that read nothing of their input but its shape and dtype."""


def _is_constant(operator: Operator, same: Mapping[int, ParameterRef]) -> bool:
    tags = resolve_target(operator.target).tags
    if 'empty' in operator.target or torch.Tag.nondeterministic_seeded in tags:
        return False  # unset or random
    return operator.target.split('.')[1] in _SHAPE_ONLY or all(v in same for v in operator.inputs)


def _is_small(
        graph: OperatorGraph, operator: Operator, known: Mapping[str, torch.Tensor],
        same: Mapping[int, ParameterRef]) -> bool:
    read = [*operator.parameters, *(same[v].name for v in operator.inputs if v in same)]
    made = sum(graph.values[v].nbytes for v in operator.outputs if v is not None)
    return made <= max(LARGEST_CONSTANT, sum(known[name].nbytes for name in read))


def _compute(
        graph: OperatorGraph, operator: Operator, known: Mapping[str, torch.Tensor],
        same: Mapping[int, ParameterRef]) -> Sequence[torch.Tensor]:
    def fetch(ref: ValueRef | ParameterRef) -> torch.Tensor:
        if isinstance(ref, ParameterRef):
            return known[ref.name]
        if ref.value in same:
            return known[same[ref.value].name]
        value = graph.values[ref.value]
        return torch.empty(value.shape, dtype=value.dtype)

    args, kwargs = map_refs(operator.args, fetch), map_refs(operator.kwargs, fetch)
    with torch.inference_mode(False), torch.no_grad():
        results = _call(operator, args, kwargs)
        if _computes_floats(operator, results):
            return _rounded(results, operator, args, kwargs)
    return results


def _call(operator: Operator, args: Any, kwargs: Any) -> Sequence[torch.Tensor]:
    result = resolve_target(operator.target)(*args, **kwargs)
    return result if isinstance(result, (list, tuple)) else (result,)


def _computes_floats(operator: Operator, results: Sequence[torch.Tensor]) -> bool:
    """Return whether an operator makes floating point numbers, and is not just another view."""
    views = any(each.alias_info for each in resolve_target(operator.target)._schema.returns)
    return not views and any(x.is_floating_point() for x in results)


def _rounded(results: Sequence[torch.Tensor], operator: Operator, args: Any, kwargs: Any,
             ) -> Sequence[torch.Tensor]:
    """Return what the operator makes in double precision, if that is the same but for rounding."""
    try:
        wide = _call(operator, widened(args), widened(kwargs))
    except (RuntimeError, TypeError):
        return results  # there is no such operator of float64
    rounded = [each.to(x.dtype) if x.is_floating_point() else x for each, x in zip(wide, results)]
    return rounded if explained_by_rounding(results, rounded) else results
