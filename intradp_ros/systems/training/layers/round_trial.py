# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Compares an export with a plain loop on samples from all of the data, and looks what takes part.

Nothing is left out of training by what is seen here: a parameter that no sample reaches is trained
as soon as one does.  What would make another result than a plain loop's is refused by name.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
import copy
from dataclasses import dataclass
import math
from statistics import median
import time
from typing import Any

import torch
from torch import nn

from intradp_ros.systems.training.base.structure import taken_apart, Tensors, tensors_of
from intradp_ros.systems.training.base.task import (
    autocast_of,
    call,
    losses_of,
    TaskError,
    TrainingTask,
)
from intradp_ros.systems.training.base.user_code import (
    assigned_tensors,
    changed_between,
    drawing,
    remembered,
    Watch,
)
from intradp_ros.systems.training.layers.data_trial import taken_twice
from intradp_ros.systems.training.layers.export_checks import AsModule, dense, near
from intradp_ros.systems.training.layers.layer_graph import by_first_name, LayerGraph
from intradp_ros.systems.training.layers.loss_watch import check_read, moving_tensors
from intradp_ros.systems.training.layers.parameter_hooks import ParameterHooks
from intradp_ros.systems.training.layers.stage_interpreter import Pass, run_pass
from intradp_ros.systems.training.layers.stage_optimiser import trained_parameters
from intradp_ros.systems.training.layers.trying import (
    check_memory,
    clones,
    done,
    training_copy,
)

#: Samples that are tried, of one pass at most; passes at least, and seconds beyond which no more.
SAMPLES, OF_PASS, LEAST, SECONDS = 24, 6, 2, 10.0
#: Seed of the draws.
_DRAWN = 11


@dataclass(frozen=True)
class Trial:
    """
    What was seen on so many samples.

    `frozen` parameters have requires_grad=False; the loss reached none of `unreached` so far.
    `hooked` have hooks.  `reading` are the seconds that a sample takes to be read (median).
    """

    samples: int
    frozen: tuple[str, ...]
    unreached: tuple[str, ...]
    hooked: tuple[str, ...]
    reading: float = 0.0


def try_rounds(task: TrainingTask, graph: LayerGraph) -> Trial:
    """
    Compare passes of the export with the module's, forward and back, on samples of all the data.

    :raises TaskError: if they differ, the loss or a hook reads or remembers what it must not, or
        none of the samples reaches a parameter.
    """
    module, export = training_copy(task), copy.deepcopy(graph.root)
    if task.freeze_norms:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase):
                part.eval()
    check_memory(by_first_name(task.module), moving_tensors(task, graph))
    begun, tried, reached = time.monotonic(), 0, set[str]()
    before, constants = dict[str, str](), _constants(task, graph)
    reading, later = list[float](), list[tuple[Any, ...]]()
    pieces = _pieces(task, reading)
    for number, (samples, inputs, targets) in enumerate(pieces):
        if number >= LEAST and time.monotonic() - begun > SECONDS:
            break
        buffers = {name: b.clone() for name, b in module.named_buffers()}
        theirs = _plain(task, graph, module, samples, inputs, targets, not number)
        after = _remembered(task, module, before)
        if stale := sorted(name for name, value in assigned_tensors(module).items()
                           if name in constants and value is not constants[name]):
            raise TaskError(f'the module assigns {stale[0]} in the forward pass and reads what '
                            'it was before: let it be a buffer (register_buffer)')
        if not before:  # what is assigned once, in the first pass, may be read
            constants = {name: assigned_tensors(module)[name] for name in constants}
        tried += len(samples)
        reached |= {name for name, gradient in theirs[1].items() if gradient is not None}
        later.append((samples, inputs, targets, buffers, theirs))
        if before or number + 1 >= LEAST:  # that nothing is remembered is known by two
            for one in later:
                _compare(one[4], _exported(task, graph, export, *one[1:4]), task, one[0])
            later.clear()
        before = after
    for one in later:
        _compare(one[4], _exported(task, graph, export, *one[1:4]), task, one[0])
    with torch.no_grad():
        for p in module.parameters():  # as a step does: an average of weights moves, too
            if p.requires_grad:
                p.add_(1e-6 + 1e-3 * p.abs().mean())
    _plain(task, graph, module, samples, inputs, targets, False)
    _remembered(task, module, before)
    if not reached:
        raise TaskError('the loss depends on no parameter that is to be trained, for none of '
                        f'{tried} samples from all of the data: look at what has '
                        'requires_grad=False, is detached, or is returned but not used')
    _try_hooks(task, module)
    hooks = ParameterHooks(task)
    return Trial(tried, tuple(name for name, p in task.module.named_parameters()
                              if not p.requires_grad),
                 tuple(name for name, _ in trained_parameters(task) if name not in reached),
                 tuple(hooks.names), median(reading) if reading else 0.0)


