# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tries an optimiser: whether it steps each parameter on its own, by what it keeps in tensors."""
from __future__ import annotations

from collections.abc import Sequence
import re
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from intradp_ros.systems.training.base.task import TaskError, TrainingTask
from intradp_ros.systems.training.base.user_code import (
    BY_ROUND,
    changed_between,
    path_to,
    remembered,
    Watch,
)
from intradp_ros.systems.training.layers.parameter_hooks import hooks_of
from intradp_ros.systems.training.layers.stage_optimiser import (
    stage_optimiser,
    trained_parameters,
    whole_optimiser,
)
from intradp_ros.systems.training.layers.trying import done

Named = Sequence[tuple[str, nn.Parameter]]
#: Parameters and numbers with which an optimiser is tried, and steps.
_TRIED, _NUMBERS, _STEPS = 12, 1 << 20, 3
#: Factor on the rate from one step to the next, where the task has a schedule.
_SLOWER = 0.9
#: What PyTorch's schedulers, by its version, set on the step of their optimiser.
_SCHEDULED = ('_wrapped_by_lr_sched', '_with_counter')


def try_optimiser(task: TrainingTask) -> None:
    """
    See that parameters are stepped each on its own, by what is kept in tensors of `state`.

    That is so if nothing that comes of one parameter's gradient reaches another one, and if
    optimisers that are made anew for each step, with the state of the one before, get where one
    does that goes on.

    :raises TaskError: if it is not, or the optimiser has other parameters than those it is given.
    """
    named, every = trained_parameters(task), [*task.module.named_parameters()]
    _try_copies(task, every)
    whole = _made(task, lambda: task.optimiser(every))
    if getattr(whole.zero_grad, '__func__', None) is not torch.optim.Optimizer.zero_grad:
        raise TaskError(f'{type(whole).__name__} has a zero_grad() of its own, which is never '
                        'called: a gradient is new in each round, and None where no sample '
                        'reaches its parameter; let it do in step() what it does there')
    if any(hasattr(whole.step, mark) for mark in _SCHEDULED):
        raise TaskError(f'{type(whole).__name__} has a scheduler of PyTorch, which changes lr of '
                        'its groups when it steps: rates by round are given as schedule=...')
    held = [p for group in whole.param_groups for p in group['params']]
    if without := [name for name, p in named if not any(p is one for one in held)]:
        raise TaskError(f'the optimiser leaves out {", ".join(without[:3])}: let it step all '
                        'of them, and set requires_grad_(False) on what is not trained')
    if others := [p for p in held if not any(p is one for _, one in every)]:
        raise TaskError(f'the optimiser steps a parameter of the shape {tuple(others[0].shape)} '
                        'that it is not given, which no device would train: let the module have '
                        'it and return it with a row for each sample, by p.expand(rows, ...), so '
                        'that the loss gets it with the outputs')
    some = _some(whole, named)
    together, apart = ([(name, nn.Parameter(p.detach().double().clone())) for name, p in some]
                       for _ in range(2))
    whole, kept = _made(task, lambda: stage_optimiser(task, together)), \
        [dict[str, Any]() for _ in some]
    before = dict[str, str]()
    for number in range(_STEPS):
        for k, ((_, one), (name, other)) in enumerate(zip(together, apart)):
            draws = torch.Generator().manual_seed(97 * number + k)
            one.grad = torch.randn(one.shape, dtype=one.dtype, generator=draws)
            other.grad = one.grad.clone()
            own = _made(task, lambda: stage_optimiser(task, [(name, other)]))  # noqa: B023
            if kept[k]:
                own.state[other] = kept[k]
            _slow(task, own, _SLOWER ** number)
            _step(own)
            kept[k] = _tensors(own, other)
        _slow(task, whole, _SLOWER if number else 1.0)
        groups = _options(whole)
        with (mixing := _Mixing(whole, together)), Watch(dict(every)) as watch:
            _step(whole)
        _check_step(whole, groups, mixing, watch, before)
        before = _remembered(whole)
    for (name, one), (_, other), (_, p) in zip(together, apart, some):
        way = (one - p).detach().abs().max() if p.numel() else torch.zeros(())
        if p.numel() and not bool((one - other).abs().max() <= 1e-6 * way + 1e-14):
            raise TaskError(
                f'{type(whole).__name__} steps {name} otherwise when it has it alone, made anew '
                'with its state: each parameter must be stepped on its own, by tensors in '
                'state[parameter], as SGD, Adam and AdamW do, and the optimiser function must '
                'neither write to parameters nor choose by their values')


