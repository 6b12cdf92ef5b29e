# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small models with the traits that capture has to cope with, and how to compare with them."""
from __future__ import annotations

from collections.abc import Callable
import importlib
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from intradp_ros.graph.capture import capture
from intradp_ros.graph.compare import difference
from intradp_ros.graph.operator_graph import OperatorGraph
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.graph.trees import flatten_call


class Function(nn.Module):
    """A function of one tensor as a model."""

    def __init__(self, function: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def kinds(graph: OperatorGraph) -> list[str]:
    """Return the operators of a graph by name, without namespace and overload."""
    return [op.target.split('.')[1] for op in graph.operators]


def block(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Encoder, decoder by transposed convolution with batch norm, up-sampling, skips."""

    def __init__(self) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = block(3, 6), block(6, 8), block(8, 12)
        self.up2 = nn.Sequential(nn.ConvTranspose2d(12, 8, 2, stride=2), nn.BatchNorm2d(8))
        self.join2, self.join1 = block(16, 8), block(14, 6)
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        d = self.join2(torch.cat([self.up2(c), b], 1))
        e = F.interpolate(d, scale_factor=2, mode='bilinear', align_corners=False)
        return self.head(self.join1(torch.cat([e, a], 1)))


class Heads(nn.Module):
    """Nested results, constants among them, one result returned twice, one that is a buffer."""

    scale: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.trunk = block(3, 8)
        self.register_buffer('scale', torch.tensor([0.5]))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        h = self.trunk(x)
        a, b = h.chunk(2, 1)
        score, index = b.flatten(1).topk(3)
        return {'maps': [a, b * self.scale], 'best': (score, index), 'scale': self.scale,
                'again': a, 'classes': 4, 'nothing': None}


class ComputedWeights(nn.Module):
    """Positions, and a mixture of weights, that are computed in every call."""

    angles: torch.Tensor
    weights: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        numbers = torch.arange(480).reshape(12, 40)
        self.register_buffer('angles', numbers * 7919 % 1009 / 128.)
        self.register_buffer('weights', (numbers * 104729 % 2003 - 1001) / 1024.)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        positions = torch.sin(self.angles) * torch.exp(-self.angles)
        mixed = torch.softmax(self.weights @ self.weights.T / 3, -1) @ self.weights
        return x * mixed + F.layer_norm(positions, (40,))


class TwoInputs(nn.Module):
    """Nested and keyword arguments, a number and a string that decide what is computed."""

    def forward(
            self, x: torch.Tensor, others: list[torch.Tensor], gain: float = 1.0, *,
            mask: torch.Tensor, mode: str = 'add') -> torch.Tensor:
        h = x + others[0] if mode == 'add' else x * others[1]
        return h.masked_fill(mask, 0.0) * gain


class Tied(nn.Module):
    """The same parameter under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)
        self.second.weight = self.first.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.tanh(self.first(x)))


class Tables(nn.Module):
    """Buffers of all kinds, and tables computed from sizes alone."""

    kept: torch.Tensor
    light: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer('kept', torch.randn(5, 1))
        self.register_buffer('light', torch.randn(5, 1), persistent=False)
        self.plain = torch.randn(5, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[-1], dtype=x.dtype)
        grid = torch.sin(steps[None] * self.kept) + torch.zeros_like(x)
        return x + grid * self.light + self.plain * torch.tensor(2.0)


class WritesInPlace(nn.Module):
    """In-place operators, through views and on the input itself."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        y = x.clone()
        y[:, 1:3] += 1
        y[:, 0].copy_(x[:, 3])
        return y.t().reshape(-1).relu_()


class Attention(nn.Module):
    """A transformer layer with dropout, views that follow a transposition, layer norms."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        self.lift = nn.Linear(3, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = self.lift(x.flatten(2).transpose(1, 2))
        return self.layer(tokens).transpose(1, 2).reshape(x.shape[0], 8, *x.shape[2:])


def prepared(model: nn.Module, seed: int = 0) -> nn.Module:
    """Return the model in evaluation mode with statistics that are not those of a new one."""
    generator = torch.Generator().manual_seed(seed)
    for module in model.modules():
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            _randomise(module, generator)
    return model.eval()


def _randomise(module: Any, generator: torch.Generator) -> None:
    module.running_mean.normal_(generator=generator)
    module.running_var.uniform_(0.5, 2, generator=generator)
    if module.affine:
        nn.init.uniform_(module.weight, -1.5, 1.5, generator=generator)
        nn.init.normal_(module.bias, generator=generator)


def pytorchcv_net(module: str, name: str, **options: Any) -> nn.Module:
    """Return a model of pytorchcv; its index of all models would need torchvision."""
    pytest.importorskip('pytorchcv')
    return getattr(importlib.import_module(f'pytorchcv.models.{module}'), name)(**options)


def worst_difference(
        graph: OperatorGraph, model: nn.Module, *args: Any, **kwargs: Any) -> float:
    """Return the largest difference of any result of graph and model, relative to the result."""
    with torch.no_grad():
        expected = pytree.tree_leaves(model(*pytree.tree_map(_fresh, args), **kwargs))
    leaves, _ = flatten_call(args, kwargs)
    actual = run_graph(graph, [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)])
    assert len(expected) == len(actual)
    return max(map(difference, expected, actual))


def captured(model: nn.Module, *args: Any, **options: Any) -> OperatorGraph:
    """Capture by an operator graph or fail, but never as one opaque operator."""
    return capture(model, args, methods=('export',), **options)


def _fresh(item: Any) -> Any:
    return item.clone() if isinstance(item, torch.Tensor) else item