def _remembered(task: TrainingTask, module: nn.Module, before: Mapping[str, str],
                ) -> dict[str, str]:
    """Return what the task's code remembers after a pass; TaskError if it did not before."""
    after = remembered(module=module, loss=task.loss, hooks=_all_hooks(task))
    if before and (changed := changed_between(before, after)):
        raise TaskError(
            f'{changed} changes with each pass: what the module, the loss and hooks remember '
            'besides parameters and buffers is not trained with, and is not the same on all '
            'devices. Let a count, or an average of weights, be a buffer of the module '
            '(register_buffer), and let the module return what the loss needs; it must not count '
            'calls in Python. A norm in the loss takes track_running_stats=False, a network that '
            'is only asked .eval()')
    return after


def _pieces(task: TrainingTask,
            reading: list[float]) -> Iterator[tuple[list[int], Any, Any]]:
    """
    Yield samples from all of the data, a few at once: their numbers, inputs and targets.

    The seconds that one of them takes to be read are added to `reading`.
    """
    size = max(1, min(task.grain, OF_PASS))
    if hasattr(task.data, 'examples'):  # not all of them lie here
        yield list(range(size)), *taken_twice(task.data, range(size))[0]
        return
    count = len(task.data)
    places = [k * (count - 1) // (SAMPLES - 1) for k in range(SAMPLES)]
    pieces = -(-SAMPLES // size)
    for first in range(pieces):  # each piece is from everywhere, too
        samples = places[first::pieces]
        samples += places[:size - len(samples)]
        taken, seconds = taken_twice(task.data, samples)
        reading += [one / len(samples) for one in seconds]
        yield samples, *taken


Gradients = dict[str, torch.Tensor | None]


def _plain(task: TrainingTask, graph: LayerGraph, module: nn.Module, samples: Sequence[int],
           inputs: Any, targets: Any, scaled: bool) -> tuple[float, Gradients]:
    """
    Return the loss and the gradients of a plain loop: zero_grad, pass, loss, way back.

    Where it is wanted, see that the way back through the loss is linear (`scaled`).
    """
    module.zero_grad()
    with drawing(_DRAWN), autocast_of(task.autocast):
        outputs = done('the module', lambda: call(module, clones(inputs)))
    with Watch(moving_tensors(task, graph)) as watch, drawing(_DRAWN):
        losses, counts = done('loss', lambda: losses_of(task, outputs, clones(targets),
                                                        len(samples)))
    check_read(watch)
    if any(p.grad is not None for p in module.parameters()):
        raise TaskError('the loss goes back itself, by backward(): let it return all that is to '
                        'be summed')
    if not bool(torch.isfinite(losses).all()):
        bad = [sample for sample, loss in zip(samples, losses.tolist())
               if loss != loss or abs(loss) == float('inf')]
        raise TaskError(f'the loss of sample {bad[0]} is {losses.detach().tolist()}: nothing can '
                        'be learned from that; look at that sample and the initial weights')
    if losses.requires_grad:
        if scaled:
            _check_linear(task, outputs, targets, len(samples))
        done('the backward pass', lambda: torch.autograd.backward(losses.sum()))
    return float(losses.detach().double().sum()), {
        name: None if p.grad is None else p.grad.clone()
        for name, p in module.named_parameters() if p.requires_grad}


def _check_linear(task: TrainingTask, outputs: Any, targets: Any, rows: int) -> None:
    """
    See that gradients of a scaled loss are gradients that are scaled.

    A plain loop goes back from a mean; devices go back from sums, and divide at the end.
    """
    tensors, structure = taken_apart(outputs)
    if any(x.dtype == torch.float16 for x in tensors):  # its range is small
        factors = [1.0, 0.5, 2.0]
    else:
        factors = [1.0, 2.0 ** -math.ceil(math.log2(task.batch + 1)), 2.0 ** 12]
    found = list[list[torch.Tensor]]()
    for factor in factors:
        leaves = [x.detach().requires_grad_(x.requires_grad) for x in tensors]
        with drawing(_DRAWN):
            losses, _ = done('loss', lambda: losses_of(
                task, structure.filled([x.clone() for x in leaves]),  # noqa: B023
                clones(targets), rows))
            wanted = [x for x in leaves if x.requires_grad]
            if not losses.requires_grad or not wanted:
                return
            gradients = done('the backward pass', lambda: torch.autograd.grad(
                losses.sum() * factor, wanted,  # noqa: B023
                retain_graph=True, allow_unused=True))
        found.append([dense(x) for x in gradients])
    for factor, scaled in zip(factors[1:], found[1:]):
        if not all(near(other, one * factor, task.autocast)
                   for one, other in zip(found[0], scaled)):
            raise TaskError(
                f'gradients of {factor:.4g} times the loss are not {factor:.4g} times its '
                'gradients: a hook on a tensor, or an autograd function, of the loss clips or '
                'scales them, by a grain, before they are divided by all samples. Let a '
                'parameter have the hook, or give the task clip=...')


def _exported(task: TrainingTask, graph: LayerGraph, export: Any, inputs: Any, targets: Any,
              buffers: Mapping[str, torch.Tensor]) -> tuple[float, Gradients]:
    """Return the loss and the gradients of the export, with these buffers."""
    export.zero_grad()
    for name, buffer in export.named_buffers():
        if name in buffers:
            buffer.copy_(buffers[name])
    entering, wanted = tensors_of(clones(inputs)), tensors_of(clones(targets))
    one = Pass(task.seed, 0, (0,), (len(wanted[0]),), task.autocast, task.freeze_norms)
    with drawing(_DRAWN):
        made: Tensors = run_pass(export, entering, one, AsModule)
    outputs = tuple(made[graph.interface.order.index(k)] for k in range(len(graph.cuts[-1])))
    with drawing(_DRAWN):
        losses, _ = graph.losses(task, outputs, wanted)
    if losses.requires_grad:
        torch.autograd.backward(losses.sum())
    return float(losses.detach().double().sum()), {
        name: p.grad for name, p in export.named_parameters()}


def _compare(theirs: tuple[float, Gradients], ours: tuple[float, Gradients], task: TrainingTask,
             samples: Sequence[int]) -> None:
    wrong = [name for name, gradient in theirs[1].items()
             if (ours[1].get(name) is None) != (gradient is None)
             or not near(dense(ours[1].get(name)), dense(gradient), task.autocast)]
    bound = 1e-3 * max(abs(theirs[0]), 1e-6)
    if wrong or abs(theirs[0] - ours[0]) > bound:
        what = f'other gradients of {", ".join(wrong[:3])}' if wrong else \
            f'a loss of {ours[0]}, not {theirs[0]}'
        raise TaskError(f'for the samples {list(samples)} the export of '
                        f'{type(task.module).__name__} has {what}: use nothing that the module '
                        'remembers from one pass to the next, no hooks on tensors and no autograd '
                        'functions of your own')


def _all_hooks(task: TrainingTask) -> list[Any]:
    return [list((getattr(p, name, None) or {}).values()) for p in task.module.parameters()
            for name in ('_backward_hooks', '_post_accumulate_grad_hooks')]


def _try_hooks(task: TrainingTask, module: nn.Module) -> None:
    """See that hooks on parameters work on copies, read no others, and remember nothing."""
    hooks, own = ParameterHooks(task), by_first_name(task.module)
    parameters = dict(module.named_parameters())
    for number in range(2):
        for place, name in enumerate(hooks.names):
            p = nn.Parameter(parameters[name].detach().clone())
            draws = torch.Generator().manual_seed(place)
            p.grad = torch.randn(p.shape, dtype=torch.float64, generator=draws).to(p.dtype)
            before = remembered(hooks=_all_hooks(task))
            with Watch(own) as watch:
                hooks.run({name: p}, number)
            changed = changed_between(before, remembered(hooks=_all_hooks(task)))
            if watch.read:
                raise TaskError(f'a hook of {name} reads {next(iter(watch.read))} of the module, '
                                'which devices train in copies: let it use its gradient alone')
            if changed:
                raise TaskError(f'a hook of {name} changes {changed}: it runs again when a round '
                                'is played again, and on each device that shares a layer, so it '
                                'must not remember; rates by round are given as schedule=...')


def _constants(task: TrainingTask, graph: LayerGraph) -> dict[str, torch.Tensor]:
    """Return the attributes of the module that the export holds as they were."""
    known = by_first_name(task.module)
    held = set()
    for node in graph.root.graph.nodes:
        if node.op == 'get_attr' and str(node.target) not in known:
            value: Any = graph.root
            for part in str(node.target).split('.'):
                value = getattr(value, part)
            if isinstance(value, torch.Tensor):
                held.add(value.untyped_storage().data_ptr())
    return {name: value for name, value in assigned_tensors(task.module).items()
            if value.numel() and value.untyped_storage().data_ptr() in held}
