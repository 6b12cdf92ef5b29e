# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The operators that stand for one reduction: written in order, they end in its own outputs."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator, resolve_target, Value, ValueRef
from intradp_ros.split.calls.site import Operand, Site
from intradp_ros.split.reductions.own_operators import target

_NARROW = (torch.float16, torch.bfloat16)


class Draft:
    """
    Operators in place of the one at a site.

    `first` is the id of the first value that the draft may add.
    """

    def __init__(self, site: Site, first: int) -> None:
        self.site, self.first = site, first
        self.values: list[Value] = []
        self.operators: list[Operator] = []

    @property
    def split_input(self) -> tuple[ValueRef, int] | None:
        """The first argument and its split dimension, or None if it is not split."""
        return self.site.lead()

    @property
    def result(self) -> Value:
        """The first value of the site's operator that is read."""
        return next(self.site.graph.values[v] for v in self.site.operator.outputs if v is not None)

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """Shape of an operand of the site, or of a value that the draft added."""
        if isinstance(operand, ValueRef) and operand.value >= self.first:
            return self.values[operand.value - self.first].shape
        return self.site.shape(operand)

    def dtype(self, operand: Operand) -> torch.dtype:
        """Type of an operand's elements."""
        if isinstance(operand, ValueRef):
            own = operand.value - self.first
            return (self.values[own] if own >= 0
                    else self.site.graph.values[operand.value]).dtype
        return self.site.graph.parameters[operand.name].dtype

    def add(self, called: str | Callable[..., Any], *args: Any, shape: Sequence[int],
            dtype: torch.dtype) -> ValueRef:
        """Call an operator (a target, or a function of the library); return its result."""
        return self.add_several(called, *args, shapes=[shape], dtype=dtype)[0]

    def add_several(self, called: str | Callable[..., Any], *args: Any,
                    shapes: Sequence[Sequence[int]], dtype: torch.dtype) -> list[ValueRef]:
        """Call an operator with several results of one type."""
        results = []
        for k, shape in enumerate(shapes):
            value = self.first + len(self.values)
            name = f'{self.site.operator.name}.{len(self.operators)}' + (f'.{k}' if k else '')
            self.values.append(Value(value, name, tuple(shape), dtype))
            results.append(ValueRef(value))
        self._call(called, args, tuple(ref.value for ref in results))
        return results

    def finish(self, called: str | Callable[..., Any], *args: Any) -> Draft:
        """Call an operator whose results are those of the site's operator."""
        self._call(called, args, self.site.operator.outputs)
        return self

    def finish_same(self, first: ValueRef, **changes: Any) -> Draft:
        """Call the site's own operator with another first argument, and other settings."""
        call = self.site.call.replace(**changes)
        self.operators.append(replace(
            self.site.operator, args=(first, *call.args[1:]), kwargs=call.kwargs))
        return self

    def _call(self, called: str | Callable[..., Any], args: tuple[Any, ...],
              outputs: tuple[int | None, ...]) -> None:
        name = f'{self.site.operator.name}.{len(self.operators)}'
        called = called if isinstance(called, str) else target(called)
        count = len(resolve_target(called)._schema.returns)
        results = (*outputs, *[None] * count)[:count]
        self.operators.append(Operator(len(self.operators), name, called, args, {}, results))


Reduction = Callable[[Draft], 'Draft | None']
"""Writes the operators of a reduction into a draft; None where it cannot be taken apart."""


def summing_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the type in which numbers of a type are added up without losing much."""
    return torch.float32 if dtype in _NARROW else dtype


def without(shape: Sequence[int], dims: Sequence[int]) -> tuple[int, ...]:
    """Return a shape without some dimensions."""
    return tuple(n for k, n in enumerate(shape) if k not in dims)
