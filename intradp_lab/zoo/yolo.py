# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One-stage detectors after YOLOv5 (public architecture facts); random weights.

A backbone of cross-stage-partial blocks, features joined top-down and again
bottom-up, a 1x1 convolution on each level, and the best of what these say.
The pose network has the size of KAPAO's (McNally et al., ECCV 2022): the l6
variant, for images of 1280 pixels.  Pixels come as uint8 and are scaled inside.
"""
from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from intradp_lab.zoo.best_answers import Anchors, Answer, BestAnswers
from intradp_lab.zoo.seeding import seeded

DEPTHS = (3, 6, 9, 3, 3)  # bottlenecks of the backbone's blocks, before scaling
HEAD_DEPTH = 3
FINEST_STRIDE = 8
#: Of the variants for 640 and 1280 pixels.
ANCHORS: Anchors = (
    ((10, 13), (16, 30), (33, 23)), ((30, 61), (62, 45), (59, 119)),
    ((116, 90), (156, 198), (373, 326)))
ANCHORS_6: Anchors = (
    ((19, 27), (44, 40), (38, 94)), ((96, 68), (86, 152), (180, 137)),
    ((140, 301), (303, 264), (238, 542)), ((436, 615), (739, 380), (925, 792)))


@dataclass(frozen=True)
class Size:
    """
    How large a variant is.

    `widths` are those after each halving; `depth` scales the counts of
    bottlenecks; the last widths are read by the head, one for each level of
    `anchors`, for each of which it gives an `answer`; the `best` ones are kept.
    """

    widths: tuple[int, ...]
    depth: float
    anchors: Anchors
    answer: Answer
    best: int = 300

    def count(self, bottlenecks: int) -> int:
        """Return a scaled count of bottlenecks."""
        return max(1, round(bottlenecks * self.depth))


class Convolution(nn.Sequential):
    """Convolution, batch norm, SiLU."""

    def __init__(self, inputs: int, outputs: int, size: int = 1, stride: int = 1,
                 padding: int | None = None) -> None:
        """Make the layers."""
        padding = size // 2 if padding is None else padding
        super().__init__(nn.Conv2d(inputs, outputs, size, stride, padding, bias=False),
                         nn.BatchNorm2d(outputs), nn.SiLU())


class Bottleneck(nn.Module):
    """1x1 and 3x3 convolution, in the backbone added to what came in."""

    def __init__(self, width: int, adds: bool) -> None:
        """Make the layers."""
        super().__init__()
        self.layers = nn.Sequential(Convolution(width, width), Convolution(width, width, 3))
        self.adds = adds

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's output."""
        inner: torch.Tensor = self.layers(x)
        return x + inner if self.adds else inner


class PartialBlock(nn.Module):
    """Half of the channels through bottlenecks, half past them."""

    def __init__(self, inputs: int, outputs: int, count: int, adds: bool = True) -> None:
        """Make the layers."""
        super().__init__()
        half = outputs // 2
        self.past = Convolution(inputs, half)
        self.through = nn.Sequential(Convolution(inputs, half),
                                     *(Bottleneck(half, adds) for _ in range(count)))
        self.join = Convolution(2 * half, outputs)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return both halves joined."""
        joined: torch.Tensor = self.join(torch.cat([self.through(x), self.past(x)], 1))
        return joined


class PyramidPooling(nn.Module):
    """Maxima over 5, 9 and 13 pixels, and the pixel itself."""

    def __init__(self, width: int) -> None:
        """Make the layers."""
        super().__init__()
        self.enter, self.leave = Convolution(width, width // 2), Convolution(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the joined maxima."""
        parts = [self.enter(x)]
        for _ in range(3):
            parts.append(F.max_pool2d(parts[-1], 5, 1, 2))
        left: torch.Tensor = self.leave(torch.cat(parts, 1))
        return left


class Detector(nn.Module):
    """uint8 ``1x3xHxW`` (multiples of the coarsest stride) to the best answers."""

    def __init__(self, size: Size) -> None:
        """Make the layers."""
        super().__init__()
        widths, levels = size.widths, len(size.anchors)
        self.stem = Convolution(3, widths[0], 6, 2, 2)
        depths = (*DEPTHS[:len(widths) - 2], DEPTHS[-1])
        stages = [nn.Sequential(Convolution(a, b, 3, 2), PartialBlock(b, b, size.count(depth)))
                  for a, b, depth in zip(widths, widths[1:], depths)]
        stages[-1].append(PyramidPooling(widths[-1]))
        self.stages = nn.ModuleList(stages)
        read = widths[-levels:]
        count = size.count(HEAD_DEPTH)
        self.narrow = nn.ModuleList(Convolution(b, a) for a, b in zip(read, read[1:]))
        self.down = nn.ModuleList(
            PartialBlock(2 * a, a, count, adds=False) for a in read[:-1])
        self.shrink = nn.ModuleList(Convolution(a, a, 3, 2) for a in read[:-1])
        self.up = nn.ModuleList(
            PartialBlock(2 * a, b, count, adds=False) for a, b in zip(read, read[1:]))
        self.answers = nn.ModuleList(
            nn.Conv2d(a, len(of_level) * size.answer.channels, 1)
            for a, of_level in zip(read, size.anchors))
        self.best = BestAnswers(size.answer, size.anchors, FINEST_STRIDE, size.best)

    def forward(self, image: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the best answers of all levels, and their classes (see `BestAnswers`)."""
        x = self.stem(image.to(self.best.anchors.dtype) / 255)
        features = []
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        found: tuple[torch.Tensor, torch.Tensor] = self.best(
            [answer(f) for answer, f in zip(self.answers, self._joined(features))])
        return found

    def _joined(self, features: list[torch.Tensor]) -> list[torch.Tensor]:
        """Return the levels' features after the way down and the way up."""
        finer = features[-len(self.answers):-1]
        narrow = [self.narrow[-1](features[-1])]
        for index in reversed(range(1, len(finer))):
            merged = self.down[index](torch.cat(
                [F.interpolate(narrow[-1], scale_factor=2.0), finer[index]], 1))
            narrow.append(self.narrow[index - 1](merged))
        x = self.down[0](torch.cat([F.interpolate(narrow[-1], scale_factor=2.0), finer[0]], 1))
        levels = [x]
        for shrink, up, lateral in zip(self.shrink, self.up, reversed(narrow)):
            x = up(torch.cat([shrink(x), lateral], 1))
            levels.append(x)
        return levels


@seeded
def pose_l6() -> nn.Module:
    """Return a pose network of KAPAO's size (about 77 M parameters), for 1280 pixels."""
    return Detector(Size((64, 128, 256, 512, 768, 1024), 1.0, ANCHORS_6,
                         Answer(classes=18, points=17))).eval()


@seeded
def detector_s() -> nn.Module:
    """Return a detector of 80 classes (about 7 M parameters), for 640 pixels."""
    return Detector(Size((32, 64, 128, 256, 512), 1 / 3, ANCHORS, Answer(classes=80))).eval()
