# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A task to begin with, whose data are drawn: a network learns to name four shapes."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.training.base.task import TensorData, TrainingTask

SHAPES = ('disc', 'square', 'cross', 'ring')
#: Pixels of a picture's side; pictures to train with, and others to check with.
SIDE, TRAINED, CHECKED = 16, 1200, 300
ROUNDS = 90
#: Grey values of 0 to 255 by which pixels are off.
_NOISE = 30


def shapes_data() -> tuple[TensorData, TensorData]:
    """
    Return pictures to train with, and others to check with.

    Inputs are float32 ``n x 1 x SIDE x SIDE`` in [0, 1], targets are places in `SHAPES`.
    All is drawn in whole numbers, so that every processor draws the same.
    """
    random = np.random.Generator(np.random.PCG64(5))
    pictures = [_picture(random, number % len(SHAPES)) for number in range(TRAINED + CHECKED)]
    images = torch.as_tensor(np.stack(pictures), dtype=torch.float32)[:, None] / 256
    targets = torch.arange(len(pictures)) % len(SHAPES)
    return (TensorData((images[:TRAINED],), targets[:TRAINED]),
            TensorData((images[TRAINED:],), targets[TRAINED:]))


def _picture(random: np.random.Generator, shape: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return a shape somewhere in a picture, dark or bright, with noise: SIDE x SIDE."""
    size = int(random.integers(3, 6))
    row, column = random.integers(size, SIDE - size, 2)
    y, x = np.mgrid[:SIDE, :SIDE]
    down, right = abs(y - row), abs(x - column)
    square, distance = np.maximum(down, right), down * down + right * right
    inside = (distance <= size * size, square <= size - 1,
              (np.minimum(down, right) <= size // 3) & (square <= size),
              (distance <= size * size) & (distance >= (size - 1) * (size - 1)))[shape]
    ground, drawn = random.permutation([60, 190])
    noise = random.integers(-_NOISE, _NOISE + 1, (SIDE, SIDE))
    picture: np.ndarray[Any, np.dtype[np.int64]] = np.where(inside, drawn, ground) + noise
    return picture.clip(0, 255)


def shapes() -> TrainingTask:
    """Return the task."""
    torch.manual_seed(7)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, len(SHAPES)))
    data, check = shapes_data()
    return TrainingTask(module, _loss, _sgd, data, batch=96, grain=16, micro_batches=4,
                        rounds=ROUNDS, schedule=_rise_and_fall, check=check)


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction='none')


def _sgd(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    return torch.optim.SGD([parameter for _, parameter in named], lr=0.1, momentum=0.9)


def _rise_and_fall(number: int) -> float:
    """Return the factor of a round's learning rate: up to 1 and, slowly, down again."""
    return min((number + 1) / 10, (ROUNDS - number) / (ROUNDS - 10))
