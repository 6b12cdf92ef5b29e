# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""ResNet (He et al., CVPR 2016) and RegNet X (Radosavovic et al., CVPR 2020)."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from intradp_lab.zoo.seeding import seeded


def _convolution(inputs: int, outputs: int, size: int, stride: int = 1, groups: int = 1,
                 ) -> nn.Sequential:
    """Return convolution and batch norm."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs))


@dataclass(frozen=True)
class Part:
    """Blocks of one width: how many, their inner width and its groups."""

    width: int
    blocks: int
    inner: int
    groups: int = 1
    stride: int = 2


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, added to what came in."""

    def __init__(self, inputs: int, part: Part, stride: int) -> None:
        """Make the layers of one block."""
        super().__init__()
        self.narrow = _convolution(inputs, part.inner, 1)
        self.filter = _convolution(part.inner, part.inner, 3, stride, part.groups)
        self.widen = _convolution(part.inner, part.width, 1)
        changes = stride > 1 or inputs != part.width
        self.shortcut = _convolution(inputs, part.width, 1, stride) if changes else nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        inner = F.relu(self.filter(F.relu(self.narrow(x))))
        return F.relu(self.widen(inner) + self.shortcut(x))


class ResidualClassifier(nn.Module):
    """A stem, parts of bottlenecks, global pooling and a linear layer."""

    def __init__(self, stem: Sequence[nn.Module], inputs: int, parts: Sequence[Part]) -> None:
        """Make the layers."""
        super().__init__()
        self.stem = nn.Sequential(*stem)
        blocks: list[nn.Module] = []
        for part in parts:
            for index in range(part.blocks):
                blocks.append(Bottleneck(inputs, part, 1 if index else part.stride))
                inputs = part.width
        self.blocks = nn.Sequential(*blocks)
        self.pool, self.classifier = nn.AdaptiveAvgPool2d(1), nn.Linear(inputs, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        pooled = self.pool(self.blocks(self.stem(image)))
        logits: torch.Tensor = self.classifier(pooled.flatten(1))
        return logits


@seeded
def resnet101() -> nn.Module:
    """Return ResNet-101 (45 M parameters)."""
    stem = [_convolution(3, 64, 7, 2), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    parts = [Part(256, 3, 64, stride=1), Part(512, 4, 128), Part(1024, 23, 256),
             Part(2048, 3, 512)]
    return ResidualClassifier(stem, 64, parts).eval()


@seeded
def regnet_x_16gf() -> nn.Module:
    """Return RegNet X of 16 GFLOP (54 M parameters): groups of 128 channels, nothing narrowed."""
    widths = ((256, 2), (512, 6), (896, 13), (2048, 1))
    parts = [Part(width, blocks, width, width // 128) for width, blocks in widths]
    return ResidualClassifier([_convolution(3, 32, 3, 2), nn.ReLU()], 32, parts).eval()
