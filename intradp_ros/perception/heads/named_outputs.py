# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The output tensors of a model by name."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy.typing as npt
import torch
from torch.utils import _pytree as pytree

from intradp_ros.perception.card import CardError

Array = npt.NDArray[Any]
Outputs = Mapping[str, torch.Tensor]


class HeadError(ValueError):
    """Outputs that do not say what the card's head reads; the text says which, and why."""


def named(outputs: Any, names: Sequence[str] = ()) -> dict[str, torch.Tensor]:
    """
    Return the tensors in nested outputs by name, in order.

    Names are those given, or else the keys of mappings and named tuples on
    the way to each, joined by dots; ``output_N`` for the N-th if there is
    none, or if a name came before.

    :raises CardError: if there is another count of tensors than of names.
    """
    found = [(path, leaf) for path, leaf in pytree.tree_flatten_with_path(outputs)[0]
             if isinstance(leaf, torch.Tensor)]
    if names and len(names) != len(found):
        raise CardError(f'the card names {len(names)} outputs ({", ".join(names)}); the model '
                        f'has {len(found)}')
    if names:
        return dict(zip(names, (leaf for _, leaf in found)))
    tensors: dict[str, torch.Tensor] = {}
    for number, (path, leaf) in enumerate(found):
        name = _name(path)
        tensors[name if name and name not in tensors else f'output_{number}'] = leaf
    return tensors


def _name(path: Sequence[Any]) -> str:
    keys = [getattr(step, 'key', getattr(step, 'name', None)) for step in path]
    if not any(isinstance(key, str) for key in keys):
        return ''
    return '.'.join(str(step.idx if key is None else key) for step, key in zip(path, keys))


def read(outputs: Outputs, name: str, dimensions: int) -> Array:
    """
    Return an output of batch 1 with so many dimensions, without that of the batch.

    :raises HeadError: if there is none of that name, or it has another count of dimensions.
    """
    tensor = outputs.get(name)
    if tensor is None:
        raise HeadError(f'the head reads the output {name!r}; the model has '
                        f'{", ".join(outputs)}: name the outputs in the card')
    if tensor.dim() != dimensions or tensor.shape[0] != 1:
        raise HeadError(f'the head reads {name!r} with {dimensions} dimensions and batch 1; it '
                        f'has the shape {"x".join(map(str, tensor.shape))}')
    if tensor.dtype in (torch.float16, torch.bfloat16):  # of which NumPy knows one
        tensor = tensor.float()
    array: Array = tensor[0].detach().cpu().numpy()
    return array


def only(outputs: Outputs, name: str) -> str:
    """Return the name of an output: `name` if there is one of it, else that of the first."""
    return name if name in outputs else next(iter(outputs), name)
