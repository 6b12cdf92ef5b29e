# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""DenseNet (Huang et al., CVPR 2017)."""
from __future__ import annotations

import torch
from torch import nn

from intradp_lab.zoo.seeding import seeded

GROWTH, WIDENING = 32, 4


def _activated(inputs: int, outputs: int, size: int) -> nn.Sequential:
    """Return batch norm, ReLU and convolution."""
    return nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(),
                         nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False))


class DenseBlock(nn.Module):
    """Layers that read everything before them in the block, and add `GROWTH` channels each."""

    def __init__(self, inputs: int, layers: int) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.ModuleList(nn.Sequential(
            _activated(inputs + k * GROWTH, WIDENING * GROWTH, 1),
            _activated(WIDENING * GROWTH, GROWTH, 3)) for k in range(layers))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the input with all that the layers added."""
        parts = [x]
        for layer in self.layers:
            parts.append(layer(torch.cat(parts, 1)))
        return torch.cat(parts, 1)


class DenseNet(nn.Module):
    """Dense blocks; between them half of the channels, and of the size, go on."""

    def __init__(self, blocks: tuple[int, ...] = (6, 12, 24, 16)) -> None:
        """Make the layers."""
        super().__init__()
        width = 2 * GROWTH
        layers: list[nn.Module] = [
            nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1)]
        for index, count in enumerate(blocks):
            layers.append(DenseBlock(width, count))
            width += count * GROWTH
            if index < len(blocks) - 1:
                layers += [_activated(width, width // 2, 1), nn.AvgPool2d(2)]
                width //= 2
        layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.AdaptiveAvgPool2d(1)]
        self.features, self.classifier = nn.Sequential(*layers), nn.Linear(width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.classifier(self.features(image).flatten(1))
        return logits


@seeded
def densenet121() -> nn.Module:
    """Return DenseNet-121 (8 M parameters)."""
    return DenseNet().eval()
