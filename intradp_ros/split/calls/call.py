# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An operator's call: its arguments by name, and kernels that make the call."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from typing import Any

import torch

from intradp_ros.graph.operator_graph import (
    callee,
    iter_refs,
    map_refs,
    Operator,
    OperatorGraph,
    ParameterRef,
    ValueRef,
)
from intradp_ros.split.calls.bfloat16_convolution import without_errors
from intradp_ros.split.local_operator import Kernel, Parameters

Fetch = Callable[[Sequence[torch.Tensor]], Any]
Implementation = Callable[['Call', Parameters, 'int | None'], 'Kernel | None']

# A view may refuse a tensor with other strides than the captured one had
# (rows cut out of it, say); reshape takes any and copies only where it must.
_STRIDE_FREE = {
    'aten.view.default': torch.ops.aten.reshape.default,
    'aten._unsafe_view.default': torch.ops.aten.reshape.default,
}
_PLAIN: dict[Any, Callable[..., Any]] = {}


def call_plainly(function: Any, plain: Callable[..., Any]) -> None:
    """Let kernels call the Python function behind an operator, and spare them the detour."""
    _PLAIN[function] = plain


class Implemented(Mapping[str, torch.Tensor]):
    """
    A model's tensors by name, with another way to make the calls that read them.

    `implementation` gets a call, the tensors, and how many rows it is given, as
    for `compile`.  It returns a kernel that takes and returns the same, or None
    for a call that it cannot make.
    """

    def __init__(self, tensors: Parameters, implementation: Implementation) -> None:
        self.tensors, self.implementation = tensors, implementation

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return a tensor as the model has it."""
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        """Iterate over the names."""
        return iter(self.tensors)

    def __len__(self) -> int:
        """Count the tensors."""
        return len(self.tensors)


@dataclass(frozen=True)
class Call:
    """A function and its argument templates, as in `Operator`."""

    function: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]

    @classmethod
    def of(cls, graph: OperatorGraph, operator: Operator) -> Call:
        """Return the call that an operator of the graph makes."""
        function = _STRIDE_FREE.get(operator.target) or callee(graph, operator)
        return cls(function, operator.args, operator.kwargs)

    def argument(self, name: str) -> Any:
        """
        Return an argument by its name in the schema, or the schema's default.

        :raises KeyError: if the operator has no argument of that name.
        """
        for k, declared in enumerate(self.function._schema.arguments):
            if declared.name == name:
                if k < len(self.args):
                    return self.args[k]
                return self.kwargs.get(name, declared.default_value)
        raise KeyError(name)

    def has(self, name: str) -> bool:
        """Return whether the schema has an argument of that name."""
        return any(a.name == name for a in self.function._schema.arguments)

    def replace(self, **changes: Any) -> Call:
        """Return the call with other values for arguments that hold no reference."""
        names = [a.name for a in self.function._schema.arguments]
        args, kwargs = list(self.args), dict(self.kwargs)
        for name, value in changes.items():
            k = names.index(name)
            if k < len(args):
                args[k] = value
            else:
                kwargs[name] = value
        return Call(self.function, tuple(args), kwargs)

    def compile(self, parameters: Parameters, fed: int | None = None) -> Kernel:
        """
        Return a kernel that calls the function with one tensor for each value read.

        It is made by another implementation where `parameters` bring one.  The
        first tensor has `fed` rows along the split dimension, or all.
        """
        if isinstance(parameters, Implemented):
            kernel = parameters.implementation(self, parameters.tensors, fed)
            return self.compile(parameters.tensors) if kernel is None else kernel

        def fetch(ref: ValueRef | ParameterRef) -> Any:
            return parameters[ref.name] if isinstance(ref, ParameterRef) else ref

        args, kwargs = map_refs(self.args, fetch), map_refs(self.kwargs, fetch)
        function = _PLAIN.get(self.function) or without_errors(
            self.function, args[1] if len(args) > 1 else None)
        return _leading(function, args, kwargs) or _general(function, args, kwargs)


def cut_rows(tensor: torch.Tensor, dim: int, start: int, stop: int) -> torch.Tensor:
    """Return a view of rows ``[start, stop)`` along `dim`."""
    return tensor.narrow(dim, start, stop - start)


def _leading(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Kernel | None:
    """Return the fastest kernel where the values are the first one or two arguments."""
    values = sum(1 for _ in iter_refs((args, kwargs), ValueRef))
    if not 1 <= values <= 2 or not all(isinstance(a, ValueRef) for a in args[:values]):
        return None
    rest = args[values:]
    if values == 2:
        return lambda x: function(x[0], x[1], *rest, **kwargs)
    if kwargs:
        return lambda x: function(x[0], *rest, **kwargs)
    return lambda x: function(x[0], *rest)


def _general(function: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Kernel:
    slots = count()
    fetches = [_fetch(item, slots) for item in args]
    named = {key: _fetch(item, slots) for key, item in kwargs.items()}
    return lambda x: function(
        *[fetch(x) for fetch in fetches], **{key: fetch(x) for key, fetch in named.items()})


def _fetch(template: Any, slots: Iterator[int]) -> Fetch:
    """Return a function from the values to the argument that `template` describes."""
    if isinstance(template, ValueRef):
        slot = next(slots)
        return lambda x: x[slot]
    if isinstance(template, (list, tuple)) and any(iter_refs(template, ValueRef)):
        items = [_fetch(item, slots) for item in template]
        return lambda x: [item(x) for item in items]
    return lambda x: template
