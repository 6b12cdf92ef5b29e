# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""MobileNetV3 (Howard et al., ICCV 2019)."""
from __future__ import annotations

from typing import NamedTuple

import torch
from torch import nn

from intradp_lab.zoo.seeding import seeded


class Row(NamedTuple):
    """One bottleneck, as in the paper's Table 2 (`squeeze`: channels there, 0 for none)."""

    size: int
    hidden: int
    outputs: int
    squeeze: int
    activation: type[nn.Module]
    stride: int


SMALL = (
    Row(3, 16, 16, 8, nn.ReLU, 2), Row(3, 72, 24, 0, nn.ReLU, 2), Row(3, 88, 24, 0, nn.ReLU, 1),
    Row(5, 96, 40, 24, nn.Hardswish, 2), Row(5, 240, 40, 64, nn.Hardswish, 1),
    Row(5, 240, 40, 64, nn.Hardswish, 1), Row(5, 120, 48, 32, nn.Hardswish, 1),
    Row(5, 144, 48, 40, nn.Hardswish, 1), Row(5, 288, 96, 72, nn.Hardswish, 2),
    Row(5, 576, 96, 144, nn.Hardswish, 1), Row(5, 576, 96, 144, nn.Hardswish, 1))


def _convolution(inputs: int, outputs: int, size: int, stride: int, groups: int,
                 *activation: nn.Module) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs), *activation)


class SqueezeExcitation(nn.Module):
    """Every channel weighted by what all pixels together say."""

    def __init__(self, width: int, squeeze: int) -> None:
        """Make the layers."""
        super().__init__()
        self.weights = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, squeeze, 1), nn.ReLU(),
            nn.Conv2d(squeeze, width, 1), nn.Hardsigmoid())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the weighted channels."""
        weighted: torch.Tensor = self.weights(x) * x
        return weighted


class InvertedResidual(nn.Module):
    """Expand, filter depthwise, weigh the channels, project."""

    def __init__(self, inputs: int, row: Row) -> None:
        """Make the layers of one bottleneck."""
        super().__init__()
        layers: list[nn.Module] = []
        if row.hidden != inputs:
            layers.append(_convolution(inputs, row.hidden, 1, 1, 1, row.activation()))
        layers.append(_convolution(row.hidden, row.hidden, row.size, row.stride, row.hidden,
                                   row.activation()))
        if row.squeeze:
            layers.append(SqueezeExcitation(row.hidden, row.squeeze))
        layers.append(_convolution(row.hidden, row.outputs, 1, 1, 1))
        self.layers = nn.Sequential(*layers)
        self.adds = row.stride == 1 and inputs == row.outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the bottleneck's output, with `x` added where it has the same shape."""
        narrow: torch.Tensor = self.layers(x)
        return narrow + x if self.adds else narrow


class MobileNetV3(nn.Module):
    """A stem, bottlenecks, global pooling and two linear layers."""

    def __init__(self, rows: tuple[Row, ...] = SMALL, last: int = 576, head: int = 1024) -> None:
        """Make the layers."""
        super().__init__()
        layers: list[nn.Module] = [_convolution(3, 16, 3, 2, 1, nn.Hardswish())]
        inputs = 16
        for row in rows:
            layers.append(InvertedResidual(inputs, row))
            inputs = row.outputs
        layers += [_convolution(inputs, last, 1, 1, 1, nn.Hardswish()), nn.AdaptiveAvgPool2d(1)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(last, head), nn.Hardswish(), nn.Dropout(0.2), nn.Linear(head, 1000))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the logits."""
        logits: torch.Tensor = self.classifier(self.features(image).flatten(1))
        return logits


@seeded
def mobilenet_v3_small() -> nn.Module:
    """Return MobileNetV3 Small (3 M parameters)."""
    return MobileNetV3().eval()
