# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an export is tried for: that it computes what its module does, forward and back."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import copy
import math
import random
from typing import Any

import numpy as np
import torch
from torch import fx, nn
from torch.overrides import TorchFunctionMode

from intradp_ros.graph.module_parts import attributes_put_back, copied
from intradp_ros.systems.training.base.structure import (
    Structure,
    taken_apart,
    Tensors,
    tensors_of,
)
from intradp_ros.systems.training.base.task import autocast_of, call, TaskError, TrainingTask
from intradp_ros.systems.training.base.user_code import DRAWING, drawing
from intradp_ros.systems.training.layers.layer_graph import by_first_name, LayerGraph
from intradp_ros.systems.training.layers.stage_interpreter import (
    BATCH_NORM,
    INSTANCE_NORM,
    Pass,
    run_pass,
    StageInterpreter,
)
from intradp_ros.systems.training.layers.trying import clones, done

#: Seed of the draws when an export is compared with its module.
_TRIED = 11
#: Passes by which it is seen whether a module draws from generators of Python or NumPy.
_TRIES = 3
#: What may be the matter with a pass that fails where no gradients are kept.
_GRADIENTS = 'it was run without gradients: a pass that takes some itself, by autograd.grad ' \
    'say, cannot be exported; write them with operators, or let the loss take them'
#: Samples that a network is exported with.
TRIED_ROWS = 3


def check_changes(graph: LayerGraph, changed: Mapping[str, torch.Tensor]) -> None:
    """See that the graph makes of buffers what the module made of them."""
    change = graph.changed(0, len(graph.layers), graph.root)
    if change is None:
        return
    with torch.no_grad():
        made = StageInterpreter(change, Pass(0, 0, (0,), (0,))).run()
    if wrong := [name for name, value in made.items()
                 if name in changed and not _same(value, changed[name])]:
        raise TaskError(f'the module changes {wrong[0]} in the forward pass in a way that '
                        'cannot be followed: assign or change the buffer as a whole, once')


def pass_changes(module: nn.Module, inputs: Any, task: TrainingTask,
             ) -> tuple[dict[str, torch.Tensor], Structure]:
    """
    Return parameters and buffers that a forward pass changes, and what form its results have.

    What counts batches is left out.

    :raises TaskError: if a second pass on a copy, with equal draws, returns other values.
    """
    module = copied(module)
    before = {name: t.detach().clone() for name, t in by_first_name(module).items()}
    made, after = [], dict[str, torch.Tensor]()
    drawn, given = generators(), clones(inputs)
    for _ in range(2):
        with torch.no_grad(), autocast_of(task.autocast), DRAWING, \
                torch.random.fork_rng(devices=[]):
            torch.manual_seed(_TRIED)
            made.append(taken_apart(done('the module', lambda: call(module, inputs), _GRADIENTS)))
        after = after or {name: t.detach().clone() for name, t in by_first_name(module).items()}
    if drawn != generators() and _draws(module, inputs, task):
        raise TaskError('the module draws at random with Python or NumPy, which cannot go by '
                        'round and grain: draw with torch')
    changed = {name: after[name] for name, t in by_first_name(module).items()
               if name in before and not torch.equal(t, before[name])}
    (first, structure), (second, again) = made
    if not changed and (structure != again or not all(map(_same, first, second))):
        if not all(map(_same, tensors_of(inputs), tensors_of(given))):
            raise TaskError(f'{type(module).__name__} writes to its inputs in the forward pass: '
                            'let it make new ones, x = x - 0.5 in place of x -= 0.5')
        raise TaskError(f'{type(module).__name__} returns other values each time for the same '
                        'samples and draws: it must not count calls, nor keep a state from one '
                        'pass to the next')
    if not first:
        raise TaskError(f'{type(module).__name__} returns no tensor')
    return {name: value for name, value in changed.items()
            if 'num_batches_tracked' not in name}, structure


