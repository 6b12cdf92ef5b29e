# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What trials of a task have in common: errors that say what failed, and copies to try with."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from intradp_ros.graph.module_parts import copied
from intradp_ros.systems.training.base.structure import taken_apart
from intradp_ros.systems.training.base.task import described, TaskError, TrainingTask

T = TypeVar('T')


def done(what: str, step: Callable[[], T], change: str = '') -> T:
    """Return what a step of the user's code returns; TaskError says what failed, and why."""
    try:
        return step()
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f'{what} fails: {described(error)}{change and f": {change}"}') from error


def training_copy(task: TrainingTask) -> nn.Module:
    """Return a copy of the module, ready to be trained."""
    module: nn.Module = done(
        'a copy of the module', lambda: copied(task.module),
        'where it uses torch.nn.utils.weight_norm, take that of parametrizations; where it uses '
        'prune, call prune.remove(), or multiply by a mask that is a buffer')
    return module if module.training else module.train()


def forms(whole: Any) -> str:
    """Return the shapes and types of the tensors of a structure, by where they stand."""
    found = [f'{keystr(path)}{" " * bool(path)}{tuple(x.shape)} '
             f'{str(x.dtype).removeprefix("torch.")}'
             for path, x in tree_flatten_with_path(whole)[0] if isinstance(x, torch.Tensor)]
    return ', '.join(found[:4]) + ', ...' * (len(found) > 4)


def check_memory(tensors: Mapping[str, torch.Tensor], moving: Iterable[str]) -> None:
    """See that what training changes has memory of its own; TaskError names what shares it."""
    moves = set(moving)
    spans = sorted((tensor.untyped_storage().data_ptr(), *_span(tensor), name)
                   for name, tensor in tensors.items()
                   if tensor.numel() and tensor.layout is torch.strided and not tensor.is_meta)
    for k, (place, _, end, name) in enumerate(spans):
        for other_place, first, _, other in spans[k + 1:]:
            if other_place != place or first >= end:
                break
            if (name in moves or other in moves) and _overlap(tensors[name], tensors[other]):
                raise TaskError(
                    f'{min(name, other)} and {max(name, other)} share memory: a step of one would '
                    'change the other, which devices keep apart. Assign the parameter itself '
                    '(b.weight = a.weight, not b.weight.data = a.weight.data), make what follows '
                    'of it in the forward pass, or give each a clone()')


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Return the bytes of a storage between which a tensor lies."""
    first = int(tensor.storage_offset())
    last = first + sum((int(size) - 1) * int(step)
                       for size, step in zip(tensor.shape, tensor.stride()))
    return first * tensor.element_size(), (last + 1) * tensor.element_size()


def _overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors that lie between the same bytes have an element in common."""
    if one.element_size() != other.element_size():
        return True
    marks = torch.zeros(one.untyped_storage().nbytes() // one.element_size(), dtype=torch.bool)
    first, second = (marks.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
                     for tensor in (one, other))
    first.fill_(True)
    return bool(second.any())


def clones(whole: Any) -> Any:
    """Return the same structure of tensors that may be written to; they have the same graph."""
    tensors, structure = taken_apart(whole)
    return structure.filled([torch.clone(tensor) for tensor in tensors])
