# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A whole model as one global operator, for models that show no operators."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.graph.compare import difference
from intradp_ros.graph.example_call import ExampleCall, FlatModel
from intradp_ros.graph.fx_import import Imported
from intradp_ros.graph.operator_graph import OPAQUE, Operator


class OpaqueModel:
    """Calls a model on its tensor arguments; returns the tensors among its results."""

    def __init__(self, model: nn.Module, call: ExampleCall) -> None:
        self.model = model
        self.call = call
        self.expected = self._leaves(call.tensors)

    def __call__(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """
        Run the model; it sees copies, for it may write to its arguments.

        :raises RuntimeError: if a result that is not a tensor differs from that of the captured
            example: the graph holds it as a constant.
        """
        leaves = self._leaves([tensor.clone() for tensor in tensors])
        if len(leaves) != len(self.expected):
            raise RuntimeError('the model returns another structure than for its example')
        for expected, leaf in zip(self.expected, leaves):
            if not isinstance(expected, torch.Tensor) and difference(expected, leaf):
                raise RuntimeError(
                    f'the model returns {leaf!r} where it returned {expected!r} for its example; '
                    'return it as a tensor')
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))

    def _leaves(self, tensors: Sequence[torch.Tensor]) -> list[Any]:
        args, kwargs = self.call.rebuild(tensors)
        return pytree.tree_leaves(self.model(*args, **kwargs))


def import_opaque(flat: FlatModel, call: ExampleCall) -> Imported:
    """Import the model as an operator from its input tensors to its result tensors."""
    imported = Imported()
    tensors = call.tensors
    opaque = OpaqueModel(flat.model, call)
    arguments = tuple(
        imported.add_value(name, x) for name, x in zip(call.tensor_names, tensors))
    imported.inputs = [ref.value for ref in arguments]
    imported.results = [
        imported.add_value(f'{OPAQUE}.{k}', x) for k, x in enumerate(opaque(*tensors))]
    outputs = tuple(ref.value for ref in imported.results)
    imported.operators = [Operator(0, OPAQUE, OPAQUE, arguments, {}, outputs)]
    imported.opaque = opaque
    return imported
