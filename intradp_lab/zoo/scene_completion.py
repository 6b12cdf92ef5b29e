# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A semantic scene completion network after AGRNav (Wang et al., IROS 2024); random weights.

From an occupancy grid (sparse, one bit a cell) to a class for every cell: a
2-D U-Net in which height is the channel, and dilated 3-D convolutions on its
output.  Layers and widths follow the operator list that the authors of
Intra-DP logged; what such a list does not show (kernel sizes) is 3 here, and
stride plus 2 for transposed convolutions.
"""
from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from intradp_lab.zoo.seeding import seeded

HEIGHT, CLASSES, WIDTH_3D = 32, 20, 8


def _twice(inputs: int, outputs: int) -> nn.Sequential:
    """Return two convolutions with ReLU."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(),
                         nn.Conv2d(outputs, outputs, 3, padding=1), nn.ReLU())


def _enlarge(channels: int, factor: int) -> nn.ConvTranspose2d:
    return nn.ConvTranspose2d(channels, channels, factor + 2, factor, 1)


class Trunk(nn.Module):
    """2-D U-Net over the ground plane; its coarse answers reach every finer level."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        widths = (HEIGHT, 48, 64, 80)
        inputs = (HEIGHT, *widths)
        self.down = nn.ModuleList(_twice(a, b) for a, b in zip(inputs, widths))
        self.answer8, self.answer4, self.answer2 = (
            nn.Conv2d(a, b, 3, padding=1) for a, b in ((80, 4), (64, 8), (48, 16)))
        self.from8 = nn.ModuleList(_enlarge(4, factor) for factor in (2, 4, 8))
        self.from4 = nn.ModuleList(_enlarge(8, factor) for factor in (2, 4))
        self.from2 = _enlarge(16, 2)
        self.merge4, self.merge2, self.merge1 = (
            nn.Conv2d(a, b, 3, padding=1) for a, b in ((68, 64), (60, 48), (60, HEIGHT)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return features of the input's size."""
        full = self.down[0](x)
        half = self.down[1](F.max_pool2d(full, 2))
        quarter = self.down[2](F.max_pool2d(half, 2))
        answer8 = self.answer8(self.down[3](F.max_pool2d(quarter, 2)))
        merged = F.relu(self.merge4(torch.cat([self.from8[0](answer8), quarter], 1)))
        answer4 = self.answer4(merged)
        merged = F.relu(self.merge2(torch.cat(
            [self.from4[0](answer4), half, self.from8[1](answer8)], 1)))
        answer2 = self.from2(self.answer2(merged))
        return F.relu(self.merge1(torch.cat(
            [answer2, full, self.from4[1](answer4), self.from8[2](answer8)], 1)))


class Head(nn.Module):
    """3-D convolutions that see cells one, two and three steps away, added up."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.enter = nn.Conv3d(1, WIDTH_3D, 3, padding=1)
        self.branches = nn.ModuleList(nn.Sequential(
            nn.Conv3d(WIDTH_3D, WIDTH_3D, 3, padding=step, dilation=step, bias=False),
            nn.BatchNorm3d(WIDTH_3D), nn.ReLU(),
            nn.Conv3d(WIDTH_3D, WIDTH_3D, 3, padding=step, dilation=step, bias=False),
            nn.BatchNorm3d(WIDTH_3D)) for step in (1, 2, 3))
        self.classes = nn.Conv3d(WIDTH_3D, CLASSES, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return scores of all classes for ``1x1xHEIGHTxLENGTHxWIDTH``."""
        entered = F.relu(self.enter(x))
        near, middle, far = (branch(entered) for branch in self.branches)
        scores: torch.Tensor = self.classes(F.relu(near + middle + far + entered))
        return scores


class SceneCompletion(nn.Module):
    """Occupancy ``1x1xLENGTHx32xWIDTH`` (0 or 1) to classes uint8 ``1xLENGTHx32xWIDTH``."""

    def __init__(self) -> None:
        """Make the layers."""
        super().__init__()
        self.trunk, self.head = Trunk(), Head()

    def forward(self, occupancy: torch.Tensor) -> torch.Tensor:
        """Return the most likely class of every cell."""
        plane = occupancy.squeeze(1).permute(0, 2, 1, 3).to(torch.float32)
        scores: torch.Tensor = self.head(self.trunk(plane)[:, None])
        return scores.permute(0, 1, 3, 2, 4).argmax(1).to(torch.uint8)


@seeded
def scene_completion() -> nn.Module:
    """Return the network (about 0.3 M parameters)."""
    return SceneCompletion().eval()
