# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The optimiser of some parameters of a task, with the options that its factory gives them of all.

The factory gets all parameters, frozen ones too, as in a plain loop: it may number them, or take
one by its name.
"""
from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from intradp_ros.systems.training.base.task import TrainingTask

Named = Sequence[tuple[str, nn.Parameter]]


def trained_parameters(task: TrainingTask) -> list[tuple[str, nn.Parameter]]:
    """Return the parameters that are to be trained."""
    return [(name, p) for name, p in task.module.named_parameters() if p.requires_grad]


def whole_optimiser(task: TrainingTask) -> torch.optim.Optimizer:
    """Return what the factory makes of the module's own parameters."""
    return task.optimiser([*task.module.named_parameters()])


def stage_optimiser(task: TrainingTask, own: Named) -> torch.optim.Optimizer:
    """Return what the factory makes of all parameters, these in the place of theirs, alone."""
    mine = dict(own)
    made = task.optimiser([(name, mine.get(name, p))
                           for name, p in task.module.named_parameters()])
    kept = {id(p) for p in mine.values()}
    for group in made.param_groups:
        group['params'] = [p for p in group['params'] if id(p) in kept]
    made.param_groups = [group for group in made.param_groups if group['params']]
    for other in [p for p in made.state if id(p) not in kept]:
        del made.state[other]
    return made
