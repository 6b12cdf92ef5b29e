# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tries a task on some samples: what is wrong with it is said before anything is planned."""
from __future__ import annotations

from collections.abc import Callable, Sequence
import copy
import math
from typing import Any, TypeVar

import torch
from torch import nn

from intradp_ros.systems.training.base.structure import rows_of, taken_apart, tensors_of
from intradp_ros.systems.training.base.task import (
    autocast_of,
    call,
    examples,
    losses_of,
    TaskError,
    TrainingTask,
)

T = TypeVar('T')
Named = Sequence[tuple[str, nn.Parameter]]
#: Samples that are taken twice, and parameters and numbers with which an optimiser is tried.
_TAKEN, _TRIED, _NUMBERS = 8, 12, 1 << 20


def try_task(task: TrainingTask) -> None:
    """
    Take samples, run the module, its loss and some steps of its optimiser on copies.

    Raises
    ------
    TaskError
        If one of them fails or returns something of another shape; the text says what to change.

    """
    if isinstance(task.module, torch.jit.ScriptModule):
        raise TaskError('the module is TorchScript, which cannot be cut: give the module itself')
    if isinstance(task.loss, nn.Module) and any(p.requires_grad for p in task.loss.parameters()):
        raise TaskError('the loss has parameters of its own, which nothing would train: make them '
                        'part of the module, whose output they may be part of')
    _try_schedule(task)
    inputs, targets = _samples(task)
    module = _training(task)
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise TaskError('no parameter of the module is to be trained: all have '
                        'requires_grad=False')
    if unreal := [name for name, p in named if not p.is_floating_point()]:
        raise TaskError(f'{unreal[0]} is to be trained, and is not real: keep '
                        'torch.view_as_real of complex numbers, and make them in the forward pass')
    losses = _losses(task, module, inputs, targets)
    if not bool(torch.isfinite(losses).all()):
        raise TaskError(f'the loss of the first samples is {losses.detach().tolist()}: nothing '
                        'can be learned from that; look at the data and the initial weights')
    if not losses.requires_grad:
        raise TaskError('the loss depends on no parameter that is to be trained: look at what has '
                        'requires_grad=False, is detached, or is returned but not used')
    _done('the backward pass', lambda: torch.autograd.backward(losses.sum()))
    least = task.batch - (task.grains - 1) * task.grain
    if least < 2 * len(losses):
        rows = [k % len(losses) for k in range(least)]
        _losses(task, _training(task), rows_of(inputs, rows), rows_of(targets, rows),
                f' with the {least} sample{"s" * (least > 1)} of the smallest grain of a round',
                'choose a batch of which the grain leaves more over, or nothing')
    _try_optimiser(task, [(name, p) for name, p in named if p.grad is not None])
    if task.check is not None and len(task.check):
        with torch.no_grad():
            _losses(task, _training(task).eval(), *_samples(task), ' in eval mode',
                    'the result is judged by `check` in eval mode, in which some modules return '
                    'something else than in training: let the loss take both')


def _training(task: TrainingTask) -> nn.Module:
    """Return a copy of the module, ready to be trained."""
    module: nn.Module = _done(
        'a copy of the module', lambda: copy.deepcopy(task.module),
        'where it uses torch.nn.utils.weight_norm, take that of parametrizations')
    return module if module.training else module.train()


def _try_schedule(task: TrainingTask) -> None:
    if task.schedule is None:
        return
    for number in (0, task.rounds - 1):
        for _ in range(2):
            factor = _done('schedule', lambda: float(task.schedule(number)))  # type: ignore[misc]  # noqa: B023
            if not 0 <= factor < math.inf or factor != float(task.schedule(number)):
                raise TaskError(f'schedule({number}) is {factor}: it must be a factor of 0 or '
                                'more, and a function of the round alone')


def _samples(task: TrainingTask) -> tuple[Any, Any]:
    """Take samples twice; return the first two of them twice over."""
    rows = min(_TAKEN, len(task.data))
    taken = [_done('data.take', lambda: examples(task.data, rows)) for _ in range(2)]
    parts = []
    for one in taken:
        if not isinstance(one, tuple) or len(one) != 2 or not isinstance(one[0], tuple | dict):
            raise TaskError('data.take must return a tuple of inputs and the targets; inputs are '
                            "a tuple of the module's arguments, or a dict of them by name")
        for whole in one:
            tensors, structure = taken_apart(whole)
            if not tensors or structure.constants or \
                    any(not x.dim() or len(x) != rows for x in tensors):
                raise TaskError('data.take must return tensors with one row a sample, in tuples, '
                                'lists, dicts or dataclasses, and nothing else: put what a '
                                'sample has more of into columns')
        parts.append(taken_apart(one))
    (first, structure), (second, again) = parts
    if structure != again or any(a.shape != b.shape or not torch.equal(
            a.nan_to_num(), b.nan_to_num()) for a, b in zip(first, second)):
        raise TaskError('data.take returns other values each time: a round that is played again '
                        'would train on other samples; draw by the number of the sample instead')
    few = [k % rows for k in range(2)] * 2
    return rows_of(taken[0][0], few), rows_of(taken[0][1], few)


