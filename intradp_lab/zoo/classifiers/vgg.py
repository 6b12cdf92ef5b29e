# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""VGG with batch norm (Simonyan and Zisserman, ICLR 2015)."""
from __future__ import annotations

import torch
from torch import nn

from intradp_lab.zoo.seeding import seeded

#: Width and count of 3x3 convolutions of each part; a pool halves the size after each.
VGG19 = ((64, 2), (128, 2), (256, 4), (512, 4), (512, 4))


class VGG(nn.Module):
    """Five parts of 3x3 convolutions, and three linear layers over everything."""

    def __init__(self, parts: tuple[tuple[int, int], ...] = VGG19) -> None:
        """Make the layers."""
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 3
        for width, count in parts:
            for _ in range(count):
                layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width),
                           nn.ReLU()]
                inputs = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(7))
        self.classifier = nn.Sequential(
            nn.Linear(inputs * 49, 4096), nn.ReLU(), nn.Linear(4096, 4096), nn.ReLU(),
            nn.Linear(4096, 1000))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.classifier(self.features(image).flatten(1))
        return logits


@seeded
def vgg19_bn() -> nn.Module:
    """Return VGG19 with batch norm (144 M parameters)."""
    return VGG().eval()
