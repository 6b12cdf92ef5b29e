# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What is trained: module, loss, optimiser and data, made by a factory that is named.

Nothing in a task knows of devices.  Results depend on the task alone, never on the plan: samples
are dealt in grains; batch norm normalises one grain and folds its running statistics in the
order of grains; dropout draws by round and grain; sums are divided once, by the round's samples.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
import importlib
import math
import os
import sys
from typing import Protocol

import torch
from torch import nn

Tensors = tuple[torch.Tensor, ...]
MOST_SAMPLES = 1 << 20


class TaskError(ValueError):
    """A task that cannot be trained; the text says what to change."""


class Data(Protocol):
    """Samples by number."""

    def __len__(self) -> int:
        """Return how many there are."""

    def take(self, samples: Sequence[int]) -> tuple[Tensors, torch.Tensor]:
        """Return the inputs of the module and the targets, each with one row a sample."""


@dataclass(frozen=True)
class TensorData:
    """Samples that are in memory: inputs and targets with one row each."""

    inputs: Tensors
    targets: torch.Tensor

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.targets)

    def take(self, samples: Sequence[int]) -> tuple[Tensors, torch.Tensor]:
        """Return the rows of these samples."""
        rows = torch.as_tensor(list(samples), dtype=torch.long)
        return tuple(value[rows] for value in self.inputs), self.targets[rows]


@dataclass(frozen=True)
class TrainingTask:
    """
    A network and how it is trained.

    Attributes
    ----------
    module
        The network; it takes tensors and returns one tensor, each with one row a sample.
    loss
        From outputs and targets to the loss of each sample, shape (n,): no mean, no sum.
    optimiser
        From named parameters to their optimiser, with groups as you like (weight decay).  Each
        stage makes one of its own, so each parameter must be stepped on its own.
    batch, grain, micro_batches
        Samples of a round and of a grain; the micro-batches that a round is dealt in.
    clip
        Largest norm of all gradients together; longer ones are scaled down to it.
    schedule
        From the round to a factor on the learning rates.
    autocast
        Type of the forward pass under autocast; None: as the parameters are.
    freeze_norms
        Batch norm uses its running statistics and leaves them alone, as fine-tuning wants.

    Raises
    ------
    TaskError
        If a figure makes no sense.

    """

    module: nn.Module
    loss: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
    optimiser: Callable[[Sequence[tuple[str, nn.Parameter]]], torch.optim.Optimizer]
    data: Data
    batch: int
    grain: int
    micro_batches: int
    rounds: int
    seed: int = 0
    clip: float | None = None
    schedule: Callable[[int], float] | None = None
    autocast: torch.dtype | None = None
    freeze_norms: bool = False
    check: Data | None = None

    def __post_init__(self) -> None:
        """Check the figures."""
        if not 1 <= self.grain <= self.batch <= min(len(self.data), MOST_SAMPLES):
            raise TaskError(f'a round takes {self.batch} samples of {len(self.data)} in grains of '
                            f'{self.grain}: choose 1 <= grain <= batch <= samples')
        if not 1 <= self.micro_batches <= self.grains:
            raise TaskError(f'{self.grains} grains make 1 to {self.grains} micro-batches, not '
                            f'{self.micro_batches}')
        if self.rounds < 1:
            raise TaskError(f'training takes 1 round or more, not {self.rounds}')
        if self.clip is not None and not 0 < self.clip < math.inf:
            raise TaskError(f'gradients are clipped to a norm above 0, not {self.clip}')

    @property
    def grains(self) -> int:
        """Return the grains of a round."""
        return -(-self.batch // self.grain)

    def grain_rows(self, grain: int) -> range:
        """Return the rows of a grain in its round; the last grain may be short."""
        return range(grain * self.grain, min((grain + 1) * self.grain, self.batch))


def samples_of(seed: int, samples: int, batch: int, number: int) -> list[int]:
    """
    Return the samples of a round, in order: a function of seed and round alone.

    Each pass over the data takes every sample once, in an order of its own; a round may lie
    across two passes.
    """
    first, found = number * batch, list[int]()
    while len(found) < batch:
        epoch, place = divmod(first + len(found), samples)
        generator = torch.Generator().manual_seed(draw_seed(seed, 1, epoch))
        order = torch.randperm(samples, generator=generator)
        found += order[place:place + batch - len(found)].tolist()
    return found


def draw_seed(*numbers: int) -> int:
    """Mix numbers to the seed of a generator (63 bits, splitmix64)."""
    mixed = 0
    for number in numbers:
        mixed = (mixed + number + 0x9E3779B97F4A7C15) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ mixed >> 30) * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & 0xFFFFFFFFFFFFFFFF
        mixed ^= mixed >> 31
    return mixed >> 1


def load_task(name: str) -> TrainingTask:
    """
    Return the task that the function `package.module:function` makes.

    Code of the working directory may be named: the name comes from who starts the process,
    never from the network.

    Raises
    ------
    TaskError
        If there is no such function, or it makes no task.

    """
    module, _, function = name.partition(':')
    if not function:
        raise TaskError(f'{name!r} names no task: write package.module:function')
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    try:
        made = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise TaskError(f'{name}: {error}') from error
    if not isinstance(made, TrainingTask):
        raise TaskError(f'{name} returned {type(made).__name__}, not a TrainingTask')
    return made