def _losses(task: TrainingTask, module: nn.Module, inputs: Any, targets: Any,
            where: str = '', change: str = '') -> torch.Tensor:
    def run() -> Any:
        with autocast_of(task.autocast):
            return call(module, inputs)
    rows = len(tensors_of(targets)[0])
    outputs = _done(f'the module{where}', run, change)
    for x in tensors_of(outputs):
        if not x.dim() or len(x) != rows:
            raise TaskError(f'the module{where} returns a tensor of the shape {tuple(x.shape)} '
                            f'for {rows} samples: results need one row a sample. Let the loss '
                            'make means and sums over samples; give what is the same for all '
                            'samples a row for each, by x.expand(rows, ...)')
    change = change or ('' if isinstance(outputs, torch.Tensor) else
                        f'it gets what the module returns, a {type(outputs).__name__}')
    (losses, counts), (again, others) = (
        _done(f'loss{where}', lambda: losses_of(task, outputs, targets, rows), change)
        for _ in range(2))
    if not torch.equal(losses.nan_to_num(), again.nan_to_num()) or \
            not torch.equal(counts.nan_to_num(), others.nan_to_num()):
        raise TaskError('loss returns other values each time for the same outputs and targets: '
                        'it must neither draw nor remember')
    if not bool((counts >= 0).all()) or not bool(torch.isfinite(counts).all()):
        raise TaskError(f'the loss says that samples count {counts.tolist()}: let it return 0 or '
                        'more as second')
    return losses


def _try_optimiser(task: TrainingTask, named: Named) -> None:
    """
    See that parameters are stepped each on its own, by what is kept in tensors of `state`.

    That is so if optimisers that have one parameter each, and are made anew for each step with
    the state of the one before, get where one does that has them all.
    """
    whole = _optimiser(task, named)
    held = {id(p) for group in whole.param_groups for p in group['params']}
    if without := [name for name, p in named if id(p) not in held]:
        raise TaskError(f'the optimiser leaves out {", ".join(without[:3])}: let it step all '
                        'that it is given, and set requires_grad_(False) on what is not trained')
    for name, p in named:
        _optimiser(task, [(name, p)], f'optimiser, given {name} alone as a stage may give it,')
    some = list[tuple[str, nn.Parameter]]()
    for name, p in sorted(named, key=lambda one: (one[1].numel(), one[0])):
        if len(some) < _TRIED and sum(q.numel() for _, q in some) + p.numel() <= _NUMBERS:
            some.append((name, p))
    some = some or list(named[:1])
    together, apart = ([(name, nn.Parameter(p.detach().double().clone())) for name, p in some]
                       for _ in range(2))
    whole, kept = _optimiser(task, together), [dict[str, Any]() for _ in some]
    for number in range(3):
        for k, ((_, one), (name, other)) in enumerate(zip(together, apart)):
            draws = torch.Generator().manual_seed(97 * number + k)
            one.grad = torch.randn(one.shape, dtype=one.dtype, generator=draws)
            other.grad = one.grad.clone()
            own = _optimiser(task, [(name, other)])
            if kept[k]:
                own.state[other] = kept[k]
            _step(own)
            kept[k] = _tensors(own, other)
        _step(whole)
    for (name, one), (_, other), (_, p) in zip(together, apart, some):
        way = (one - p).detach().abs().max() if p.numel() else torch.zeros(())
        if p.numel() and not bool((one - other).abs().max() <= 1e-6 * way + 1e-14):
            raise TaskError(
                f'{type(whole).__name__} steps {name} otherwise when it has it alone, and its '
                'state moved as a device moves it: each parameter must be stepped on its own, '
                'by tensors in state[parameter], as SGD, Adam and AdamW do')


def _tensors(optimiser: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
    """Return what is kept of a parameter; TaskError if that is no tensors."""
    found = {}
    for key, value in optimiser.state.get(parameter, {}).items():
        if isinstance(value, torch.Tensor):
            found[key] = value.detach().clone()
        elif value is not None:
            raise TaskError(f'{type(optimiser).__name__} keeps {key} as {type(value).__name__}: '
                            'only tensors move between devices')
    return found


def _optimiser(task: TrainingTask, named: Named, what: str = 'optimiser',
               ) -> torch.optim.Optimizer:
    made = _done(what, lambda: task.optimiser(named))
    if not isinstance(made, torch.optim.Optimizer):
        raise TaskError(f'optimiser returned {type(made).__name__}, not a torch.optim.Optimizer')
    if task.schedule is not None and any('lr' not in group for group in made.param_groups):
        raise TaskError(f'{type(made).__name__} has no rate lr that the schedule could change')
    return made


def _step(optimiser: torch.optim.Optimizer) -> None:
    _done(f'the step of {type(optimiser).__name__}', optimiser.step,
          'an optimiser is needed that steps by gradients alone, such as SGD, Adam or AdamW')


def _done(what: str, step: Callable[[], T], change: str = '') -> T:
    try:
        return step()
    except TaskError:
        raise
    except Exception as error:
        raise TaskError(f'{what} fails: {type(error).__name__}: '
                        f'{" ".join(str(error).split())}{change and f": {change}"}') from error
