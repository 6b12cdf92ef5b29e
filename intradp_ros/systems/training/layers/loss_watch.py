# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether a loss reads the module's weights by itself, which devices train in copies of them."""
from __future__ import annotations

import torch

from intradp_ros.systems.training.base.task import TaskError, TrainingTask
from intradp_ros.systems.training.base.user_code import tensors_reached, Watch
from intradp_ros.systems.training.layers.layer_graph import by_first_name, LayerGraph


def moving_tensors(task: TrainingTask, graph: LayerGraph) -> dict[str, torch.Tensor]:
    """Return the tensors of a task's module that training changes, where it lies: in no device."""
    named = by_first_name(task.module)
    return {name: named[name] for name in (*graph.trained, *graph.moving) if name in named}


def readable_tensors(task: TrainingTask, graph: LayerGraph) -> dict[str, torch.Tensor]:
    """Return those of them that the loss could read: by its code, what it holds and names."""
    moving, reached = moving_tensors(task, graph), tensors_reached(task.loss)
    if reached is None:
        return moving
    places = {tensor.untyped_storage().data_ptr() for tensor in reached}
    return {name: tensor for name, tensor in moving.items()
            if tensor.untyped_storage().data_ptr() in places}


def check_read(watch: Watch) -> None:
    """See that nothing was read; TaskError names the tensor, and what to return instead."""
    if watch.read:
        raise TaskError(
            f'the loss reads {next(iter(watch.read))} of the module by itself, which devices '
            'train in copies: let the module return what the loss needs of it with a row for each '
            'sample, such as (outputs, w.abs().sum().expand(rows)) for a penalty')
