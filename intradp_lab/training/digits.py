# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A task to begin with: a small network with batch norm learns scikit-learn's written digits."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812

from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask

#: Of the 1,797 pictures those at the end are for the check.
CHECKED = 297


class Block(nn.Module):
    """Two convolutions with batch norm, and a way around them."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.first_norm = nn.BatchNorm2d(channels)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second_norm = nn.BatchNorm2d(channels)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the block's values, as many as came in."""
        y = F.relu(self.first_norm(self.first(x)))
        return F.relu(self.second_norm(self.second(y)) + x)


def digits_data() -> tuple[TensorData, TensorData]:
    """
    Return pictures of digits to train with, and others to check with.

    :raises TaskError: if scikit-learn, which brings them, is not installed.
    """
    try:
        from sklearn.datasets import load_digits
    except ImportError:
        raise TaskError('the digits come with scikit-learn, which is not installed: pip install '
                        'scikit-learn') from None
    found = load_digits()
    images = torch.as_tensor(found.images, dtype=torch.float32)[:, None] / 16
    targets = torch.as_tensor(found.target, dtype=torch.long)
    order = torch.randperm(len(targets), generator=torch.Generator().manual_seed(5))
    train, check = order[:-CHECKED], order[-CHECKED:]
    return (TensorData((images[train],), targets[train]),
            TensorData((images[check],), targets[check]))


def digits() -> TrainingTask:
    """Return the task."""
    torch.manual_seed(7)
    module = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(), Block(16),
        Block(16), Block(16), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))
    data, check = digits_data()
    return TrainingTask(module, _loss, _sgd, data, batch=96, grain=8, micro_batches=4, rounds=90,
                        schedule=_warm, check=check)


def digits_float64() -> TrainingTask:
    """Return the task in float64, in which rounding does not hide a difference."""
    task, (data, check) = digits(), digits_data()
    return replace(task, module=task.module.double(), data=_double(data), check=_double(check))


def _double(data: TensorData) -> TensorData:
    return TensorData(tuple(value.double() for value in data.inputs), data.targets)


def _loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(outputs, targets, reduction='none')


def _sgd(named: Sequence[tuple[str, nn.Parameter]]) -> torch.optim.Optimizer:
    """SGD with momentum; weights decay, biases and norms do not."""
    decay = [p for _, p in named if p.dim() > 1]
    others = [p for _, p in named if p.dim() <= 1]
    groups: list[dict[str, Any]] = [{'params': decay, 'weight_decay': 1e-4}, {'params': others}]
    return torch.optim.SGD(groups, lr=0.05, momentum=0.9)


def _warm(number: int) -> float:
    return min(1.0, (number + 1) / 10)
