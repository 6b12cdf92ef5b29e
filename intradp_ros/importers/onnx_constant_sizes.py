# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Modules that onnx2torch made, with shapes and bounds that stand in constants as numbers.

What it makes reads them as tensors, which no capture can follow; its TopK leaves open which of
equal elements come first.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import attrgetter
from typing import Any

import numpy as np
import torch
from torch import nn


class Reshaped(nn.Module):
    """A reshape to a shape that is known; 0 keeps a dimension."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = [*shape]

    def forward(self, x: torch.Tensor, *shape: torch.Tensor) -> torch.Tensor:
        """Return the tensor in that shape."""
        return x.reshape([size or x.shape[n] for n, size in enumerate(self.shape)])


class Expanded(nn.Module):
    """A tensor repeated to a shape that is known; 1 leaves a dimension as it is."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.shape = [*shape]

    def forward(self, x: torch.Tensor, *shape: torch.Tensor) -> torch.Tensor:
        """Return the tensor in that shape."""
        return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(self.shape)))


class Tiled(nn.Module):
    """A tensor repeated as often, along each dimension, as is known."""

    def __init__(self, times: Sequence[int]) -> None:
        super().__init__()
        self.times = [*times]

    def forward(self, x: torch.Tensor, *times: torch.Tensor) -> torch.Tensor:
        """Return the tensor repeated."""
        return x.repeat(self.times)


class Sliced(nn.Module):
    """A part of a tensor whose bounds are known, by dimension."""

    def __init__(self, slices: Mapping[int, slice]) -> None:
        super().__init__()
        self.slices = {**slices}

    def forward(self, x: torch.Tensor, *bounds: Any, **others: Any) -> torch.Tensor:
        """Return the part."""
        at = [slice(None)] * x.dim()
        for axis, part in self.slices.items():
            at[axis] = part
        return x[tuple(at)]


class Padded(nn.Module):
    """A tensor with more at its edges, by as much as is known: of the last dimension first."""

    def __init__(self, pads: Sequence[int], mode: str, value: Any) -> None:
        super().__init__()
        self.pads, self.mode, self.value = [*pads], mode, value

    def forward(self, x: torch.Tensor, *pads: Any, **others: Any) -> torch.Tensor:
        """Return it with its edges."""
        value = self.value if self.mode == 'constant' else None
        return nn.functional.pad(x, self.pads, self.mode, value)


class Ranked(nn.Module):
    """The first elements along a dimension, and their places: of equal ones the lower place."""

    def __init__(self, count: int, dim: int, largest: bool) -> None:
        super().__init__()
        self.count, self.dim, self.largest = count, dim, largest

    def forward(self, x: torch.Tensor, *count: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Return values and places."""
        found = torch.sort(x, dim=self.dim, descending=self.largest, stable=True)
        return tuple(each.narrow(self.dim, 0, self.count) for each in found)


def settle(made: Any) -> nn.Module:
    """Let shapes and bounds that stand in constants be numbers; returns the module itself."""
    for node in made.graph.nodes:
        if node.op != 'call_module':
            continue
        module = made.get_submodule(node.target)
        fixed = _fixed(made, node, type(module).__name__)
        if fixed is not None:
            fixed.onnx_mapping = module.onnx_mapping
            made.set_submodule(node.target, fixed)
    module_: nn.Module = made
    return module_


def _fixed(made: Any, node: Any, kind: str) -> nn.Module | None:
    """Return what computes the same as a node of constant sizes, None if they are computed."""
    by_sizes = {'OnnxReshape': Reshaped, 'OnnxExpand': Expanded, 'OnnxTile': Tiled}
    if kind in by_sizes:
        (sizes,) = _constants_of(made, node.args[1:2]) or [None]
        return by_sizes[kind](sizes) if sizes else None
    if kind == 'OnnxSlice':
        names = ('starts', 'ends', 'axes', 'steps')
        given = {**dict(zip(names, node.args[1:])), **node.kwargs}
        bounds = dict(zip(given, _constants_of(made, [*given.values()])))
        starts, ends = bounds.get('starts'), bounds.get('ends')
        if starts is None or ends is None or None in bounds.values():
            return None
        axes = bounds.get('axes') or [*range(len(starts))]
        steps = bounds.get('steps') or [1] * len(starts)
        if min(steps, default=1) > 0:
            return Sliced({axis: slice(*part) for axis, *part in zip(axes, starts, ends, steps)})
    if kind == 'OnnxTopK':
        (count,), topk = _constants_of(made, node.args[1:2]), made.get_submodule(node.target)
        return Ranked(count[0], topk.dim, topk.largest) if count else None
    if kind == 'OnnxPadDynamic':
        given = {**dict(zip(('pads', 'constant_value'), node.args[1:])), **node.kwargs}
        known = dict(zip(given, _constants_of(made, [*given.values()])))
        pads, value = known.get('pads'), known.get('constant_value')
        if pads is None or None in known.values():
            return None
        half, mode = len(pads) // 2, made.get_submodule(node.target).mode
        lasts = [number for pair in zip(pads[half - 1::-1], pads[:half - 1:-1]) for number in pair]
        while mode != 'constant' and len(lasts) > 2 and lasts[-2:] == [0, 0]:
            lasts = lasts[:-2]  # PyTorch pads all dimensions by a constant alone
        return Padded(lasts, mode, value)
    return None


def _constants_of(converted: Any, arguments: Sequence[Any]) -> list[list[Any] | None]:
    """Return the numbers in constants, None of what is computed."""
    numbers: list[list[Any] | None] = []
    for argument in arguments:
        known = getattr(argument, 'op', '') == 'get_attr'
        numbers.append(attrgetter(argument.target)(converted).tolist() if known else None)
    return numbers
