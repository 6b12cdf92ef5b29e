# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a model returns: classes, memory layout, and which results share memory.

Where a result is an input or a tensor of the model, or a view of one or of
another result, what a program writes to one of them shows in the others; so
it is again a view.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from intradp_ros.graph.call_context import is_mere_tensor
from intradp_ros.graph.graph_errors import CaptureError
from intradp_ros.graph.tensor_bits import memory_address
from intradp_ros.graph.trees import containers, same_classes, unflattened


@dataclass(frozen=True)
class Origin:
    """
    Whose memory a result lies in, and where there.

    It is that of input `given`, of the model's own `tensor`, or of result
    `other`; None of all three: its own.  `whole` says that it is that very
    object.  `stride` and `offset` (from where the owner begins) are in
    elements; `owners` are the owner's strides, without which it is not a view.
    """

    given: int | None = None
    tensor: torch.Tensor | None = None
    other: int | None = None
    whole: bool = False
    shape: tuple[int, ...] = ()
    stride: tuple[int, ...] = ()
    offset: int = 0
    owners: tuple[int, ...] = ()

    @property
    def own(self) -> bool:
        """Return whether the result has memory of its own."""
        return self.given is None and self.tensor is None and self.other is None

    def view(self, owner: torch.Tensor) -> torch.Tensor | None:
        """Return the result as a view of its owner, if that lies as it did."""
        if self.whole:
            return owner
        if owner.stride() != self.owners:
            return None
        return owner.as_strided(self.shape, self.stride, owner.storage_offset() + self.offset)


@dataclass(frozen=True)
class Results:
    """
    The form of a model's result, taken from a call of the model itself.

    `strides` are those of each result that is a tensor, None where they
    overlap; `origins` say in whose memory it lies.
    """

    structure: pytree.TreeSpec
    strides: tuple[tuple[int, ...] | None, ...]
    origins: tuple[Origin, ...]
    device: torch.device

    @classmethod
    def of(cls, result: Any, given: Sequence[torch.Tensor],
           held: Sequence[torch.Tensor] = ()) -> Results:
        """
        Return the form of a result of a call on `given` tensors, of a model that holds others.

        :raises CaptureError: if it holds objects of classes that could not be made again.
        """
        leaves, structure = pytree.tree_flatten(result)
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and not is_mere_tensor(leaf):
                raise CaptureError(f'the model returns a {type(leaf).__name__}, which is more '
                                   'than a tensor')
            if isinstance(leaf, torch.Tensor) and leaf.is_quantized:
                raise CaptureError('the model returns a quantised tensor: return its dequantize()')
        if not same_classes(result, unflattened(leaves, structure)):
            raise CaptureError(f'the model returns a {type(result).__name__}, which, or a part of '
                               'which, cannot be made again in its class')
        mutable = [id(found) for found in containers(result) if not isinstance(found, tuple)]
        if len(set(mutable)) < len(mutable):
            raise CaptureError('the model returns one list or dictionary in two places, which '
                               'would be two')
        return cls(structure, tuple(map(_strides, leaves)), _origins(leaves, given, held),
                   given[0].device)

    def check(self, outputs: Sequence[Any]) -> None:
        """
        Check that a captured graph has the same results.

        :raises CaptureError: if it has not.
        """
        if len(outputs) != self.structure.num_leaves:
            raise CaptureError(f'the graph has {len(outputs)} results, the model '
                               f'{self.structure.num_leaves}')

    def copies(self, outputs: Any) -> list[Any]:
        """Return the graph's results, in order, as the model would have made them."""
        return [_copied(leaf, self.strides[k], self.device)
                if isinstance(leaf, torch.Tensor) else leaf
                for k, leaf in enumerate(pytree.tree_leaves(outputs))]

    def rebuilt(self, leaves: Sequence[Any], given: Sequence[torch.Tensor]) -> Any:
        """Return results in the classes that the model returns them in, views as views."""
        placed = list(leaves)
        for k, origin in enumerate(self.origins):
            if origin.own:
                continue
            owner = given[origin.given] if origin.given is not None else \
                origin.tensor if origin.other is None else placed[origin.other]
            if owner is not None and (view := origin.view(owner)) is not None:
                placed[k] = view
        return unflattened(placed, self.structure)


def _origins(leaves: Sequence[Any], given: Sequence[torch.Tensor],
             held: Sequence[torch.Tensor]) -> tuple[Origin, ...]:
    owners: list[tuple[torch.Tensor, dict[str, Any]]] = [
        *((x, {'given': k}) for k, x in enumerate(given)), *((x, {'tensor': x}) for x in held)]
    # Of results in one memory the largest owns it, and the first among those of one size.
    order = sorted((k for k, x in enumerate(leaves) if _lies(x)),
                   key=lambda k: -leaves[k].numel())
    found = [Origin() for _ in leaves]
    for k in order:
        for owner, kind in owners:
            origin = _within(leaves[k], owner, kind)
            if origin is not None:
                found[k] = origin
                break
        else:
            owners.append((leaves[k], {'other': k}))
    return tuple(found)


def _within(leaf: torch.Tensor, owner: torch.Tensor, kind: dict[str, Any]) -> Origin | None:
    """Return where a tensor lies in another's memory, if it does, wholly."""
    if leaf is owner:
        return Origin(**kind, whole=True)
    place = memory_address(owner) if _lies(owner) else 0
    if not place or memory_address(leaf) != place or leaf.dtype != owner.dtype:
        return None
    first = int(leaf.storage_offset() - owner.storage_offset())
    if first < 0 or first + _reach(leaf) > _reach(owner) or _strides(owner) is None:
        return None
    return Origin(**kind, shape=tuple(leaf.shape), stride=leaf.stride(), offset=first,
                  owners=owner.stride())


def _lies(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout == torch.strided and item.numel() > 0 \
        and item.device.type != 'meta' and not item.is_conj() and not item.is_neg()


def _reach(tensor: torch.Tensor) -> int:
    """Return how many elements of memory a tensor spans."""
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))


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
