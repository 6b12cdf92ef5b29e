# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tries a task on two samples: what is wrong with it is said before anything is planned."""
from __future__ import annotations

from collections.abc import Callable
import copy
from typing import TypeVar

import torch

from intradp_ros.systems.training.task import examples, TaskError, TrainingTask

T = TypeVar('T')


def try_task(task: TrainingTask) -> None:
    """
    Take samples, run the module, its loss and one step of its optimiser on a copy.

    Raises
    ------
    TaskError
        If one of them fails or returns something of another shape; the text says what to change.

    """
    rows = min(2, len(task.data))
    module = copy.deepcopy(task.module).train()
    inputs, targets = _done('data.take', lambda: examples(task.data, rows))
    again, _ = _done('data.take', lambda: examples(task.data, rows))
    if not isinstance(inputs, tuple) or any(len(x) != rows for x in (*inputs, targets)):
        raise TaskError('data.take must return a tuple of inputs and the targets, each with one '
                        'row a sample')
    if any(not torch.equal(a, b) for a, b in zip(inputs, again, strict=True)):
        raise TaskError('data.take returns other values each time: a round that is played again '
                        'would train on other samples; draw by the number of the sample instead')
    outputs = _done('the module', lambda: module(*(torch.cat([x, x]) for x in inputs)))
    if not isinstance(outputs, torch.Tensor) or len(outputs) != 2 * rows:
        raise TaskError('the module must return one tensor with one row a sample')
    losses = _done('loss', lambda: task.loss(outputs, torch.cat([targets, targets])))
    if not isinstance(losses, torch.Tensor) or losses.shape != (2 * rows,):
        shape = tuple(losses.shape) if isinstance(losses, torch.Tensor) else type(losses).__name__
        raise TaskError(f'loss must return one number a sample, shape ({2 * rows},), not {shape}: '
                        "use reduction='none', and take the mean over all but the first dimension "
                        'where there are several')
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise TaskError('no parameter of the module is to be trained: all have '
                        'requires_grad=False')
    if not bool(torch.isfinite(losses).all()):
        raise TaskError(f'the loss of the first samples is {losses.detach().tolist()}: nothing '
                        'can be learned from that; look at the data and the initial weights')
    _done('the backward pass', lambda: torch.autograd.backward(losses.sum()))
    optimiser = _done('optimiser', lambda: task.optimiser(named))
    if not isinstance(optimiser, torch.optim.Optimizer):
        raise TaskError(f'optimiser returned {type(optimiser).__name__}, not a '
                        'torch.optim.Optimizer')
    _done('the step of the optimiser', optimiser.step)


def _done(what: str, step: Callable[[], T]) -> T:
    try:
        return step()
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f'{what} fails: {type(error).__name__}: '
                        f'{" ".join(str(error).split())}') from error
