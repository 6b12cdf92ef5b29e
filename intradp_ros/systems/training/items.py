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
        made = default_collate([self.dataset[int(k)] for k in samples])
        if not isinstance(made, list | tuple) or len(made) < 2 or \
                not all(isinstance(part, torch.Tensor) for part in made):
            raise TaskError('an item of the dataset must be (input, target) or (input, input, '
                            '..., target), of tensors or numbers')
        return tuple(made[:-1]), made[-1]
