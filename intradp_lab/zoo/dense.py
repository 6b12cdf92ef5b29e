# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Networks with an answer for every pixel, at the resolution of a camera; random weights.

Both are U-Nets in the usual sense: an encoder that halves the size five
times, and a decoder that doubles it again and reads the encoder's features.
The segmenter has ResNet-18 as its encoder, the depth network separable
convolutions (as in FastDepth, Wofk et al., ICRA 2019).  Pixels come as uint8
and are scaled inside.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from intradp_lab.zoo.seeding import seeded

CLASSES = 19
RESNET_WIDTHS = (64, 64, 128, 256, 512)
SEPARABLE_WIDTHS = (32, 64, 128, 256, 512)
#: A layer from a count of channels to another, halving the size if the stride is 2.
Layer = Callable[[int, int, int], nn.Module]


def convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """Return a 3x3 convolution with batch norm and ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
                         nn.BatchNorm2d(outputs), nn.ReLU())


def separable(inputs: int, outputs: int, stride: int = 1) -> nn.Module:
    """Return a depthwise 3x3 and a 1x1 convolution, each with batch norm and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
        nn.BatchNorm2d(inputs), nn.ReLU(),
        nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU())


class Residual(nn.Module):
    """Two 3x3 convolutions, added to what came in (ResNet's basic block)."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.Sequential(
            convolution(inputs, outputs, stride),
            nn.Conv2d(outputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs))
        same = inputs == outputs and stride == 1
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        return F.relu(self.layers(x) + self.shortcut(x))


def _residual_stage(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(Residual(inputs, outputs, stride), Residual(outputs, outputs))


def _separable_stage(inputs: int, outputs: int, stride: int) -> nn.Module:
    return nn.Sequential(separable(inputs, outputs, stride), separable(outputs, outputs))


class UNet(nn.Module):
    """uint8 ``1x3xHxW`` (multiples of 32) to ``1xANSWERSxHxW``."""

    def __init__(self, widths: tuple[int, ...], stage: Layer, merge: Layer, answers: int) -> None:
        """Make the layers; `stage` makes the encoder's, `merge` the decoder's."""
        super().__init__()
        self.stem = convolution(3, widths[0], 2)
        self.encoder = nn.ModuleList(stage(a, b, 2) for a, b in zip(widths, widths[1:]))
        outward = widths[::-1]
        self.decoder = nn.ModuleList(
            merge(a + b, b, 1) for a, b in zip(outward, outward[1:]))
        self.last, self.answer = merge(widths[0], 32, 1), nn.Conv2d(32, answers, 3, padding=1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the answers for every pixel."""
        features = [self.stem(image.to(torch.float32) / 255)]
        for stage in self.encoder:
            features.append(stage(features[-1]))
        x = features.pop()
        for merge in self.decoder:
            x = merge(torch.cat([F.interpolate(x, scale_factor=2.0), features.pop()], 1))
        answers: torch.Tensor = self.answer(self.last(F.interpolate(x, scale_factor=2.0)))
        return answers


class Segmenter(UNet):
    """uint8 ``1x3xHxW`` to the most likely class of every pixel, uint8 ``1xHxW``."""

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the classes."""
        return super().forward(image).argmax(1).to(torch.uint8)


@seeded
def segmenter() -> nn.Module:
    """Return a segmentation network of 19 classes (about 14 M parameters)."""
    return Segmenter(RESNET_WIDTHS, _residual_stage, convolution, CLASSES).eval()


@seeded
def depth() -> nn.Module:
    """Return a monocular depth network (about 1 M parameters)."""
    return UNet(SEPARABLE_WIDTHS, _separable_stage, separable, 1).eval()
