# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights of a module that was pickled as a whole, read without running code of the file."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch


class Inert:
    """Stands for a class that a file names: takes any arguments and any state."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Inert:
        """Return an object that does nothing."""
        return object.__new__(cls)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing."""


def pickled_module(path: Path, key: str) -> Any:
    """
    Read a module that was pickled as a whole, under `key`, running no code of the file.

    Torch's restricted unpickler builds tensors and plain containers only;
    every other class that the file names is replaced by an inert one.
    """
    return read_inert(path)[key]


def read_inert(path: Path) -> Any:
    """Read what torch saved, with inert objects in place of those of classes that it names."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except ValueError:  # of before PyTorch 1.6: what it names besides tensors is refused
        names = []
    inert: list[Any] = [(type(name, (Inert,), {}), name) for name in names]
    with torch.serialization.safe_globals(inert):
        return torch.load(path, weights_only=True, map_location='cpu')


def weights_of(module: Any) -> dict[str, torch.Tensor]:
    """Return the state of a module that `pickled_module` read, in float32."""
    return {name: x.float() if x.is_floating_point() else x for name, x in _state(module, '')}


def _state(module: Any, path: str) -> Iterator[tuple[str, torch.Tensor]]:
    held = vars(module)
    for name, tensor in {**held.get('_parameters', {}), **held.get('_buffers', {})}.items():
        if isinstance(tensor, torch.Tensor):
            yield path + name, tensor.data
    for name, child in held.get('_modules', {}).items():
        yield from _state(child, f'{path}{name}.')
