# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tries a task on some samples: what is wrong with it is said before anything is planned."""
from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import keystr, tree_flatten_with_path

from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import rows_of, taken_apart, tensors_of
from intradp_ros.systems.training.base.task import (
    autocast_of,
    call,
    Data,
    losses_of,
    TaskError,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import (
    BY_ROUND,
    changed_between,
    counted,
    drawing,
    remembered,
)
from intradp_ros.systems.training.layers.data_trial import (
    drawn_so_far,
    taken_at_times,
    taken_twice,
    try_data,
    untouched_copy,
)
from intradp_ros.systems.training.layers.judgement import NO_CLASSES, right_answers
from intradp_ros.systems.training.layers.optimiser_trial import check_unseen, try_optimiser
from intradp_ros.systems.training.layers.trying import (
    check_memory,
    clones,
    done,
    forms,
    training_copy,
)

#: Samples that are taken twice; rounds for which a schedule is asked; seed of draws.
_TAKEN, _ROUNDS, _DRAWN = 8, 64, 11


def try_task(task: TrainingTask) -> None:
    """
    Take samples, run the module, its loss and some steps of its optimiser on copies.

    What does not hold for these samples alone is tried in `round_trial`.

    :raises TaskError: if one of them fails or returns something of another shape; the text says
        what to change.
    """
    if isinstance(task.module, torch.jit.ScriptModule):
        raise TaskError('the module is TorchScript, which cannot be cut: give the module itself')
    if isinstance(task.loss, nn.Module) and any(p.requires_grad for p in task.loss.parameters()):
        raise TaskError('the loss has parameters of its own, which nothing would train: make them '
                        'part of the module, whose output they may be part of')
    _try_schedule(task)
    _check_module(task.module)
    check_memory(
        {**dict(task.module.named_parameters()), **dict(task.module.named_buffers())},
        [name for name, p in task.module.named_parameters() if p.requires_grad])
    untouched, before = untouched_copy(task.data), drawn_so_far()
    inputs, targets = _samples(task)
    try_data(task, untouched, before != drawn_so_far())
    module = training_copy(task)
    _check_train(task)
    named = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
    if not named:
        raise TaskError('no parameter of the module is to be trained: all have '
                        'requires_grad=False')
    if unreal := [name for name, p in named if not p.is_floating_point()]:
        raise TaskError(f'{unreal[0]} is to be trained, and is not real: keep '
                        'torch.view_as_real of complex numbers, and make them in the forward pass')
    if short := [name for name, p in named if p.dtype.itemsize < 4]:
        kind = str(dict(named)[short[0]].dtype).removeprefix('torch.')
        raise TaskError(f'{short[0]} is to be trained in {kind}, in which sums of gradients round '
                        'otherwise on each number of devices: give the task the module in '
                        'float32, module.float(), and autocast=torch.bfloat16, or freeze it by '
                        'requires_grad_(False)')
    check_unseen(task)
    doubles = _doubles(task, inputs, targets)
    losses = _losses(task, module, inputs, targets, change=doubles)
    if not bool(torch.isfinite(losses).all()):
        raise TaskError(f'the loss of the first samples is {losses.detach().tolist()}: nothing '
                        'can be learned from that; look at the data and the initial weights')
    if losses.requires_grad:  # that of background may be a constant
        done('the backward pass', lambda: torch.autograd.backward(losses.sum()),
             doubles)
    least = task.batch - (task.grains - 1) * task.grain
    if least < 2 * len(losses):
        rows = [k % len(losses) for k in range(least)]
        _losses(task, training_copy(task), rows_of(inputs, rows), rows_of(targets, rows),
                f' with the {least} sample{"s" * (least > 1)} of the smallest grain of a round',
                'choose a batch of which the grain leaves more over, or nothing')
    try_optimiser(task)
    if task.check is not None and len(task.check):
        if task.best_by == 'accuracy' and task.validate_every:
            _check_classes(task)
        with torch.no_grad():
            if task.validate_every:
                _losses(task, training_copy(task).eval(), *_of_check(task.check),
                        ' with samples of check')
            _losses(task, training_copy(task).eval(), *_samples(task), ' in eval mode',
                    'the result is judged by `check` in eval mode, in which some modules return '
                    'something else than in training: let the loss take both')


def _of_check(check: Data) -> tuple[Any, Any]:
    """Return the first samples of check, as the module and the loss get them."""
    numbers = range(min(_TAKEN, len(check)))
    taken_twice(check, numbers, 'check')
    found: tuple[Any, Any] = taken_at_times(check, numbers, 'check')[0]
    return found


def _check_classes(task: TrainingTask) -> None:
    """See that there is an accuracy by which weights are better."""
    assert (check := task.check) is not None
    inputs, targets = done('check.take', lambda: take(check, [0]))
    with torch.no_grad(), drawing(_DRAWN):
        outputs = done('the module', lambda: call(training_copy(task).eval(), inputs))
    if right_answers(outputs, targets) is None:
        raise TaskError(NO_CLASSES)


def _check_module(module: nn.Module) -> None:
    """See that a module is one whose forward pass is all that it does."""
    for name, part in module.named_modules():
        what = f'{name or "the module"} is' if name else 'the module is'
        if type(part).__name__ == 'OptimizedModule' or part._compiled_call_impl is not None:
            raise TaskError(f'{what} compiled by torch.compile: give the module that was compiled')
        if isinstance(part, nn.DataParallel | nn.parallel.DistributedDataParallel):
            raise TaskError(f'{what} wrapped in {type(part).__name__}: give the module in it, '
                            'module.module; devices are divided by the plan')
        if part._backward_hooks or part._backward_pre_hooks:
            raise TaskError(f'{what} one with hooks on its way back (register_full_backward_hook)'
                            ', which an export has not: let a parameter have the hook')
        if any(nn.parameter.is_lazy(p) for p in part.parameters(recurse=False)):
            raise TaskError(f'{what} lazy still: run it once on a sample before it is given')
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if tensor.layout is not torch.strided:
            raise TaskError(f'{name} is sparse ({tensor.layout}), and is neither compared nor '
                            'sent: make it dense, by .to_dense()')
        if tensor.is_meta:
            raise TaskError(f'{name} has no values (device meta): load the weights before')
    known = {id(tensor) for tensor in (*module.parameters(), *module.buffers())}
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.Tensor) and id(tensor) not in known:
            raise TaskError(f'the state_dict of the module has {name}, which is neither a '
                            'parameter nor a buffer: a checkpoint would not have what training '
                            'makes of it; remove the state_dict hook that makes it')


