# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What trials of a task have in common: errors that say what failed, and copies to try with."""
from __future__ import annotations

from collections.abc import Callable
import copy
from typing import Any, TypeVar

import torch
from torch import nn

from intradp_ros.systems.training.base.structure import taken_apart
from intradp_ros.systems.training.base.task import TaskError, TrainingTask

T = TypeVar('T')


def done(what: str, step: Callable[[], T], change: str = '') -> T:
    """Return what a step of the user's code returns; TaskError says what failed, and why."""
    try:
        return step()
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f'{what} fails: {type(error).__name__}: '
                        f'{" ".join(str(error).split())}{change and f": {change}"}') from error


def training_copy(task: TrainingTask) -> nn.Module:
    """Return a copy of the module, ready to be trained."""
    module: nn.Module = done(
        'a copy of the module', lambda: copy.deepcopy(task.module),
        'where it uses torch.nn.utils.weight_norm, take that of parametrizations')
    return module if module.training else module.train()


def clones(whole: Any) -> Any:
    """Return the same structure of tensors that may be written to; they have the same graph."""
    tensors, structure = taken_apart(whole)
    return structure.filled([torch.clone(tensor) for tensor in tensors])
