# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The operator graph: a captured model as a DAG of operators over values.

Plain frozen data.  It knows shapes, dtypes and parameters, but nothing of
splitting, devices or links, so that every later floor can build on it.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from typing import Any

import torch

OPAQUE = 'module'
"""Target of the operator that is a whole model, where nothing finer could be captured."""


@dataclass(frozen=True, slots=True)
class ValueRef:
    """Stands for a value of the graph inside an operator's arguments."""

    value: int


@dataclass(frozen=True, slots=True)
class ParameterRef:
    """Stands for a parameter, buffer or constant inside an operator's arguments."""

    name: str


@dataclass(frozen=True, slots=True)
class Value:
    """A tensor that flows in the graph; `id` is its index in `OperatorGraph.values`."""

    id: int
    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the dense tensor."""
        return prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Operator:
    """
    One call of a functional ATen operator.

    `args` and `kwargs` are the call's arguments with `ValueRef` and
    `ParameterRef` in place of tensors, nested in lists and tuples as the
    operator takes them.  `outputs` names the value of each result; a result
    that nobody reads is None.  `id` is the index in `OperatorGraph.operators`.
    """

    id: int
    name: str
    target: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: tuple[int | None, ...]

    @cached_property
    def inputs(self) -> tuple[int, ...]:
        """Value ids read, in order of appearance; a value read twice stands twice."""
        return tuple(r.value for r in iter_refs((self.args, self.kwargs), ValueRef))

    @cached_property
    def parameters(self) -> tuple[str, ...]:
        """Names of parameters read, in order of appearance."""
        return tuple(r.name for r in iter_refs((self.args, self.kwargs), ParameterRef))


@dataclass(frozen=True)
class OperatorGraph:
    """
    A model as operators in topological order.

    `inputs` are the values that the caller supplies; `outputs` are the
    flattened results (a `ValueRef`, a `ParameterRef` for a result that is
    constant, or a plain constant); `output_tree` rebuilds the model's own
    structure from them (a `torch.utils._pytree` spec as text).  `arguments`
    and `input_tree` say the same of the call: the flattened arguments, with
    the inputs as `ValueRef` and everything else as the constant it was.
    `method` says how the graph was captured; after ``'module'`` its only
    operator is `opaque`, the model itself, whose results may have other
    shapes from call to call.
    """

    name: str
    values: tuple[Value, ...]
    operators: tuple[Operator, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Any, ...]
    output_tree: str
    parameters: Mapping[str, torch.Tensor] = field(repr=False, compare=False)
    arguments: tuple[Any, ...] = ()
    input_tree: str = ''
    method: str = 'export'
    opaque: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def producer(self) -> Mapping[int, int]:
        """Operator that produces a value, by value id; graph inputs are absent."""
        return {v: op.id for op in self.operators for v in op.outputs if v is not None}

    @cached_property
    def consumers(self) -> Mapping[int, tuple[int, ...]]:
        """Operators that read a value, ascending, by value id (empty where none)."""
        found: dict[int, list[int]] = {v.id: [] for v in self.values}
        for op in self.operators:
            for v in dict.fromkeys(op.inputs):
                found[v].append(op.id)
        return {v: tuple(ops) for v, ops in found.items()}

    @cached_property
    def output_values(self) -> tuple[int, ...]:
        """Value ids among the outputs, each once."""
        return tuple(dict.fromkeys(o.value for o in self.outputs if isinstance(o, ValueRef)))


def iter_refs(template: Any, kind: type | tuple[type, ...]) -> Iterator[Any]:
    """Yield the references of a kind (or kinds) in an argument template, depth first."""
    if isinstance(template, kind):
        yield template
    elif isinstance(template, (list, tuple)):
        for item in template:
            yield from iter_refs(item, kind)
    elif isinstance(template, Mapping):
        for item in template.values():
            yield from iter_refs(item, kind)


def map_refs(template: Any, replace: Any) -> Any:
    """Rebuild an argument template with `replace(ref)` in place of every reference."""
    if isinstance(template, (ValueRef, ParameterRef)):
        return replace(template)
    if isinstance(template, (list, tuple)):
        return type(template)(map_refs(item, replace) for item in template)
    if isinstance(template, Mapping):
        return {key: map_refs(item, replace) for key, item in template.items()}
    return template


def callee(graph: OperatorGraph, operator: Operator) -> Callable[..., Any]:
    """Return the function that an operator of this graph calls."""
    if operator.target == OPAQUE and graph.opaque is not None:
        return graph.opaque
    function: Callable[..., Any] = resolve_target(operator.target)
    return function


def resolve_target(target: str) -> Any:
    """
    Return the ATen overload that a target such as ``aten.conv2d.default`` names.

    :raises ValueError: if the name is not that of an operator overload torch knows.
    """
    namespace, _, rest = target.partition('.')
    packet, _, overload = rest.rpartition('.')
    try:
        return getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError as error:
        raise ValueError(f'torch knows no operator {target!r}') from error