def check_unseen(task: TrainingTask) -> None:
    """See that nothing else of the task can read the optimiser, its groups, rates and state."""
    whole = _made(task, lambda: whole_optimiser(task))
    shown = [whole, whole.param_groups, whole.state, *whole.param_groups, *(
        value for group in whole.param_groups for value in group.values()
        if isinstance(value, torch.Tensor))]
    hooks = [list(some) for p in task.module.parameters() for some in hooks_of(p)]
    if path := path_to(shown, loss=task.loss, schedule=task.schedule, module=task.module,
                       hooks=hooks, data=task.data, check=task.check):
        raise TaskError(
            f'{path} leads to what the optimiser function made: each device makes optimisers of '
            'its own, for its part of the network, and sets their rates when they step. Let the '
            f'optimiser function keep nothing that others read. {BY_ROUND}')


def _try_copies(task: TrainingTask, named: Named) -> None:
    """See that copies of parameters are grouped as the module's own are, and get no hooks."""
    copies = [(name, nn.Parameter(p.detach(), p.requires_grad)) for name, p in named]
    made = _made(task, lambda: task.optimiser(copies))
    if hooked := [name for name, p in copies if any(hooks_of(p))]:
        raise TaskError(f'the optimiser function sets a hook on {hooked[0]}, which would run on '
                        'parts of its gradient: set it on the parameters of the module, where '
                        'the task is made')
    if own := [name for name, p in named if any(
            p is one for group in made.param_groups for one in group['params'])]:
        raise TaskError(f'the optimiser steps {own[0]} of the module itself, not what it is '
                        'given, which devices train: build it from its argument, such as '
                        '[p for _, p in named], and choose groups by name')
    groups = [_grouped(one, which) for one, which in (
        (made, copies), (_made(task, lambda: task.optimiser(named)), named))]
    if differs := [name for name in groups[1] if groups[0].get(name) != groups[1][name]]:
        raise TaskError(f'the optimiser gives {differs[0]} other options where it gets a copy of '
                        'it, as devices have them: choose groups by name, not by identity or by '
                        'attributes of parameters')


def _grouped(optimiser: torch.optim.Optimizer, named: Named) -> dict[str, str]:
    """Return the options of each parameter by its name."""
    options = {id(p): re.sub(' at 0x[0-9a-f]+', '', str(sorted(options.items())))
               for group, options in zip(optimiser.param_groups, _options(optimiser))
               for p in group['params']}
    return {name: options[id(p)] for name, p in named if id(p) in options}


def _some(whole: torch.optim.Optimizer, named: Named) -> Named:
    """Return small parameters, of each group one or more."""
    group = {id(p): k for k, one in enumerate(whole.param_groups) for p in one['params']}
    order = sorted(named, key=lambda one: (one[1].numel(), one[0]))
    first = {group[id(p)]: (name, p) for name, p in reversed(order)}
    found, numbers = list(first.values())[:_TRIED], 0
    for name, p in order:
        numbers += p.numel()
        if len(found) < _TRIED and numbers <= _NUMBERS and not any(p is q for _, q in found):
            found.append((name, p))
    return found


def _check_step(whole: torch.optim.Optimizer, groups: list[dict[str, str]], mixing: _Mixing,
                watch: Watch, before: dict[str, str]) -> None:
    kind = type(whole).__name__
    if mixed := mixing.found():
        raise TaskError(f'{kind} steps {mixed[0]} by what comes of {mixed[1]}, too: each '
                        'parameter must be stepped on its own, as SGD, Adam and AdamW do. To clip '
                        'the norm of all gradients give the task clip=...')
    if watch.read:
        raise TaskError(f'{kind}, or a hook on its step, reads {next(iter(watch.read))} of the '
                        "task's module, which devices train in copies: let it use the parameters "
                        'that it steps; what follows them, as a teacher does, is a buffer that '
                        'the forward pass changes')
    for had, has in zip(groups, _options(whole)):
        if differs := [key for key in has if had.get(key) != has[key]]:
            raise TaskError(f'{kind} changes {differs[0]} of its groups when it steps: each '
                            'parameter must be stepped on its own, by tensors in '
                            'state[parameter]; rates by round are given as schedule=...')
    if before and (changed := changed_between(before, _remembered(whole))):
        raise TaskError(f'{kind}, or a hook on its step, changes {changed} with each step: '
                        'each parameter must be stepped on its own, by tensors in '
                        'state[parameter], which move between devices')


def _options(optimiser: torch.optim.Optimizer) -> list[dict[str, str]]:
    return [{key: repr(value) for key, value in group.items() if key != 'params'}
            for group in optimiser.param_groups]


