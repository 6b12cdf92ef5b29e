# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Networks that training must not change, and one process that draws as any plan does."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import copy
from dataclasses import replace
from typing import Any

import torch
from torch import nn
import torch.nn.functional as F  # noqa: N812

from intradp_lab.training.one_process import once_a_round, OneProcess, train_alone
from intradp_ros.core.torchvision_import import torchvision
from intradp_ros.systems.training.base.task import (
    call,
    draw_seed,
    losses_of,
    samples_of,
    TensorData,
    TrainingTask,
)

SAMPLES = 90
Order = Callable[[list[int]], list[int]]


class Typed(nn.Module):
    """Whole numbers, truth values and two floats cross its borders, and skip layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.again = nn.Embedding(20, 8), nn.Embedding(20, 8)
        self.first, self.second = nn.Linear(8, 12), nn.Linear(12, 8)
        self.norm, self.drop = nn.BatchNorm1d(12), nn.Dropout(0.1)
        self.scale = nn.Parameter(torch.ones(8))
        self.last = nn.Linear(8, 10)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        seen = (words > 3).unsqueeze(-1)
        x = self.first(self.embed(words))
        x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        x = self.drop(torch.where(seen, x, torch.tanh(x)))
        half = self.second(x).float()
        y = (half * 2).to(x.dtype) * self.scale + self.again(words)
        return self.last(torch.where(seen, y, half.to(y.dtype)).mean(1))


class Small(nn.Module):
    """Six narrow layers with what depends on the plan elsewhere: a norm, dropout, a way around."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(64, 12), nn.BatchNorm1d(12), nn.ReLU(), nn.Linear(12, 12), nn.Dropout(0.2),
            nn.Tanh(), nn.Linear(12, 12), nn.BatchNorm1d(12))
        self.out = nn.Linear(12, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, *others = self.layers.children()
        x = first(x.flatten(1))
        for layer in others:
            x = layer(x) + 0.5 * x
        return self.out(x)


def mobilenet() -> nn.Module:
    """Return torchvision's MobileNetV2, a quarter as wide."""
    found: nn.Module = torchvision().models.mobilenet_v2(num_classes=10, width_mult=0.25)
    return found


def inputs_of(model: str, dtype: torch.dtype) -> torch.Tensor:
    """Return samples for a model."""
    if model == 'typed':
        return torch.randint(0, 20, (SAMPLES, 5))
    return torch.randn(SAMPLES, *((3, 48, 48) if model == 'mobilenet' else (1, 8, 8))).to(dtype)


def data_of(model: str, dtype: torch.dtype) -> TensorData:
    """Return samples and targets for a model."""
    return TensorData((inputs_of(model, dtype),), torch.randint(0, 10, (SAMPLES,)))


def train_alone_drawing(task: TrainingTask, order: Order = list) -> OneProcess:
    """Train in one process in plain PyTorch; dropout draws by round, grain and place."""
    module, once = copy.deepcopy(task.module), once_a_round(task)
    with _drawing(task, module, order):
        return train_alone(replace(task, module=module), order, once)


def plain_loop(task: TrainingTask) -> OneProcess:
    """
    Train a task as its user would write it: the loss of a whole batch, its way back, a step.

    The task is used up: its module, hooks and all, is what is trained.
    """
    module = task.module if task.module.training else task.module.train()
    optimiser = task.optimiser([*module.named_parameters()])
    found, rates = OneProcess(module), [group['lr'] for group in optimiser.param_groups]
    for number in range(task.rounds):
        inputs, targets = task.data.take(
            samples_of(task.seed, len(task.data), task.batch, number))
        optimiser.zero_grad()
        losses, counts = losses_of(task, call(module, inputs), targets, task.batch)
        loss = losses.sum() / counts.sum()
        loss.backward()
        found.norm.append(float(torch.nn.utils.clip_grad_norm_(
            module.parameters(), task.clip or float('inf'))))
        for group, rate in zip(optimiser.param_groups, rates):
            group['lr'] = rate * (task.schedule(number) if task.schedule else 1.0)
        optimiser.step()
        found.loss.append(float(loss.detach()))
    return found


def parameters_apart(one: OneProcess, other: OneProcess) -> float:
    """Return the largest difference of a parameter, relative to the largest of its tensor."""
    return max(float((p - q).detach().abs().max() / q.detach().abs().max().clamp(min=1e-3))
               for p, q in zip(one.module.parameters(), other.module.parameters()))


def bound_of(task: TrainingTask, alone: OneProcess) -> float:
    """Return ten times as far as a process gets that sums the grains in the other order."""
    return 10 * parameters_apart(train_alone_drawing(task, lambda grains: grains[::-1]), alone)


@contextmanager
def _drawing(task: TrainingTask, module: nn.Module, order: Order) -> Iterator[None]:
    grains = order(list(range(task.grains)))
    passes, place = -1, 0
    dropout, attention = F.dropout, F.scaled_dot_product_attention

    def begin(one: nn.Module, *_: object) -> None:
        nonlocal passes, place
        if not one.training:
            return  # a validation
        passes, place = passes + 1, 0

    def generator() -> torch.Generator:
        nonlocal place
        number, turn = divmod(passes, task.grains)
        found = torch.Generator().manual_seed(
            draw_seed(task.seed, 2, number, grains[turn], place))
        place += 1
        return found

    def drawn(x: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False,
              ) -> torch.Tensor:
        own = generator()
        drawn = torch.empty(x.shape, dtype=x.dtype).bernoulli_(1 - p, generator=own)
        return x * (drawn / (1 - p)) \
            if training and p else x

    def attended(*args: Any, **kwargs: Any) -> torch.Tensor:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(generator().initial_seed())
            return attention(*args, **kwargs)

    module.register_forward_pre_hook(begin)
    F.dropout, F.scaled_dot_product_attention = drawn, attended
    try:
        yield
    finally:
        F.dropout, F.scaled_dot_product_attention = dropout, attention
