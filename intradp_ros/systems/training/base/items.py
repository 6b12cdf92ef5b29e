# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Samples of a torch Dataset (what has `__len__` and `__getitem__`), collated when needed."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.utils.data import default_collate

from intradp_ros.systems.training.base.structure import taken_apart
from intradp_ros.systems.training.base.task import TaskError

Names = str | tuple[str, ...]


@dataclass(frozen=True)
class Items:
    """
    A dataset whose items are (input, target) or (input, input, ..., target), or dicts.

    Of a dict, `targets` names what the loss gets, a dict where it names several; the module gets
    the others by name.  An item must be the same whenever it is taken: rounds may be played
    again, and several devices take the same one.  So augmentation may draw by the item's number,
    never at random.
    """

    dataset: Any
    targets: Names = 'labels'

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.dataset)

    def take(self, samples: Sequence[int]) -> tuple[Any, Any]:
        """Return the inputs and targets of these samples, one row each."""
        return _collated([self.dataset[int(k)] for k in samples], self.targets)


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
    targets: Names = 'labels'

    def __len__(self) -> int:
        """Return how many there are on all devices."""
        return self.total

    def take(self, samples: Sequence[int]) -> tuple[Any, Any]:
        """Return the inputs and targets of samples that lie here, one row each."""
        here = len(self.dataset) if self.count is None else self.count
        if out := [k for k in samples if not self.first <= k < self.first + here]:
            raise TaskError(f'sample {out[0]} of {self.total} does not lie here, where those from '
                            f'{self.first} to {self.first + here - 1} do: say where the data lie '
                            'by --images')
        return _collated([self.dataset[int(k) - self.first] for k in samples], self.targets)

    def examples(self, count: int) -> tuple[Any, Any]:
        """Return items that show shapes and types."""
        return _collated([self.dataset[k % len(self.dataset)] for k in range(count)],
                         self.targets)


def _collated(items: list[Any], targets: Names) -> tuple[Any, Any]:
    made: Any = default_collate(items)
    found: tuple[Any, Any] | None = None
    if isinstance(made, Mapping):
        wanted = (targets,) if isinstance(targets, str) else targets
        if missing := [name for name in wanted if name not in made]:
            raise TaskError(f'an item of the dataset is a dict of {", ".join(map(str, made))}: '
                            f'{missing[0]} is not among them; name what the loss gets in '
                            'Items(dataset, targets=...)')
        lost = {name: made[name] for name in wanted}
        found = ({name: part for name, part in made.items() if name not in lost},
                 lost[targets] if isinstance(targets, str) else lost)
    elif isinstance(made, list | tuple) and len(made) > 1:
        found = (tuple(made[:-1]), made[-1])
    if found is None or taken_apart(found)[1].constants:
        raise TaskError('an item of the dataset must be (input, target) or (input, input, '
                        '..., target), or a dict, of tensors or numbers')
    return found