def _remembered(optimiser: torch.optim.Optimizer) -> dict[str, str]:
    """Return what an optimiser and its hooks may remember besides groups and state."""
    own = [optimiser, *(p for group in optimiser.param_groups for p in group['params'])]
    return remembered(own, optimiser={
        key: value for key, value in vars(optimiser).items()
        if key not in ('param_groups', 'state', 'defaults')})


def _tensors(optimiser: torch.optim.Optimizer, parameter: nn.Parameter) -> dict[str, Any]:
    """Return what is kept of a parameter; TaskError if that is not made of tensors."""
    found = {}
    for key, value in optimiser.state.get(parameter, {}).items():
        if isinstance(value, torch.Tensor):
            found[key] = value.detach().clone()
        elif value is not None:
            raise TaskError(f'{type(optimiser).__name__} keeps {key} as {type(value).__name__}: '
                            'only tensors move between devices')
    return found


def _made(task: TrainingTask, make: Any) -> torch.optim.Optimizer:
    made = done('optimiser', make)
    if not isinstance(made, torch.optim.Optimizer):
        raise TaskError(f'optimiser returned {type(made).__name__}, not a torch.optim.Optimizer')
    if task.schedule is not None and any('lr' not in group for group in made.param_groups):
        raise TaskError(f'{type(made).__name__} has no rate lr that the schedule could change')
    return made


def _slow(task: TrainingTask, optimiser: torch.optim.Optimizer, factor: float) -> None:
    """Change rates as a schedule does."""
    for group in optimiser.param_groups if task.schedule else ():
        group['lr'] = group['lr'] * factor


def _step(optimiser: torch.optim.Optimizer) -> None:
    done(f'the step of {type(optimiser).__name__}', optimiser.step,
         'an optimiser is needed that steps by gradients alone, such as SGD, Adam or AdamW')


class _Mixing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes of which parameters each tensor comes in a step, by its place in memory."""

    def __init__(self, optimiser: torch.optim.Optimizer, named: Named) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._optimiser, self._named = optimiser, named
        self._of: dict[int, frozenset[str]] = {}
        self._decides: frozenset[str] = frozenset()
        self._alive: list[Any] = []  # so that no place in memory is taken again
        for name, p in named:
            for tensor in (p, p.grad, *self._kept(p)):
                if tensor is not None:
                    self._of[_place(tensor)] = frozenset([name])

    def _kept(self, parameter: nn.Parameter) -> list[torch.Tensor]:
        return [value for value in self._optimiser.state.get(parameter, {}).values()
                if isinstance(value, torch.Tensor)]

    def found(self) -> tuple[str, str] | None:
        """Return a parameter and another one by which it is stepped, if there are such two."""
        for name, p in self._named:
            for tensor in (p, *self._kept(p)):
                for other in sorted(self._of.get(_place(tensor), frozenset()) - {name}):
                    return name, other
        if len(self._decides) > 1:
            first, second, *_ = sorted(self._decides)
            return first, second
        return None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.removeprefix('aten::')
        given = [*args, *kwargs.values()]
        lists = [one for one in given if isinstance(one, list | tuple) and one and all(
            isinstance(tensor, torch.Tensor) for tensor in one)]
        made = func(*args, **kwargs)
        self._alive.append((args, kwargs, made))
        if name.startswith(('_foreach', '_fused')) and lists:  # entry by entry
            alone = [one for one in given if isinstance(one, torch.Tensor)]
            for k in range(len(lists[0])):
                entries = [one[k] for one in lists if k < len(one)]
                self._note(entries + alone, entries if name.endswith('_') else [
                    made[k]] if isinstance(made, list | tuple) else [])
            return made
        tensors = [one for one in pytree.tree_leaves(given) if isinstance(one, torch.Tensor)]
        if name in ('_local_scalar_dense', 'item', 'is_nonzero', 'equal'):
            names = self._union(tensors)
            self._decides = names if len(names) > 1 else self._decides
        written = [given[k] for k, one in enumerate(func._schema.arguments)
                   if k < len(args) and one.alias_info is not None and one.alias_info.is_write]
        written += [kwargs[one.name] for one in func._schema.arguments
                    if one.name in kwargs and one.alias_info is not None
                    and one.alias_info.is_write]
        self._note(tensors, pytree.tree_leaves((made, written)))
        return made

    def _union(self, tensors: Sequence[torch.Tensor]) -> frozenset[str]:
        return frozenset().union(*(self._of.get(_place(one), frozenset()) for one in tensors))

    def _note(self, read: Sequence[torch.Tensor], made: Sequence[Any]) -> None:
        names = self._union(read)
        for one in made:
            if isinstance(one, torch.Tensor):
                self._of[_place(one)] = names


def _place(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()
