# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Samples of a torch Dataset (what has `__len__` and `__getitem__`), collated when needed."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, default_collate, IterableDataset

from intradp_ros.systems.training.base.task import AUGMENTED, draw_seed, TaskError
from intradp_ros.systems.training.base.user_code import drawing

Names = str | tuple[str, ...]
#: Makes another item of one, as a generator draws.
Augment = Callable[[Any, torch.Generator], Any]


@dataclass(frozen=True)
class Items:
    """
    A dataset whose items are (input, target) or (input, input, ..., target), or dicts.

    Of a dict, `targets` names what the loss gets, a dict where it names several; the module gets
    the others by name.  An item must be the same whenever it is taken: rounds may be played
    again, and several devices take the same one.  What is to differ from round to round is made
    by `augment`, of an item and a generator whose seed depends on the task's seed, the round and
    the item's number alone; what it draws by PyTorch, Python or NumPy, as transforms do, goes by
    that seed, too.
    """

    dataset: Any
    targets: Names = 'labels'
    augment: Augment | None = None

    def __post_init__(self) -> None:
        """See that samples have numbers; TaskError if not."""
        if isinstance(self.dataset, IterableDataset | DataLoader) or not (
                hasattr(self.dataset, '__getitem__') and hasattr(self.dataset, '__len__')):
            raise TaskError(f'data: {type(self.dataset).__name__} gives its samples in a row, '
                            'not by number: give a dataset with __len__ and __getitem__, such as '
                            'a list of them')

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.dataset)

    def take(self, samples: Sequence[int], seeds: Sequence[int] = ()) -> tuple[Any, Any]:
        """Return the inputs and targets of these samples, one row each, augmented by seeds."""
        return _collated(_augmented([self.dataset[int(k)] for k in samples], samples, seeds,
                                    self.augment), self.targets, samples)


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
    augment: Augment | None = None

    def __len__(self) -> int:
        """Return how many there are on all devices."""
        return self.total

    def take(self, samples: Sequence[int], seeds: Sequence[int] = ()) -> tuple[Any, Any]:
        """Return the inputs and targets of samples that lie here, one row each, augmented."""
        here = len(self.dataset) if self.count is None else self.count
        if out := [k for k in samples if not self.first <= k < self.first + here]:
            raise TaskError(f'sample {out[0]} of {self.total} does not lie here, where those from '
                            f'{self.first} to {self.first + here - 1} do: say where the data lie '
                            'by --images')
        return _collated(_augmented([self.dataset[int(k) - self.first] for k in samples], samples,
                                    seeds, self.augment), self.targets, samples)

    def examples(self, count: int) -> tuple[Any, Any]:
        """Return items that show shapes and types."""
        samples = range(self.first, self.first + count)
        return _collated(_augmented([self.dataset[k % len(self.dataset)] for k in range(count)],
                                    samples, (), self.augment), self.targets, samples)


def _augmented(items: list[Any], samples: Sequence[int], seeds: Sequence[int],
               augment: Augment | None) -> list[Any]:
    """Return items augmented, by their numbers where no round gives seeds."""
    if augment is None:
        return items
    made = []
    for item, seed in zip(items, seeds or [draw_seed(0, AUGMENTED, 0, int(k)) for k in samples],
                          strict=True):
        with drawing(seed):
            made.append(augment(item, torch.Generator().manual_seed(seed)))
    return made


def _collated(items: list[Any], targets: Names, samples: Sequence[int]) -> tuple[Any, Any]:
    parts = [_parts(item, sample) for item, sample in zip(items, samples, strict=True)]
    for sample, part in zip(samples, parts):
        _check_alike(part, sample, parts[0], samples[0])
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
    if found is None:
        raise TaskError('an item of the dataset must be (input, target) or (input, input, '
                        '..., target), or a dict, of tensors or numbers')
    return found


def _parts(item: Any, sample: int) -> dict[str, str]:
    """Return what each part of an item is, by where it stands; TaskError if it has no columns."""
    found = {}
    for where, leaf in _leaves(item, 'item'):
        if isinstance(leaf, bool | int | float):
            leaf = np.asarray(leaf)
        if isinstance(leaf, torch.Tensor) or \
                isinstance(leaf, np.ndarray | np.generic) and leaf.dtype.kind in 'biufc':
            found[where] = f'{str(leaf.dtype).removeprefix("torch.")} of the shape ' \
                           f'{tuple(leaf.shape)}'
            continue
        what, instead = (f'a {type(leaf).__name__}', 'make it a tensor') if leaf is not None else \
            ('None', 'give zeros and a flag in its place')
        raise TaskError(f'sample {sample}: {where} is {what}; an item must be of tensors or '
                        f'numbers: let the dataset leave it out, or {instead}')
    return found


def _leaves(whole: Any, where: str) -> Iterator[tuple[str, Any]]:
    if isinstance(whole, Mapping):
        for key, part in whole.items():
            yield from _leaves(part, f'{where}[{key!r}]')
    elif isinstance(whole, list | tuple):
        for k, part in enumerate(whole):
            yield from _leaves(part, f'{where}[{k}]')
    else:
        yield where, whole


def _check_alike(part: Mapping[str, str], sample: int, first: Mapping[str, str],
                 other: int) -> None:
    """See that an item is of the same kind as another; TaskError says where it is not."""
    for where in {**first, **part}:
        if part.get(where) != first.get(where):
            raise TaskError(
                f'sample {sample}: {where} is {part.get(where, "not there")}, that of sample '
                f'{other} {first.get(where, "is not there")}: let the dataset give all items the '
                'same fields, shapes and types; pad what is shorter, with a mask, or crop')