def _check_train(task: TrainingTask) -> None:
    """See that train(), where a part has one of its own, has been called."""
    for name, part in training_copy(task).named_modules():
        if not part.training or type(part).train is nn.Module.train:
            continue
        trained = {key for key, one in part.named_modules() if one.training}
        learned = {key for key, p in part.named_parameters() if p.requires_grad}
        done(f'train() of {type(part).__name__}', part.train)
        stopped = trained - {key for key, one in part.named_modules() if one.training} or \
            learned - {key for key, p in part.named_parameters() if p.requires_grad}
        if stopped:
            raise TaskError(f'{type(part).__name__} has a train() of its own, which freezes '
                            f'{".".join(filter(None, (name, min(stopped))))}, as a plain loop '
                            'would that begins with train(): call train() on the module where '
                            'the task is made')


def _try_schedule(task: TrainingTask) -> None:
    schedule = task.schedule
    if schedule is None:
        return
    rounds = sorted({k * (task.rounds - 1) // (_ROUNDS - 1) for k in range(_ROUNDS)})
    factors, others = [], _others(task)
    for order in (rounds, rounds[::-1]):
        before = remembered(schedule=schedule)
        factors.append({number: done('schedule', lambda: float(schedule(number)))  # noqa: B023
                        for number in order})
        changed = changed_between(before, remembered(schedule=schedule))
    changed = changed or changed_between(others, _others(task))  # at once, or from a round on
    for number, factor in factors[0].items():
        if not 0 <= factor < math.inf or factor != factors[1][number] or changed:
            raise TaskError((f'schedule changes {changed}' if changed else
                             f'schedule({number}) is {factor}') + ': it must return a factor of '
                            f'0 or more, and be a function of the round alone. {BY_ROUND}')


def _others(task: TrainingTask) -> dict[str, str]:
    """Return what may be remembered where a schedule has no business."""
    return remembered(network=task.module, loss=task.loss, optimiser=task.optimiser) | counted(
        data=task.data)


def _samples(task: TrainingTask) -> tuple[Any, Any]:
    """Take samples twice; return the first two of them twice over."""
    rows = min(_TAKEN, len(task.data))
    taken, _ = taken_twice(task.data, range(rows))
    if not isinstance(taken, tuple) or len(taken) != 2 or not isinstance(taken[0], tuple | dict):
        raise TaskError('data.take must return a tuple of inputs and the targets; inputs are '
                        "a tuple of the module's arguments, or a dict of them by name")
    for what, whole in zip(('inputs', 'targets'), taken):
        tensors, structure = taken_apart(whole)
        if any(x.requires_grad for x in tensors):
            raise TaskError(f'data.take returns {what} with a gradient (requires_grad), which '
                            'nothing takes up: let the dataset detach() them; what the module '
                            'needs of it, it can set in the forward pass')
        if not tensors or structure.constants or \
                any(not x.dim() or len(x) != rows for x in tensors):
            raise TaskError('data.take must return tensors with one row a sample, in tuples, '
                            'lists, dicts or dataclasses, and nothing else: put what a '
                            'sample has more of into columns')
    few = [k % rows for k in range(2)] * 2
    return rows_of(taken[0], few), rows_of(taken[1], few)


def _doubles(task: TrainingTask, inputs: Any, targets: Any) -> str:
    """Return what to do with parts of samples in double precision, where the module has none."""
    types = {p.dtype for p in task.module.parameters()}
    found = [f'{what}{keystr(path)}' for what, whole in (('inputs', inputs), ('targets', targets))
             for path, leaf in tree_flatten_with_path(whole)[0] if leaf.dtype == torch.float64]
    return '' if not found or torch.float64 in types else (
        f'{", ".join(found[:3])} of the samples are float64, as Python\'s and NumPy\'s numbers '
        'are, and no parameter is: let the dataset give torch.float32, or whole numbers for '
        'classes')


def _losses(task: TrainingTask, module: nn.Module, inputs: Any, targets: Any,
            where: str = '', change: str = '') -> torch.Tensor:
    def run() -> Any:
        with autocast_of(task.autocast):
            return call(module, inputs)
    rows = len(tensors_of(targets)[0])
    outputs = done(f'the module{where}', run, change or f'it gets {forms(inputs)}')
    if not tensors_of(outputs):
        raise TaskError(f'the module{where} returns a {type(outputs).__name__} without tensors: '
                        'let it return tensors, or tuples, lists, dicts or dataclasses of them')
    for x in tensors_of(outputs):
        if not x.dim() or len(x) != rows:
            raise TaskError(f'the module{where} returns a tensor of the shape {tuple(x.shape)} '
                            f'for {rows} samples: results need one row a sample. Let the loss '
                            'make means and sums over samples; give what is the same for all '
                            'samples a row for each, by x.expand(rows, ...)')
    kind = '' if isinstance(outputs, torch.Tensor) else f', a {type(outputs).__name__} of'
    change = change or (f'it gets what the module returns{kind} {forms(outputs)}, and targets '
                        f'{forms(targets)}')
    found = []
    for _ in range(2):
        copies = outputs if _ else clones(outputs), targets if _ else clones(targets)
        with drawing(_DRAWN):
            found.append(done(f'loss{where}', lambda: losses_of(task, *copies, rows),  # noqa: B023
                              change))
    (losses, counts), (again, others) = found[::-1]
    if not torch.equal(losses.nan_to_num(), again.nan_to_num()) or \
            not torch.equal(counts.nan_to_num(), others.nan_to_num()):
        raise TaskError('loss returns other values each time for the same outputs, targets and '
                        'draws: it must not remember, nor draw by a generator of its own. '
                        + BY_ROUND)
    if not bool((counts >= 0).all()) or not bool(torch.isfinite(counts).all()):
        raise TaskError(f'the loss says that samples count {counts.tolist()}: let it return 0 or '
                        'more as second')
    return losses
