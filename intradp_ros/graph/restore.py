# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Objects get back what they held, and are written to only where they hold something else."""
from __future__ import annotations

from array import array
from collections.abc import Mapping
import os
from typing import Any

import torch

from intradp_ros.graph.tensor_bits import as_words


def restore_items(space: Any, kept: Mapping[Any, Any]) -> None:
    """Restore a dictionary, in its order."""
    if len(now := tuple(dict.items(space))) != len(kept) or any(
            k is not j or item is not v for (k, item), (j, v) in zip(now, kept.items())):
        space.clear()
        space.update(kept)


def restore_variable(name: str, value: str | None) -> None:
    """Restore a variable of the environment; None removes it."""
    if value is None:
        os.environ.pop(name, None)
    elif os.environ.get(name) != value:
        os.environ[name] = value


def restore_sequence(sequence: Any, kept: list[Any]) -> None:
    """Restore a sequence."""
    if len(sequence) != len(kept) or any(a is not b for a, b in zip(sequence, kept)):
        sequence.clear()
        sequence.extend(kept)


def restore_bytes(item: Any, kept: bytes) -> None:
    """Restore the bytes of an object."""
    if isinstance(item, (bytearray, array)):
        del item[:]
        item.extend(kept) if isinstance(item, bytearray) else item.frombytes(kept)
    elif bytes(memoryview(item)) != kept:
        memoryview(item).cast('B')[:] = kept


def restore_set(found: set[Any], kept: set[Any]) -> None:
    """Restore a set."""
    if found != kept:
        found.clear()
        found.update(kept)


def restore_tensor(tensor: torch.Tensor, kept: torch.Tensor) -> None:
    """Restore a tensor's numbers."""
    if tensor.shape != kept.shape or not torch.equal(as_words(tensor.detach()), as_words(kept)):
        tensor.data = kept if tensor.shape != kept.shape else tensor.data.copy_(kept)


def restore_attribute(kind: type, name: str, item: Any) -> None:
    """Restore an attribute of a class."""
    if vars(kind).get(name) is not item:
        setattr(kind, name, item)
