# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The call that a model is captured with, and the model as a function of its tensors alone."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import inspect
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.trees import flatten_call, load_tree, unflattened


@dataclass(frozen=True)
class ExampleCall:
    """
    Arguments of a call, flattened.

    `leaves` are the flattened arguments, `names` says where in the call each
    stands, `tree` rebuilds ``(args, kwargs)`` from them.
    """

    leaves: tuple[Any, ...]
    names: tuple[str, ...]
    tree: str

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Fresh copies of the tensors among the arguments, in order."""
        return [x.detach().clone() for x in self.leaves if isinstance(x, torch.Tensor)]

    @property
    def tensor_names(self) -> list[str]:
        """Names of the tensors among the arguments, in order."""
        return [n for n, x in zip(self.names, self.leaves) if isinstance(x, torch.Tensor)]

    def rebuild(self, tensors: Sequence[torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return ``(args, kwargs)`` of the same call on other tensors."""
        given = iter(tensors)
        leaves = [next(given) if isinstance(x, torch.Tensor) else x for x in self.leaves]
        args, kwargs = unflattened(leaves, load_tree(self.tree))
        return args, kwargs


def example_call(
        model: nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ExampleCall:
    """
    Flatten the example arguments of a model.

    :raises CaptureError: if they hold no tensor, or an object that is neither a tensor nor a plain
        constant.
    """
    leaves, tree = flatten_call(args, kwargs)
    paths, _ = pytree.tree_flatten_with_path((tuple(args), dict(sorted(kwargs.items()))))
    positional = _positional_names(model)
    names = tuple(_name(path, positional) for path, _ in paths)
    for name, leaf in zip(names, leaves):
        if not isinstance(leaf, (torch.Tensor, int, float, bool, str, type(None), torch.dtype)):
            raise CaptureError(
                f'input {name!r} is a {type(leaf).__name__}; a captured model takes tensors and '
                'constants (numbers, strings, None) in tuples, lists and dicts')
    if not any(isinstance(leaf, torch.Tensor) for leaf in leaves):
        raise CaptureError(
            'the example holds no tensor: give it as the tensor, or the tuple of arguments, that '
            'the model is called with')
    return ExampleCall(tuple(leaves), names, tree)


class FlatModel(nn.Module):
    """A model as a function from its tensor arguments to the tensors among its results."""

    def __init__(self, model: nn.Module, call: ExampleCall) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the model and flatten what it returns."""
        args, kwargs = self.call.rebuild(tensors)
        leaves = pytree.tree_leaves(self.model(*args, **kwargs))
        return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))


def _positional_names(model: nn.Module) -> list[str]:
    """Return the names of the parameters of ``forward`` as far as they take one argument each."""
    try:
        signature = inspect.signature(model.forward)
    except ValueError:  # code of TorchScript has none
        return []
    names = []
    for parameter in signature.parameters.values():
        if parameter.kind not in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            break
        names.append(parameter.name)
    return names


def _name(path: Sequence[Any], positional: Sequence[str]) -> str:
    """Name a leaf of ``(args, kwargs)`` by its way down: ``x``, ``features.1``, ``mask``."""
    keys = [str(getattr(step, 'key', getattr(step, 'idx', getattr(step, 'name', '?'))))
            for step in path]
    if keys[0] == '0':
        index = int(keys[1])
        keys[1] = positional[index] if index < len(positional) else f'argument {index}'
    return '.'.join(keys[1:])
