# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a model returns: classes, memory layout, and which results are inputs themselves."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intradp_ros.graph.graph_errors import CaptureError


@dataclass(frozen=True)
class Results:
    """
    The form of a model's result, taken from a call of the model itself.

    `strides` are those of each result that is a tensor, None where they
    overlap; `inputs` says of each which input it is, if it is one.
    """

    structure: pytree.TreeSpec
    strides: tuple[tuple[int, ...] | None, ...]
    inputs: tuple[int | None, ...]
    device: torch.device

    @classmethod
    def of(cls, result: Any, given: Sequence[torch.Tensor]) -> Results:
        """
        Return the form of a result of a call on `given` tensors.

        Raises
        ------
        CaptureError
            If it holds objects of classes that could not be made again.

        """
        leaves, structure = pytree.tree_flatten(result)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and type(leaf) is not torch.Tensor:
                raise CaptureError(f'the model returns a {type(leaf).__name__}, which is more '
                                   'than a tensor')
        again = pytree.tree_unflatten(leaves, structure)
        if type(again) is not type(result):
            raise CaptureError(f'the model returns a {type(result).__name__}, which cannot be '
                               'made again')
        places = {id(x): k for k, x in enumerate(given)}
        return cls(structure, tuple(map(_strides, leaves)),
                   tuple(places.get(id(x)) for x in leaves), given[0].device)

    def check(self, outputs: Sequence[Any]) -> None:
        """
        Check that a captured graph has the same results.

        Raises
        ------
        CaptureError
            If it has not.

        """
        if len(outputs) != self.structure.num_leaves:
            raise CaptureError(f'the graph has {len(outputs)} results, the model '
                               f'{self.structure.num_leaves}')

    def copies(self, outputs: Any, given: Sequence[torch.Tensor]) -> list[Any]:
        """Return the graph's results, in order, as the model would have made them."""
        known: dict[int, Any] = {}
        leaves = pytree.tree_leaves(outputs)
        for k, leaf in enumerate(leaves):
            place = self.inputs[k]
            if place is not None:
                leaves[k] = given[place]
            elif isinstance(leaf, torch.Tensor):
                leaves[k] = known.setdefault(id(leaf), _copied(leaf, self.strides[k],
                                                               self.device))
        return leaves

    def rebuilt(self, leaves: Sequence[Any]) -> Any:
        """Return results in the classes that the model returns them in."""
        return pytree.tree_unflatten(list(leaves), self.structure)


def _strides(leaf: Any) -> tuple[int, ...] | None:
    if not isinstance(leaf, torch.Tensor) or leaf.layout != torch.strided:
        return None
    order = sorted(range(leaf.dim()), key=lambda d: -leaf.stride()[d])
    return leaf.stride() if leaf.permute(order).is_contiguous() else None


def _copied(tensor: torch.Tensor, strides: tuple[int, ...] | None, device: torch.device,
            ) -> torch.Tensor:
    # As from any module: tensors of the inference mode could not be changed in place.
    if strides is None:
        return tensor.to(device, copy=True, memory_format=torch.contiguous_format)
    made = torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype, device=device)
    return made.copy_(tensor)
