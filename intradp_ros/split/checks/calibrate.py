# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Random weights under which a network's output depends on its input.

A network with plain random weights often has an output that is constant to
rounding (activations die out, or a last layer is zero), and then any way to
split it looks exact.
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd
from torch.utils import _pytree as pytree

_LEAST_SPREAD = 1e-6
_FEWEST_SAMPLES = 4
_WANTED_SPREAD = 0.5
"""Of a layer's output: larger queries and keys would make attention amplify rounding."""
_SHIFT = 0.3
_LEAST_GAIN = 0.1
_LEAST_VARIANCE = 0.5
"""Of a channel, in units of the mean; a quieter one might be loud for another input."""


@torch.no_grad()
def calibrate(model: nn.Module, example: Sequence[torch.Tensor], seed: int = 0) -> nn.Module:
    """
    Rescale a model's weights, in place, so that activations neither vanish nor explode.

    In one forward pass each convolution and linear layer is scaled to an
    output of standard deviation 0.5 (its weights are drawn again if it has
    next to none), and each batch normalisation takes the statistics of what
    reaches it, and random shifts.  `example` holds the model's arguments; if
    the model takes batches, statistics are those of the example and of quite
    different ones made of its numbers.  Return the model, in evaluation mode.
    """
    model.eval()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        several = [_with_others(x) for x in example]
        takes_statistics = any(isinstance(m, _BatchNorm) for m in model.modules())
        if not (takes_statistics and _adjusts(model, several)):
            _adjust(model, example)
    return model


@torch.no_grad()
def reactions(model: nn.Module, example: Sequence[torch.Tensor]) -> list[float | None]:
    """
    Return how far each output tensor moves with another input; None if it is not a float.

    The input is mirrored along its last dimension, or, where all of it counts
    but not the order (points of a cloud), turned into its negative.  The
    larger change of an element counts, in units of the output's spread
    (largest minus smallest element, or the magnitude of its only one).
    """
    model.eval()
    before = _tensors(model(*example))
    others = [_tensors(model(*map(change, example))) for change in (_mirrored, _negative)]
    return [
        max(_change(a, b) for b in moved) if a.is_floating_point() else None
        for a, *moved in zip(before, *others)]


def depends_on_input(model: nn.Module, example: Sequence[torch.Tensor]) -> bool:
    """Return whether every floating point output reacts to another input by more than 0.1 %."""
    return all(r is None or r > 1e-3 for r in reactions(model, example))


def _tensors(results: Any) -> list[torch.Tensor]:
    return [x for x in pytree.tree_leaves(results) if isinstance(x, torch.Tensor)]


def _mirrored(x: torch.Tensor) -> torch.Tensor:
    if not x.dim():
        return x
    return x.index_select(-1, torch.arange(x.shape[-1]).flip(0))  # flip lacks some dtypes


def _negative(x: torch.Tensor) -> torch.Tensor:
    """Return numbers of the same range, as a photograph's negative has."""
    if x.dtype == torch.bool:
        return ~x
    if x.is_complex() or not x.numel():
        return -x
    wide = x if x.is_floating_point() else x.to(torch.int64)
    return (wide.min() + wide.max() - wide).to(x.dtype)


def _change(a: torch.Tensor, b: torch.Tensor) -> float:
    if a.shape != b.shape:
        return float('inf')
    spread = (a.max() - a.min() if a.numel() > 1 else a.abs().sum()).item()
    return (a - b).abs().max().item() / spread if spread > 0 else 0.0


def _with_others(x: torch.Tensor) -> torch.Tensor:
    """Return a batch: an example, and noise and a slope made of its numbers."""
    if not x.dim() or x.shape[0] != 1:
        return x
    numbers = x.flatten()
    noise, slope = numbers[torch.randperm(x.numel())], numbers.sort().values
    return torch.cat([x, noise.view_as(x), slope.view_as(x)])


def _adjusts(model: nn.Module, inputs: Sequence[torch.Tensor]) -> bool:
    """Adjust each layer, if the model takes the inputs."""
    try:
        _adjust(model, inputs)
    except Exception:  # whatever it says to a batch that it was not made for
        return False
    return True


def _adjust(model: nn.Module, inputs: Sequence[torch.Tensor]) -> None:
    with _hooked(model):
        model(*inputs)


@contextmanager
def _hooked(model: nn.Module) -> Iterator[None]:
    """Adjust each layer when the forward pass reaches it for the first time."""
    handles, adjusted = [], set()

    def once(module: nn.Module) -> bool:
        new = module not in adjusted
        adjusted.add(module)
        return new

    def scale(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> torch.Tensor | None:
        fresh = isinstance(output, torch.Tensor) and once(module)
        return _scaled_output(module, inputs, output) if fresh else None

    def settle(module: nn.Module, inputs: tuple[Any, ...]) -> None:
        if once(module):
            _take_statistics(module, inputs[0])

    for module in model.modules():
        if isinstance(module, (_ConvNd, nn.Linear)):
            handles.append(module.register_forward_hook(scale))
        elif isinstance(module, _BatchNorm) and module.track_running_stats:
            handles.append(module.register_forward_pre_hook(settle))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _scaled_output(
        module: nn.Module, inputs: tuple[Any, ...], output: torch.Tensor) -> torch.Tensor:
    """Scale a layer's output, and return the output it then has."""
    weight_is_zero = not module.weight.abs().max() > 0  # type: ignore[operator]
    if weight_is_zero or not _spread(output) > _LEAST_SPREAD:
        fan_in = module.weight[0].numel()  # type: ignore[index]
        nn.init.normal_(module.weight, std=fan_in ** -0.5)  # type: ignore[arg-type]
        output = module.forward(*inputs)
    factor = _WANTED_SPREAD / (_spread(output) or 1.0)
    for parameter in module.parameters(recurse=False):
        parameter.mul_(factor)
    return output * factor


def _spread(output: torch.Tensor) -> float:
    return output.std().item() if output.numel() > 1 else 0.0


def _take_statistics(module: nn.Module, values: torch.Tensor) -> None:
    """Set running statistics; variances of few samples would amplify rounding and stay 1."""
    assert isinstance(module, _BatchNorm)
    over = [dim for dim in range(values.dim()) if dim != 1]
    if values.numel() // values.shape[1] < _FEWEST_SAMPLES:
        return
    module.running_mean.copy_(values.mean(over))  # type: ignore[union-attr]
    variance = values.var(over, unbiased=False)
    floor = _LEAST_VARIANCE * variance.mean().item() or 1.0
    module.running_var.copy_(variance.clamp(min=floor))  # type: ignore[union-attr]
    if module.affine:
        # without a shift the mean over all pixels would be zero, and a pool yield rounding only
        nn.init.normal_(module.bias, std=_SHIFT)
        if not module.weight.abs().mean() > _LEAST_GAIN:
            nn.init.ones_(module.weight)
