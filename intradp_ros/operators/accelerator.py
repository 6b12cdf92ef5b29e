# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Devices of PyTorch with memory of their own, such as ``cuda``, and split graphs that run there.

Rows cross the link from and to the host's memory: they are copied to the
device when they have come, and back when they are sent.  Weights and
constants are copied once.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intradp_ros.graph.operator_graph import callee, Operator, OperatorGraph
from intradp_ros.operators.device import Device, HOST
from intradp_ros.operators.local_operator import Kernel, LocalOperator, Parameters, SplitGraph
from intradp_ros.operators.region import Region
from intradp_ros.operators.split_graph import split_graph


class DeviceError(ValueError):
    """A device that cannot be used; the text says why and how to mend it."""


class Accelerator(Device):
    """
    A device of PyTorch with memory of its own.

    Raises
    ------
    DeviceError
        If this build of PyTorch or this machine has none of that name.

    """

    runs_ahead = True

    def __init__(self, name: str) -> None:
        try:
            self.where = torch.zeros(1, device=name).device
        except (RuntimeError, AssertionError, NotImplementedError) as error:
            cause = str(error).strip().partition('\n')[0]
            raise DeviceError(f'no device {name!r} to compute on ({cause}): install a build of '
                              f'PyTorch for it, or take {HOST.name!r}') from error
        self.name = str(self.where)
        self._module: Any = torch.get_device_module(self.where)
        self.hardware = f'{self._module.get_device_name(self.where)} ({self.where.type})'
        # Convolutions in TF32 keep 10 bits: more than rounding would be lost.
        torch.backends.cudnn.allow_tf32 = torch.backends.cuda.matmul.allow_tf32 = False

    def take(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy of a tensor in the device's memory, or itself if it is there."""
        return tensor.to(self.where)

    def give(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return a copy in the host's memory of what a kernel made, once it is done."""
        return tensor.cpu()

    def finish(self) -> None:
        """Wait until all that kernels have begun is done."""
        self._module.synchronize(self.where)


def open_device(name: str) -> Device:
    """
    Return the device of PyTorch's name for it: ``cpu``, ``cuda``, ``cuda:1``.

    Raises
    ------
    DeviceError
        If there is none.

    """
    return HOST if name == HOST.name else Accelerator(name)


def split_for(graph: OperatorGraph, axis: int | None, device: Device) -> SplitGraph:
    """
    Split a graph along an axis (see `split_graph`), to run on a device.

    Its `captured` graph is the one given, with tensors in the host's memory.
    """
    if not isinstance(device, Accelerator):
        return replace(split_graph(graph, axis), device=device)
    split = split_graph(_moved(graph, device), axis)
    operators = tuple(_bound_on(device.where, op) for op in split.operators)
    return replace(split, operators=operators, source=graph, device=device)


def _moved(graph: OperatorGraph, device: Accelerator) -> OperatorGraph:
    """Return a graph with its parameters on a device, and operators that make tensors there."""
    return replace(
        graph, parameters={name: device.take(t) for name, t in graph.parameters.items()},
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
    bind: Callable[[Region, Parameters], Kernel] = op.bind

    def bind_there(region: Region, parameters: Parameters) -> Kernel:
        with where:
            return bind(region, parameters)

    return replace(op, bind=bind_there)