def passed(module: nn.Module, inputs: Any, task: TrainingTask) -> tuple[Tensors, Structure]:
    """Return the results of a pass of a module, which is as it was after it, and their form."""
    buffers = [(buffer, buffer.detach().clone()) for buffer in module.buffers()]
    try:
        with attributes_put_back(module), torch.no_grad(), autocast_of(task.autocast), DRAWING, \
                torch.random.fork_rng(devices=[]):
            return taken_apart(call(module, inputs))
    finally:
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)


def check_copy(other: nn.Module, module: nn.Module, inputs: Any, task: TrainingTask) -> None:
    """See that a copy does what the module does; TaskError if not: devices have copies."""
    made = []
    for one in (module, other):
        with drawing(_TRIED):
            made.append(done('the module', lambda: passed(one, clones(inputs), task),  # noqa: B023
                             _GRADIENTS)[0])
    if len(made[0]) != len(made[1]) or not all(map(_same, *made)):
        raise TaskError(f'a copy of {type(module).__name__} returns something else than itself, '
                        'and devices train copies: see its __deepcopy__ and __getstate__, and '
                        'those of what it holds')


def _draws(module: nn.Module, inputs: Any, task: TrainingTask) -> bool:
    """Whether every pass moves the generators; other threads may do so now and then."""
    for _ in range(_TRIES):
        drawn = generators()
        with torch.no_grad(), autocast_of(task.autocast), DRAWING, \
                torch.random.fork_rng(devices=[]):
            call(module, inputs)
        if drawn == generators():
            return False
    return True


def generators() -> tuple[object, ...]:
    """Return the states of the generators of Python and NumPy."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tolist(), state[2]


class AsModule(StageInterpreter):
    """Draws as the module does, from the generator of the process."""

    def run_node(self, n: fx.Node) -> Any:
        """Run a node."""
        return super().run_node(n) if n.target in (BATCH_NORM, INSTANCE_NORM) else \
            fx.Interpreter.run_node(self, n)


def check_equal(root: fx.GraphModule, module: nn.Module, given: Structure, inputs: Tensors,
                 task: TrainingTask) -> None:
    """
    Compare outputs with the module's to the last bit, and gradients but for rounding.

    Both draw alike: from equal seeds, in the same order.

    :raises TaskError: if they differ, or what the module does on the way back is none of the
        export's operators.
    """
    if task.freeze_norms:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase):
                part.eval()
    export, hooks = copy.deepcopy(root), Hooks()
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)

    def ours() -> Tensors:
        return tensors_of(run_pass(export, inputs, one, AsModule))

    def theirs() -> Tensors:
        with autocast_of(task.autocast), hooks:
            return tensors_of(call(module, given.filled(inputs)))
    made, found = [], []
    for run, parameters in ((ours, export), (theirs, module)):
        with drawing(_TRIED):
            outputs = run()
        if run is theirs:
            _check_way_back(module, outputs, hooks.seen)
        _back(outputs)
        made.append(outputs)
        found.append({name: p.grad for name, p in parameters.named_parameters(
            remove_duplicate=False) if p.requires_grad})
    ours_by, theirs_by = found
    wrong = [name for name in ours_by.keys() & theirs_by.keys()
             if not near(dense(ours_by[name]), dense(theirs_by[name]), task.autocast)]
    same = len(made[0]) == len(made[1]) and all(map(_same, *made))
    if not same or wrong:
        what = f'has other gradients of {", ".join(sorted(wrong)[:3])}' if same else \
            'does not return what the module returns'
        raise TaskError(f'the export of {type(module).__name__} {what}: use no views that are '
                        'written to, nothing that changes with each call, no attributes of '
                        'parameters, no hooks on tensors, no autograd functions of your own, and '
                        'checkpoint(use_reentrant=False)')


def check_evaluates(root: fx.GraphModule, module: nn.Module, given: Structure, inputs: Tensors,
                    task: TrainingTask) -> None:
    """
    See that the export returns what the module does in eval mode, once norms and dropout do so.

    The module's statistics may have moved since it was exported.

    :raises TaskError: if it does not: it cannot be validated meanwhile.
    """
    export, held = copy.deepcopy(root), dict(module.named_buffers())
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), None, task.freeze_norms, evaluating=True)
    with torch.no_grad(), drawing(_TRIED):
        for name, buffer in export.named_buffers():
            if name in held:
                buffer.copy_(held[name])
        ours = tensors_of(run_pass(export, inputs, one))
        theirs = tensors_of(call(module.eval(), given.filled(inputs)))
    if [tuple(x.shape) for x in ours] != [tuple(x.shape) for x in theirs] or not all(
            near(x, y, None) for x, y in zip(ours, theirs)):
        raise TaskError(f'{type(module).__name__} computes something else in eval mode than in '
                        'training, besides batch norm and dropout: it cannot be validated while '
                        'it trains. Give the task no validate_every: check judges the result')


class Hooks(TorchFunctionMode):
    """Notes whether hooks are set on tensors meanwhile."""

    seen = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (),
                           kwargs: Any = None) -> Any:
        self.seen = self.seen or getattr(func, '__name__', '') == 'register_hook'
        return func(*args, **(kwargs or {}))


def _check_way_back(module: nn.Module, outputs: Tensors, hooks: bool) -> None:
    """See that the way back from outputs is by PyTorch's own operators alone, without hooks."""
    if hooks:
        raise TaskError(f'the forward pass of {type(module).__name__} sets hooks on tensors, '
                        'which an export has not: let a parameter have the hook, or compute what '
                        'it does in the forward pass')
    if name := own_function(outputs):
        raise TaskError(
            f'{type(module).__name__} goes back by {name}, an autograd function of its own, '
            'of which an export has the forward pass only: write it with operators of '
            'PyTorch, such as y + (x - y).detach(), and use checkpoint(use_reentrant=False)')


