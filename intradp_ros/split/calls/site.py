# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a locality rule sees of an operator, and what it answers."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from intradp_ros.graph.operator_graph import Operator, OperatorGraph, ParameterRef, ValueRef
from intradp_ros.split.calls.call import Call
from intradp_ros.split.local_operator import Kernel, Kind, Parameters
from intradp_ros.split.regions.region import Region, RowMap

Operand = ValueRef | ParameterRef


@dataclass(frozen=True)
class Site:
    """
    An operator in its graph, with the split of every value before it.

    `dims` and `rows` are indexed by value id and filled up to the operator.
    """

    graph: OperatorGraph
    operator: Operator
    dims: Sequence[int | None]
    rows: Sequence[int]

    @cached_property
    def call(self) -> Call:
        """The operator's call."""
        return Call.of(self.graph, self.operator)

    def shape(self, operand: Operand) -> tuple[int, ...]:
        """Shape of a value or parameter."""
        if isinstance(operand, ValueRef):
            return self.graph.values[operand.value].shape
        return tuple(self.graph.parameters[operand.name].shape)

    def split_dim(self, operand: Operand | None) -> int | None:
        """Split dimension of a value; None for an unsplit value or a parameter."""
        return self.dims[operand.value] if isinstance(operand, ValueRef) else None

    def no_rows(self, operand: ValueRef, dim: int) -> torch.Tensor:
        """Return a tensor like a value, but of no rows along `dim`."""
        value = self.graph.values[operand.value]
        return torch.empty([*value.shape[:dim], 0, *value.shape[dim + 1:]], dtype=value.dtype)

    @cached_property
    def output_shape(self) -> tuple[int, ...]:
        """Shape of the first output that is read."""
        return next(self.graph.values[v].shape for v in self.operator.outputs if v is not None)

    def only_first_output(self) -> bool:
        """Return whether no output but the first is read."""
        return not any(v is not None for v in self.operator.outputs[1:])

    def lead(self) -> tuple[ValueRef, int] | None:
        """Return the first argument and its split dimension, or None if it is not split."""
        first = self.operator.args[0] if self.operator.args else None
        if not isinstance(first, ValueRef):
            return None
        dim = self.dims[first.value]
        return None if dim is None else (first, dim)

    def maps(self, first: RowMap, rows: int) -> tuple[RowMap, ...]:
        """Return the maps of an operator that needs all of every value but the first one read."""
        others = (RowMap.whole(rows, self.rows[v]) for v in self.operator.inputs[1:])
        return (first, *others)


@dataclass(frozen=True)
class Split:
    """
    A rule's answer: how the operator's output is split, and from what.

    `dim` is the split dimension of all outputs that are read (None: not
    split, `rows` is 1); the other fields are those of `LocalOperator`.
    `folded` means that some rows give one record (see `SplitGraph.folded`).
    """

    kind: Kind
    dim: int | None
    rows: int
    maps: tuple[RowMap, ...]
    bind: Callable[[Region, Parameters], Kernel]
    folded: bool = False


Rule = Callable[[Site], 'Split | None']


def rules(rule: Rule, targets: Iterable[str]) -> dict[str, Rule]:
    """Return a table that gives each of the targets to one rule."""
    return dict.fromkeys(targets, rule)


def unchanged(site: Site) -> Callable[[Region, Parameters], Kernel]:
    """Return a `bind` for operators that run on any rows as on all of them."""
    return lambda region, parameters: site.call.compile(parameters)


def follow(site: Site, kind: Kind, dim: int) -> Split | None:
    """
    Split an operator that treats the rows of its first argument alike.

    `dim` is where the first argument's split dimension is in the output.
    Other values are needed whole.
    """
    rows = site.output_shape[dim]
    return Split(kind, dim, rows, site.maps(RowMap.identity(rows), rows), unchanged(site))


def normal_dim(dim: int, rank: int) -> int:
    """Return a dimension counted from the front."""
    return dim + rank if dim < 0 else dim


def per_dim(setting: Any, count: int) -> list[Any]:
    """Return a setting such as a stride once for each of `count` spatial dimensions."""
    items = list(setting) if isinstance(setting, (list, tuple)) else [setting]
    return items * count if len(items) == 1 else items
