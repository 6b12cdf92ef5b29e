# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Small networks for the tests of the runtime, with calibrated random weights.

Each call makes the same weights.  Processes that a test starts can load the
networks that take uint8 pixels as ``small_models:NAME 1x3xHEIGHTxWIDTH uint8``.
"""
from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional as F

from intradp_ros.perception.card import HeadCard, InputCard, ModelCard
from intradp_ros.perception.graph_wrappers import BestBoxes, Normalised
from intradp_ros.split.checks.calibrate import calibrate


def convolve(inputs: int, outputs: int, size: int = 3, **options: int) -> nn.Sequential:
    """Return convolution, batch normalisation and ReLU."""
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, padding=size // 2, bias=False, **options),
        nn.BatchNorm2d(outputs), nn.ReLU())


class Scalar(nn.Module):
    """A network whose result has no dimensions."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(convolve(3, 8), convolve(8, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x.float() / 255).mean()


def scalar() -> nn.Module:
    """Return a `Scalar`."""
    torch.manual_seed(3)
    return Scalar().eval()


class Residual(nn.Module):
    """Two convolutions, added to what came in."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(convolve(width, width), nn.Conv2d(width, width, 3, padding=1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(x + self.body(x))


class InvertedResidual(nn.Module):
    """Widen, convolve each channel for itself, narrow, add (MobileNetV2)."""

    def __init__(self, width: int, factor: int = 3) -> None:
        super().__init__()
        wide = width * factor
        self.body = nn.Sequential(
            convolve(width, wide, 1), convolve(wide, wide, 3, groups=wide),
            nn.Conv2d(wide, width, 1), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.body(x)


class UNet(nn.Module):
    """Down and up again, with skips; one value for each pixel."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = convolve(3, width)
        self.down = nn.Sequential(convolve(width, 2 * width, stride=2), Residual(2 * width))
        self.bottom = nn.Sequential(convolve(2 * width, 4 * width, stride=2),
                                    InvertedResidual(4 * width))
        self.up = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2)
        self.join = convolve(4 * width, 2 * width)
        self.leave = nn.Conv2d(3 * width, 1, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        high = self.enter(x)
        middle = self.down(high)
        low = self.join(torch.cat([middle, self.up(self.bottom(middle))], 1))
        wide = F.interpolate(low, scale_factor=2, mode='bilinear')
        return torch.sigmoid(self.leave(torch.cat([high, wide], 1)))


class Mobile(nn.Module):
    """Inverted residuals, squeezed and excited, and a classifier."""

    def __init__(self, width: int = 12, classes: int = 10) -> None:
        super().__init__()
        self.stem = nn.Sequential(convolve(3, width, stride=2), InvertedResidual(width))
        self.gate = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(width, width, 1), nn.Hardsigmoid())
        self.trunk = nn.Sequential(convolve(width, 2 * width, stride=2),
                                   InvertedResidual(2 * width))
        self.head = nn.Linear(2 * width, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        x = self.trunk(x * self.gate(x))
        return self.head(x.mean((2, 3)))


class Residuals(nn.Module):
    """Residual blocks and a pool, then two outputs: a map and classes."""

    def __init__(self, width: int = 8, blocks: int = 2, classes: int = 5) -> None:
        super().__init__()
        self.stem = convolve(3, width, 7, stride=2)
        self.blocks = nn.Sequential(*[Residual(width) for _ in range(blocks)])
        self.map = nn.Conv2d(width, 2, 1)
        self.head = nn.Linear(width, classes)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = self.blocks(F.max_pool2d(self.stem(x), 3, 2, 1))
        return {'map': self.map(x), 'classes': self.head(x.amax((2, 3)))}


class Pixels(nn.Module):
    """A network behind the scaling of uint8 pixels."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, pixels: torch.Tensor) -> torch.Tensor:
        return self.body(pixels.float() / 127.5 - 1.0)


def seeded(make: Callable[[], nn.Module], height: int = 64, width: int = 96,
           seed: int = 0) -> nn.Module:
    """
    Make a network with calibrated weights from a seed, whatever else draws numbers.

    With one thread, as in the nodes: sums of several threads round otherwise.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model, example = make(), torch.randn(1, 3, height, width)
        return calibrate(model, (example,), seed)
    finally:
        torch.set_num_threads(threads)


def dense() -> nn.Module:
    """Return a U-Net on pixels; its output is a map."""
    return Pixels(seeded(UNet))


class Scene(nn.Module):
    """Occupancy, 1 x 1 x length x height x width, to a class and scores of every cell."""

    def __init__(self, height: int = 8, classes: int = 3) -> None:
        super().__init__()
        self.enter, self.body = convolve(height, 16), Residual(16)
        self.leave = nn.Conv2d(16, height * classes, 1)
        self.classes = classes

    def forward(self, occupancy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        plane = occupancy.squeeze(1).permute(0, 2, 1, 3).float()
        scores = self.leave(self.body(self.enter(plane)))
        length, width = scores.shape[2:]
        scores = scores.view(1, self.classes, -1, length, width).permute(0, 1, 3, 2, 4)
        return scores.argmax(1), scores


def scene() -> nn.Module:
    """Return a network that takes an occupancy grid of 1 x 1 x 24 x 8 x 32 cells."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(3)
        return Scene().eval()


def classes() -> nn.Module:
    """Return a classifier on pixels."""
    return Pixels(seeded(Mobile))


def heavy() -> nn.Module:
    """Return a U-Net that takes a while."""
    return Pixels(seeded(lambda: UNet(32)))


def other_weights() -> nn.Module:
    """Return the same network as `dense` with other weights."""
    return Pixels(seeded(UNet, seed=1))


def unet() -> nn.Module:
    """Return a U-Net on floats that is worth sharing, 1 x 3 x 64 x 96."""
    return seeded(lambda: UNet(24))


class Detector(nn.Module):
    """A one-stage detector with masks, its outputs as those of YOLOv8: random, but sharp."""

    CLASSES, WEIGHTS = 3, 4

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.trunk = nn.Sequential(convolve(3, width, stride=2), convolve(width, width, stride=2))
        self.found = nn.Conv2d(width, 4 + self.CLASSES + self.WEIGHTS, 1)
        self.masks = nn.Conv2d(width, self.WEIGHTS, 1)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.trunk(x)
        rows, columns = torch.meshgrid(
            torch.arange(x.shape[2]), torch.arange(x.shape[3]), indexing='ij')
        middles = (torch.stack((columns, rows))[None] + 0.5) * 4
        found = self.found(x)
        sizes = 8 + 24 * found[:, 2:4].sigmoid()
        scores = (2 * found[:, 4:4 + self.CLASSES]).sigmoid()
        every = torch.cat((middles + found[:, :2], sizes, scores, found[:, -self.WEIGHTS:]), 1)
        return every.flatten(2), self.masks(x)


def detector() -> nn.Module:
    """Return a detector of the best 20 objects on pixels, normalised inside."""
    body = seeded(Detector)
    return BestBoxes(Normalised(body, (0.5, 0.5, 0.5), (0.3, 0.3, 0.3)), Detector.CLASSES, 20)


DETECTOR_CARD = ModelCard(
    'small', input=InputCard('letterbox', 114),
    head=HeadCard('detections', score_threshold=0.3, form='xywh'), labels=('a', 'b', 'c'))
