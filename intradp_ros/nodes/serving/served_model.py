# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A model of which only inputs and outputs are here, and one that a robot computes by itself."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from intradp_ros.graph.operator_graph import OperatorGraph, Value, ValueRef
from intradp_ros.graph.trees import flatten
from intradp_ros.nodes.serving.infer_client import Specs
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.infer_requests import Tensors
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.serving.loaded_service import load_service, LoadedService
from intradp_ros.systems.serving.service import TensorSpec


@dataclass(frozen=True)
class ServedModel:
    """
    What a service takes and gives, as the node's intake and answers know models.

    A row of an image has no dimension of the batch, which images and heads have: `batched` says
    that it is put before the tensors here.
    """

    specs: Specs
    batched: bool
    model: SharedModel

    def request(self, inputs: Sequence[torch.Tensor]) -> Tensors:
        """Return the tensors of a request."""
        return {spec.name: tensor.numpy() for spec, tensor in zip(self.specs[0], inputs)}

    def outputs(self, tensors: Tensors) -> dict[str, torch.Tensor]:
        """Return the outputs that are answered, in the model's order; ValueError if one lacks."""
        found: dict[str, torch.Tensor] = {}
        for spec in self.specs[1]:
            tensor = tensors.get(spec.name)
            if tensor is None or tensor.dtype.name != spec.dtype or tensor.shape != spec.shape:
                raise ValueError(f'output {spec.name!r} is not {spec.dtype} '
                                 f'{"x".join(map(str, spec.shape))}')
            value = torch.from_numpy(np.require(tensor, requirements=('C', 'W')))
            found[spec.name] = value[None] if self.batched else value
        return found


def served_model(specs: Specs) -> ServedModel:
    """Return what a service takes and gives as a model that computes nothing."""
    batched = all(len(spec.shape) < 4 for spec in specs[0])

    def value(number: int, spec: TensorSpec) -> Value:
        shape = (1, *spec.shape) if batched else spec.shape
        return Value(number, spec.name, shape, getattr(torch, spec.dtype))
    values = tuple(value(k, spec) for k, spec in enumerate((*specs[0], *specs[1])))
    first = len(specs[0])
    refs = {spec.name: ValueRef(first + k) for k, spec in enumerate(specs[1])}
    leaves, tree = flatten(refs)
    graph = OperatorGraph('served', values, (), tuple(range(first)), tuple(leaves), tree, {})
    return ServedModel(specs, batched, SharedModel(SplitGraph(
        graph, 0, (None,) * len(values), (1,) * len(values), ()), 'served'))


class OwnModel:
    """A model that answers where no gateway does, computed as an executor computes it."""

    def __init__(self, model: str, device: str) -> None:
        self._loaded: LoadedService = load_service(model, (1,), open_device(device))
        self.specs: Specs = self._loaded.inputs, self._loaded.outputs

    def run(self, tensors: Tensors) -> Mapping[str, Any]:
        """Return the outputs of a request's tensors."""
        rows = [torch.from_numpy(np.ascontiguousarray(tensors[spec.name])).reshape(1, *spec.shape)
                for spec in self.specs[0]]
        outputs = self._loaded.run(rows, 1)
        return {spec.name: out[0].numpy().copy() for spec, out in zip(self.specs[1], outputs)}
