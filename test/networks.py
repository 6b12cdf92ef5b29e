# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Small networks with the structure of well-known ones that no installed package has."""
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F


def convolve(inputs: int, outputs: int, size: int = 3, stride: int = 1) -> nn.Sequential:
    """Return convolution, batch normalisation and SiLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs), nn.SiLU())


class CrossStage(nn.Module):
    """Two residual blocks on half the channels, joined with all before them (YOLOv8: C2f)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.enter = convolve(inputs, outputs, 1)
        self.blocks = nn.ModuleList(
            nn.Sequential(convolve(half, half), convolve(half, half)) for _ in range(2))
        self.leave = convolve(4 * half, outputs, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(self.enter(x).chunk(2, 1))
        for block in self.blocks:
            parts.append(parts[-1] + block(parts[-1]))
        return self.leave(torch.cat(parts, 1))


class PyramidPool(nn.Module):
    """Three maximum pools in a row, joined (YOLO's SPPF)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = convolve(channels, channels // 2, 1)
        self.leave = convolve(channels * 2, channels, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        return self.leave(torch.cat(parts, 1))


class Yolo(nn.Module):
    """
    A detector: backbone, pyramid up and down, and a head for each of three scales.

    The result, shape (1, 4 + classes, anchors), joins the anchors of all
    scales; boxes come from a softmax over distances, as in YOLOv8.
    """

    def __init__(self, width: int = 8, classes: int = 3, bins: int = 4) -> None:
        super().__init__()
        w = width
        self.classes, self.bins = classes, bins
        self.stem = nn.Sequential(convolve(3, w, 3, 2), convolve(w, 2 * w, 3, 2))
        self.small = nn.Sequential(convolve(2 * w, 4 * w, 3, 2), CrossStage(4 * w, 4 * w))
        self.middle = nn.Sequential(convolve(4 * w, 8 * w, 3, 2), CrossStage(8 * w, 8 * w))
        self.large = nn.Sequential(convolve(8 * w, 8 * w, 3, 2), PyramidPool(8 * w))
        self.up_middle = CrossStage(16 * w, 8 * w)
        self.up_small = CrossStage(12 * w, 4 * w)
        self.down = convolve(4 * w, 4 * w, 3, 2)
        self.down_middle = CrossStage(12 * w, 8 * w)
        self.heads = nn.ModuleList(
            nn.Conv2d(c, 4 * bins + classes, 1) for c in (4 * w, 8 * w, 8 * w))
        self.register_buffer('distances', torch.arange(bins, dtype=torch.float32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.small(self.stem(x))
        middle = self.middle(small)
        large = self.large(middle)
        middle = self.up_middle(torch.cat([F.interpolate(large, scale_factor=2), middle], 1))
        small = self.up_small(torch.cat([F.interpolate(middle, scale_factor=2), small], 1))
        middle = self.down_middle(torch.cat([self.down(small), middle], 1))
        scales = [head(y) for head, y in zip(self.heads, (small, middle, large))]
        anchors = torch.cat([y.flatten(2) for y in scales], 2)
        boxes, scores = anchors.split([4 * self.bins, self.classes], 1)
        shares = boxes.unflatten(1, (4, self.bins)).softmax(2)
        sides = (shares * self.distances.view(1, 1, -1, 1)).sum(2)
        return torch.cat([sides, scores.sigmoid()], 1)


class Inception(nn.Module):
    """Four branches of different windows, side by side."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.one = convolve(inputs, width, 1)
        self.three = nn.Sequential(convolve(inputs, width, 1), convolve(width, width))
        self.five = nn.Sequential(convolve(inputs, width, 1), convolve(width, width, 5))
        self.pool = convolve(inputs, width, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        pooled = self.pool(F.max_pool2d(x, 3, 1, 1, ceil_mode=True))
        return torch.cat([self.one(x), self.three(x), self.five(x), pooled], 1)


class GoogLeNet(nn.Module):
    """Inception blocks between pools that round sizes up, and local response normalisation."""

    def __init__(self, width: int = 16, classes: int = 10) -> None:
        super().__init__()
        self.stem = convolve(3, width, 7, 2)
        self.blocks = nn.ModuleList(
            [Inception(width, width), Inception(4 * width, width), Inception(4 * width, width)])
        self.head = nn.Linear(4 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.local_response_norm(self.stem(x), 5)
        for block in self.blocks:
            x = block(F.max_pool2d(x, 3, 2, ceil_mode=True))
        return self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))


class VolumeNet(nn.Module):
    """A 3D encoder and decoder with instance normalisation on its lowest level."""

    def __init__(self, width: int = 4) -> None:
        super().__init__()
        self.enter = nn.Conv3d(1, width, 3, 1, 1)
        self.down = nn.Conv3d(width, 2 * width, 3, 2, 1)
        self.norm = nn.InstanceNorm3d(2 * width)
        self.up = nn.ConvTranspose3d(2 * width, width, 4, 2, 1)
        self.leave = nn.Conv3d(3 * width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = F.leaky_relu(self.enter(x))
        low = F.leaky_relu(self.norm(self.down(high)))
        wide = F.interpolate(F.avg_pool3d(high, 2), scale_factor=2, mode='trilinear')
        return self.leave(torch.cat([high, self.up(low), wide], 1))


class Borders(nn.Module):
    """Rows that no input row reaches: wide padding, gaps of transposed convolution, reflection."""

    def __init__(self) -> None:
        super().__init__()
        self.reflect = nn.Conv2d(3, 4, 3, padding=1, padding_mode='reflect')
        self.wide = nn.Conv2d(4, 4, 3, padding=9)
        self.gaps = nn.ConvTranspose2d(4, 4, 1, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.leave = nn.Conv2d(4, 2, 5, padding=6, dilation=3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.gaps(self.wide(self.reflect(x).relu())))
        return self.leave(F.pad(y, (0, 0, 9, 9), value=2.0))
