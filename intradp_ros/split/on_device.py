# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Split graphs that run on a device: weights, constants and tensors made on the way are there."""
from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intradp_ros.graph.operator_graph import callee, Operator, OperatorGraph
from intradp_ros.split.calls.accelerator import Accelerator
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.split.split_graph import split_graph


def split_for(graph: OperatorGraph, axis: int | None, device: KernelDevice) -> SplitGraph:
    """
    Split a graph along an axis (see `split_graph`), to run on a device.

    Its `captured` graph is the one given, with tensors in the host's memory.
    """
    if not isinstance(device, Accelerator):
        return split_graph(graph, axis)
    split = split_graph(_moved(graph, device), axis)
    operators = tuple(_bound_on(device.where, op) for op in split.operators)
    return replace(split, operators=operators, source=graph, device=device)


def _moved(graph: OperatorGraph, device: Accelerator) -> OperatorGraph:
    """Return a graph with its parameters on a device, and operators that make tensors there."""
    return replace(
        graph, parameters={name: t if t.is_meta else device.take(t)
                           for name, t in graph.parameters.items()},
        operators=tuple(_making_on(device.where, graph, op) for op in graph.operators))


def _making_on(where: torch.device, graph: OperatorGraph, operator: Operator) -> Operator:
    """Return an operator that makes tensors on a device, where it names one or reads none."""
    def moved(template: Any) -> Any:
        return pytree.tree_map_only(torch.device, lambda _: where, template)

    kwargs = {name: moved(value) for name, value in operator.kwargs.items()}
    if not operator.inputs and not operator.parameters and _takes_device(callee(graph, operator)):
        kwargs['device'] = where
    return replace(operator, args=moved(operator.args), kwargs=kwargs)


def _takes_device(function: Any) -> bool:
    schema = getattr(function, '_schema', None)
    return schema is not None and any(a.name == 'device' for a in schema.arguments)


def _bound_on(where: torch.device, op: LocalOperator) -> LocalOperator:
    """Let the constants of an operator's kernels be made on a device."""
    def bind(region: Region, parameters: Parameters) -> Kernel:
        with where:
            return op.bind(region, parameters)

    return replace(op, bind=bind)
