# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Hooks on parameters: run once a round on the gradient of all its samples, as in a plain loop.

Every device of a stage runs them on the same gradient; what they draw goes by round and parameter.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from intradp_ros.systems.training.base.task import (
    described,
    draw_seed,
    TaskError,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import drawing

#: What `draw_seed` gets first.
_HOOK = 4


class ParameterHooks:
    """
    The hooks that a task's parameters have, by `register_hook` and the like.

    `names` are those of parameters that have one.
    """

    def __init__(self, task: TrainingTask) -> None:
        self._seed = task.seed
        self._all = [(place, name, hooks_of(p))
                     for place, (name, p) in enumerate(task.module.named_parameters())]
        self._all = [one for one in self._all if any(one[2])]

    @property
    def names(self) -> list[str]:
        """Return the names of the parameters that have hooks."""
        return [name for _, name, _ in self._all]

    def run(self, parameters: Mapping[str, nn.Parameter], number: int) -> None:
        """
        Run the hooks of some parameters on their gradients, of a round.

        :raises TaskError: if one fails.
        """
        for place, name, (before, after) in self._all:
            parameter = parameters.get(name)
            if parameter is None or parameter.grad is None:
                continue
            with torch.no_grad(), drawing(draw_seed(self._seed, _HOOK, number, place)):
                try:
                    for hook in before:
                        changed = hook(parameter.grad)
                        if changed is not None:
                            parameter.grad = changed.to_dense() if changed.is_sparse else changed
                    for hook in after:
                        hook(parameter)
                except Exception as error:
                    raise TaskError(f'a hook of {name} fails: {described(error)}. It gets the '
                                    'gradient, or the parameter, of a copy of the module: let it '
                                    'use nothing else of the module') from error


def hooks_of(parameter: nn.Parameter) -> tuple[list[Callable[..., Any]], list[Callable[..., Any]]]:
    """Return the hooks on a parameter's gradient, and those that run when it has one."""
    found = getattr(parameter, '_backward_hooks', None), getattr(
        parameter, '_post_accumulate_grad_hooks', None)
    before, after = (list((one or {}).values()) for one in found)
    return before, after
