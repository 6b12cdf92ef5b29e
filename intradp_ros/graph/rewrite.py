# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rebuild an operator graph after operators were replaced or values identified."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import torch

from intradp_ros.graph.operator_graph import (
    iter_refs,
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    Value,
    ValueRef,
)


def rebuild(
        graph: OperatorGraph, *, operators: Iterable[Operator] | None = None,
        same: Mapping[int, Any] | None = None, values: Iterable[Value] = (),
        parameters: Mapping[str, torch.Tensor] | None = None) -> OperatorGraph:
    """
    Return the graph with changes, without what then is dead, and numbered anew.

    :param graph: the graph before.
    :param operators: all operators, in topological order, if they changed.
    :param same: by value id: the reference (to another value or a parameter) that stands for the
        value from now on.
    :param values: new values, numbered on from the graph's last one.
    :param parameters: new parameters, by name.
    """
    every = (*graph.values, *values)
    known = {**graph.parameters, **(parameters or {})}

    def follow(ref: Any) -> Any:
        while same and isinstance(ref, ValueRef) and ref.value in same:
            ref = same[ref.value]
        return ref

    outputs = tuple(follow(ref) for ref in graph.outputs)
    changed = [
        replace(op, args=map_refs(op.args, follow), kwargs=map_refs(op.kwargs, follow))
        for op in (graph.operators if operators is None else operators)]
    live = live_operators(changed, outputs)
    return _renumber(graph, every, live, outputs, known)


def unique_name(name: str, taken: Mapping[str, Any]) -> str:
    """Return the name, with a number if it is taken."""
    count, free = 0, name
    while free in taken:
        count += 1
        free = f'{name}.{count}'
    return free


def live_operators(operators: Iterable[Operator], outputs: tuple[Any, ...]) -> list[Operator]:
    """Drop operators whose results nobody reads; results that nobody reads become None."""
    needed = {ref.value for ref in iter_refs(outputs, ValueRef)}
    live = []
    for op in reversed(list(operators)):
        results = tuple(v if v in needed else None for v in op.outputs)
        if any(v is not None for v in results):
            needed.update(op.inputs)
            live.append(replace(op, outputs=results))
    return live[::-1]


def _renumber(
        graph: OperatorGraph, values: tuple[Value, ...], operators: list[Operator],
        outputs: tuple[Any, ...], parameters: Mapping[str, torch.Tensor]) -> OperatorGraph:
    order = [*graph.inputs, *(v for op in operators for v in op.outputs if v is not None)]
    number = {old: new for new, old in enumerate(order)}
    used = {name for op in operators for name in op.parameters}
    used.update(ref.name for ref in iter_refs(outputs, ParameterRef))

    def renamed(ref: Any) -> Any:
        return ValueRef(number[ref.value]) if isinstance(ref, ValueRef) else ref

    return replace(
        graph,
        values=tuple(replace(values[old], id=new) for new, old in enumerate(order)),
        operators=tuple(
            replace(op, id=k, args=map_refs(op.args, renamed),
                    kwargs=map_refs(op.kwargs, renamed),
                    outputs=tuple(None if v is None else number[v] for v in op.outputs))
            for k, op in enumerate(operators)),
        inputs=tuple(number[v] for v in graph.inputs),
        arguments=tuple(renamed(ref) for ref in graph.arguments),
        outputs=tuple(renamed(ref) for ref in outputs),
        parameters={name: t for name, t in parameters.items() if name in used})
