# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model made ready for sharing: its split graph and the digest both sides compare."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from intradp_ros.graph.capture import capture
from intradp_ros.graph.operator_graph import OperatorGraph, ParameterRef, ValueRef
from intradp_ros.graph.serialise import digest
from intradp_ros.graph.trees import rebuild_outputs
from intradp_ros.split.calls.tuning import tuned, Tuning, UNTUNED
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.split.local_operator import Parameters, SplitGraph
from intradp_ros.split.on_device import split_for
from intradp_ros.split.split_graph import split_graph

AS_GRAPH = ('export', 'trace')
"""Ways to capture a model so that two machines can know that they have the same one."""


@dataclass(frozen=True)
class SharedModel:
    """
    A split graph with its digest (over graph and parameters).

    `tuning` names the kernels by which its operators run on this device.
    """

    split: SplitGraph
    digest: str
    tuning: Tuning = UNTUNED

    @property
    def parameters(self) -> Parameters:
        """Return the model's tensors by name."""
        return self.split.graph.parameters

    def results(self, values: Mapping[int, torch.Tensor]) -> Any:
        """Return the model's own results, rebuilt from the graph's output values."""
        graph = self.split.captured
        return rebuild_outputs(graph, [
            values[o.value] if isinstance(o, ValueRef)
            else graph.parameters[o.name] if isinstance(o, ParameterRef) else o
            for o in graph.outputs])

    def with_axis(self, axis: int) -> SharedModel:
        """Return the same model split along another axis."""
        if axis == self.split.axis:
            return self
        plain = SharedModel(split_for(self.split.captured, axis, self.split.device), self.digest)
        return plain.tuned(self.tuning)

    def on(self, device: KernelDevice) -> SharedModel:
        """Return the same model, not tuned, on a device."""
        if device.name == self.split.device.name:
            return self
        return SharedModel(split_for(self.split.captured, self.split.axis, device), self.digest)

    def tuned(self, tuning: Tuning) -> SharedModel:
        """Return the same model, not tuned before, with the kernels that a profile names."""
        return SharedModel(tuned(self.split, tuning), self.digest, tuning)


def share_graph(graph: OperatorGraph, axis: int | None = None) -> SharedModel:
    """
    Make an operator graph ready for sharing.

    :raises ValueError: if it has no operators, or cannot be split along `axis`.
    """
    if not graph.operators:
        raise ValueError(f'{graph.name} computes nothing (its results are inputs or constants): '
                         'there is nothing to share')
    return SharedModel(split_graph(graph, axis), digest(graph))


def share_module(module: torch.nn.Module, example: Sequence[torch.Tensor],
                 axis: int | None = None, **kwargs: Any) -> SharedModel:
    """
    Capture a module on example inputs and make it ready for sharing.

    :raises CaptureError: if the module cannot be captured as a graph of operators.
    :raises ValueError: if it computes nothing, or cannot be split along `axis`.
    """
    return share_graph(capture(module, tuple(example), methods=AS_GRAPH, **kwargs), axis)
