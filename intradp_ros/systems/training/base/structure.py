# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Where tensors lie in what a module takes and returns: tuples, lists, dicts, dataclasses.

Stages and borders know tensors in a row.  The module, its loss and the data know structures.
"""
from __future__ import annotations

from collections.abc import Sequence
import dataclasses
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from typing import Any

import torch
from torch.utils import _pytree as pytree

Tensors = tuple[torch.Tensor, ...]
#: Stands for a tensor among the leaves of a structure.
_TENSOR = object()


#: A tensor by itself: with tuples of tensors it is what most tasks have, and need no search.
_ALONE = pytree.tree_structure(0)


@lru_cache(maxsize=64)
def _row_of(count: int) -> pytree.TreeSpec:
    """Return the form of a tuple of so many tensors."""
    return pytree.tree_structure((0,) * count)


@dataclass(frozen=True)
class Structure:
    """A structure without its tensors: `leaves` has all else in it, such as None."""

    spec: pytree.TreeSpec
    leaves: tuple[Any, ...]

    @property
    def odd(self) -> list[str]:
        """Return the types of leaves that are neither tensors nor plain values."""
        return [type(leaf).__name__ for leaf in self.leaves if leaf is not _TENSOR and
                not isinstance(leaf, bool | int | float | str | None)]

    @property
    def constants(self) -> list[Any]:
        """Return the leaves that are not tensors."""
        return [leaf for leaf in self.leaves if leaf is not _TENSOR]

    def filled(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the structure with these tensors in it."""
        if self.spec is _ALONE:
            return tensors[0]
        if self.spec is _row_of(len(tensors)):
            return tuple(tensors)
        coming = iter(tensors)
        return pytree.tree_unflatten([next(coming) if leaf is _TENSOR else leaf
                                      for leaf in self.leaves], self.spec)


def taken_apart(whole: Any) -> tuple[Tensors, Structure]:
    """Return the tensors of a structure, in order, and what is left of it."""
    if isinstance(whole, torch.Tensor):
        return (whole,), Structure(_ALONE, (_TENSOR,))
    if type(whole) is tuple and all(isinstance(one, torch.Tensor) for one in whole):
        return whole, Structure(_row_of(len(whole)), (_TENSOR,) * len(whole))
    while True:
        leaves, spec = pytree.tree_flatten(whole)
        new = {type(leaf) for leaf in leaves
               if dataclasses.is_dataclass(leaf) and not isinstance(leaf, torch.Tensor)}
        if not new:
            break
        for kind in new:
            torch.export.register_dataclass(kind)
    return tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor)), Structure(
        spec, tuple(_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves))


def tensors_of(whole: Any) -> Tensors:
    """Return the tensors of a structure, in order."""
    return taken_apart(whole)[0]


def rows_of(whole: Any, rows: Any) -> Any:
    """Return the same structure with some rows of its tensors."""
    tensors, structure = taken_apart(whole)
    return structure.filled([tensor[rows] for tensor in tensors])


def split_rows(tensors: Tensors, rows: Sequence[int]) -> list[Tensors]:
    """Return tensors in pieces of so many rows."""
    return list(zip(*(torch.split(tensor, list(rows)) for tensor in tensors)))


def rows_apart(tensors: Tensors, rows: Sequence[int]) -> list[Tensors]:
    """
    Return tensors in pieces of so many rows, each of which may be written to.

    What `split_rows` returns are views of one split, which autograd lets nobody change.
    """
    ends = list(accumulate(rows, initial=0))
    return [tuple(tensor.narrow(0, a, b - a) for tensor in tensors)
            for a, b in zip(ends, ends[1:])]