def own_function(outputs: Sequence[torch.Tensor]) -> str:
    """Return the name of an autograd function of the user's that outputs came by; '' if none."""
    ahead = [output.grad_fn for output in outputs if output.grad_fn is not None]
    seen = set(ahead)
    while ahead:
        node = ahead.pop()
        if isinstance(node, torch.autograd.function.BackwardCFunction):
            return type(node).__name__.removesuffix('Backward')
        new = {after for after, _ in node.next_functions if after is not None} - seen
        ahead, seen = [*ahead, *new], seen | new
    return ''


def dense(gradient: torch.Tensor | None) -> torch.Tensor:
    """Return a gradient as a dense tensor; 0 where there is none."""
    return torch.zeros(()) if gradient is None else gradient.to_dense()


def _back(outputs: Sequence[torch.Tensor]) -> None:
    """Go back from outputs with gradients that differ by row, as far as they have any."""
    total = torch.zeros((), dtype=torch.float64)
    for output in outputs:
        if output.requires_grad:
            real = torch.view_as_real(output) if output.is_complex() else output
            weights = torch.linspace(0.5, 1.5, real.numel(), dtype=torch.float64).to(real.dtype)
            total = total + (real * weights.view_as(real)).sum()
    if total.requires_grad:
        torch.autograd.backward(total)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two values are equal to the last bit, or no numbers at the same places."""
    return torch.equal(one, other) or one.shape == other.shape and \
        bool((one.isnan() == other.isnan()).all()) and \
        torch.equal(one.nan_to_num(), other.nan_to_num())


def near(one: torch.Tensor, other: torch.Tensor, autocast: torch.dtype | None) -> bool:
    """Whether two gradients differ by no more than rounding of sums."""
    if not (one.is_floating_point() or one.is_complex()) or not one.numel():
        return torch.equal(one, other)
    bound = math.sqrt(torch.finfo(autocast or one.dtype).eps)
    return bool(((one - other).abs().max() <= bound * other.abs().max()) | other.isnan().any())
