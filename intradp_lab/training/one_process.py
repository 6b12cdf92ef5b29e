# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One process that trains everything in plain PyTorch: what every plan's result is compared with.

Nothing of the stages is used here: each grain goes through the module as it is, gradients
accumulate, and batch norm folds its statistics itself, grain after grain.  Buffers that change
whatever the samples are change once a round, as in a pass of all its samples.
"""
from __future__ import annotations

from collections.abc import Callable, Collection
import copy
from dataclasses import dataclass, field

import torch
from torch import nn

from intradp_ros.systems.training.base.task import (
    autocast_of,
    call,
    losses_of,
    samples_of,
    take_of_round,
    TrainingTask,
)


@dataclass
class OneProcess:
    """
    Losses and gradient norms by round, and the trained module.

    `check` has loss and share of right answers of validations, by the round that begins with
    these weights; `best` the best state, and its round.
    """

    module: nn.Module
    loss: list[float] = field(default_factory=list)
    norm: list[float] = field(default_factory=list)
    check: dict[int, tuple[float, float]] = field(default_factory=dict)
    best: tuple[int, dict[str, torch.Tensor]] = (0, {})


def train_alone(task: TrainingTask, order: Callable[[list[int]], list[int]] = list,
                once: Collection[str] | None = None) -> OneProcess:
    """
    Train a task in this process; `order` may sum the grains in another order.

    `once` names buffers that change once a round, where it is known.

    Dropout draws from the process' generator, so it is equal to a plan's only without dropout.
    """
    module = copy.deepcopy(task.module)
    if not module.training:
        module.train()
    if task.freeze_norms:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase):
                part.eval()
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    optimiser, found = task.optimiser([*module.named_parameters()]), OneProcess(module)
    once = once_a_round(task) if once is None else once
    rates = [group['lr'] for group in optimiser.param_groups]
    for number in range(task.rounds):
        samples = samples_of(task.seed, len(task.data), task.batch, number)
        optimiser.zero_grad()
        total = counted = 0.0
        begun = {name: b.clone() for name, b in module.named_buffers() if name in once}
        for grain in order(list(range(task.grains))):
            for name, value in begun.items():
                module.get_buffer(name).copy_(value)
            inputs, targets = take_of_round(
                task, number, [samples[k] for k in task.grain_rows(grain)])
            with autocast_of(task.autocast):
                outputs = call(module, inputs)
            losses, counts = losses_of(task, outputs, targets, len(task.grain_rows(grain)))
            torch.autograd.backward(losses.sum())
            for _, parameter in named:
                if parameter.grad is not None and parameter.grad.is_sparse:
                    parameter.grad = parameter.grad.to_dense()
            total += float(losses.detach().double().sum())
            counted += float(counts.sum())
        gradients = [p.grad for _, p in named if p.grad is not None]
        counted = counted or 1.0
        torch._foreach_div_(gradients, counted)
        norm = sum(float(g.double().pow(2).sum()) for g in gradients) ** 0.5
        if task.clip is not None and (factor := task.clip / (norm + 1e-6)) < 1:
            torch._foreach_mul_(gradients, factor)
        for group, rate in zip(optimiser.param_groups, rates):
            group['lr'] = rate * (task.schedule(number) if task.schedule else 1.0)
        optimiser.step()
        found.loss.append(total / counted)
        found.norm.append(norm)
        if task.validate_every and (not (number + 1) % task.validate_every
                                    or number + 1 == task.rounds):
            found.check[number + 1] = validated(task, module)
            scores = {k: accuracy if task.best_by == 'accuracy' else -loss
                      for k, (loss, accuracy) in found.check.items()}
            if max(scores, key=lambda k: scores[k]) == number + 1:
                found.best = number + 1, copy.deepcopy(module.state_dict())
            if task.patience and sum(k > found.best[0] for k in scores) >= task.patience:
                break
    return found


def validated(task: TrainingTask, module: nn.Module) -> tuple[float, float]:
    """Return the loss of a module on `check` in eval mode, and the share of right answers."""
    assert task.check is not None
    total = counted = right = 0.0
    with torch.no_grad():
        for first in range(0, len(task.check), task.grain):
            rows = range(first, min(first + task.grain, len(task.check)))
            inputs, targets = task.check.take(rows)
            outputs = call(copy.deepcopy(module).eval(), inputs)
            losses, counts = losses_of(task, outputs, targets, len(rows))
            total, counted = total + float(losses.double().sum()), counted + float(counts.sum())
            right += float((outputs.argmax(1) == targets).sum())
    return total / counted, right / len(task.check)


def once_a_round(task: TrainingTask) -> set[str]:
    """Return the buffers that a pass changes alike, whatever its samples are."""
    after = []
    for first in (0, task.grain):
        module = copy.deepcopy(task.module).train()
        inputs, _ = task.data.take([k % len(task.data) for k in range(first, first + task.grain)])
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            call(module, inputs)
        after.append(dict(module.named_buffers()))
    return {name for name, b in task.module.named_buffers() if torch.equal(
        after[0][name], after[1][name]) and not torch.equal(after[0][name], b)}
