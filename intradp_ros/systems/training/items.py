# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Samples of a torch Dataset (what has `__len__` and `__getitem__`), collated when needed."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.data import default_collate

from intradp_ros.systems.training.task import TaskError, Tensors


@dataclass(frozen=True)
class Items:
    """
    A dataset whose items are (input, target) or (input, input, ..., target).

    An item must be the same whenever it is taken: rounds may be played again, and several devices
    take the same one.  So augmentation may draw by the item's number, never at random.
    """

    dataset: Any

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.dataset)

    def take(self, samples: Sequence[int]) -> tuple[Tensors, torch.Tensor]:
        """Return the inputs and targets of these samples, one row each."""
        return _collated([self.dataset[int(k)] for k in samples])


@dataclass(frozen=True)
class ItemsHere:
    """
    A dataset whose items lie on several devices; `dataset` has those that lie here.

    They have the numbers from `first` on, of `total` in all: devices follow one another in the
    order of `--images`.  Where none lies, `dataset` has one item of the same shape and type, and
    `count` is 0.
    """

    dataset: Any
    first: int
    total: int
    count: int | None = None

    def __len__(self) -> int:
        """Return how many there are on all devices."""
        return self.total

    def take(self, samples: Sequence[int]) -> tuple[Tensors, torch.Tensor]:
        """Return the inputs and targets of samples that lie here, one row each."""
        here = len(self.dataset) if self.count is None else self.count
        if out := [k for k in samples if not self.first <= k < self.first + here]:
            raise TaskError(f'sample {out[0]} of {self.total} does not lie here, where those from '
                            f'{self.first} to {self.first + here - 1} do: say where the data lie '
                            'by --images')
        return _collated([self.dataset[int(k) - self.first] for k in samples])

    def examples(self, count: int) -> tuple[Tensors, torch.Tensor]:
        """Return items that show shapes and types."""
        return _collated([self.dataset[k % len(self.dataset)] for k in range(count)])


def _collated(items: list[Any]) -> tuple[Tensors, torch.Tensor]:
    made = default_collate(items)
    if not isinstance(made, list | tuple) or len(made) < 2 or \
            not all(isinstance(part, torch.Tensor) for part in made):
        raise TaskError('an item of the dataset must be (input, target) or (input, input, '
                        '..., target), of tensors or numbers')
    return tuple(made[:-1]), made[-1]
