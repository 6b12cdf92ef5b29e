# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""ConvNeXt (Liu et al., CVPR 2022)."""
from __future__ import annotations

import torch
from torch import nn

from intradp_lab.zoo.seeding import seeded


class ChannelNorm(nn.LayerNorm):
    """Layer norm over the channels of ``NxCxHxW``."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the normalised values."""
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Block(nn.Module):
    """A depthwise 7x7 convolution and two linear layers at each pixel, added to the input."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.filter = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.mix = nn.Sequential(nn.LayerNorm(width, eps=1e-6), nn.Linear(width, 4 * width),
                                 nn.GELU(), nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width, 1, 1), 1e-6))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        mixed: torch.Tensor = self.mix(self.filter(x).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        return x + self.scale * mixed


class ConvNeXt(nn.Module):
    """Patches of 4x4 pixels, four parts of blocks with a halving between, a linear layer."""

    def __init__(self, parts: tuple[tuple[int, int], ...]) -> None:
        """Make the layers; `parts` gives width and count of blocks."""
        super().__init__()
        width = parts[0][0]
        layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), ChannelNorm(width, eps=1e-6)]
        for index, (wider, count) in enumerate(parts):
            if index:
                layers += [ChannelNorm(width, eps=1e-6), nn.Conv2d(width, wider, 2, 2)]
            layers += [Block(wider) for _ in range(count)]
            width = wider
        self.features = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1))
        self.norm, self.classifier = ChannelNorm(width, eps=1e-6), nn.Linear(width, 1000)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.classifier(self.norm(self.features(image)).flatten(1))
        return logits


@seeded
def convnext_base() -> nn.Module:
    """Return ConvNeXt Base (89 M parameters)."""
    return ConvNeXt(((128, 3), (256, 3), (512, 27), (1024, 3))).eval()
