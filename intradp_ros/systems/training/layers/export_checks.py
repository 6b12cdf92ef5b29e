# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an export is tried for: equal to its module, no samples that see each other."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import copy
import math
import random
from typing import Any

import numpy as np
import torch
from torch import fx, nn

from intradp_ros.systems.training.base.structure import (
    split_rows,
    Structure,
    taken_apart,
    Tensors,
    tensors_of,
)
from intradp_ros.systems.training.base.task import (
    autocast_of,
    call,
    losses_of,
    TaskError,
    TrainingTask,
)
from intradp_ros.systems.training.layers.layer_graph import by_first_name, Interface, LayerGraph
from intradp_ros.systems.training.layers.stage_interpreter import (
    BATCH_NORM,
    DRAWING,
    INSTANCE_NORM,
    Pass,
    run_pass,
    StageInterpreter,
)

#: Seed of the draws when an export is compared with its module.
_TRIED = 11
#: Passes by which it is seen whether a module draws from generators of Python or NumPy.
_TRIES = 3
#: Samples that a network is tried with, and how many of them are the first of two grains.
TRIED_ROWS, FIRST_ROWS = 5, 3


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

    Raises
    ------
    TaskError
        If a second pass on a copy, with equal draws, returns other values.

    """
    module = copy.deepcopy(module)
    before = {name: t.detach().clone() for name, t in by_first_name(module).items()}
    made, after = [], dict[str, torch.Tensor]()
    generators = _generators()
    for _ in range(2):
        with torch.no_grad(), autocast_of(task.autocast), DRAWING, \
                torch.random.fork_rng(devices=[]):
            torch.manual_seed(_TRIED)
            made.append(taken_apart(call(module, inputs)))
        after = after or {name: t.detach().clone() for name, t in by_first_name(module).items()}
    if generators != _generators() and _draws(module, inputs, task):
        raise TaskError('the module draws at random with Python or NumPy, which cannot go by '
                        'round and grain: draw with torch')
    changed = {name: after[name] for name, t in by_first_name(module).items()
               if name in before and not torch.equal(t, before[name])}
    (first, structure), (second, again) = made
    if not changed and (structure != again or not all(map(_same, first, second))):
        raise TaskError(f'{type(module).__name__} returns other values each time for the same '
                        'samples and draws: it must not count calls')
    if not first:
        raise TaskError(f'{type(module).__name__} returns no tensor')
    return {name: value for name, value in changed.items()
            if 'num_batches_tracked' not in name}, structure


def _draws(module: nn.Module, inputs: Any, task: TrainingTask) -> bool:
    """Whether every pass moves the generators; other threads may do so now and then."""
    for _ in range(_TRIES):
        generators = _generators()
        with torch.no_grad(), autocast_of(task.autocast), DRAWING, \
                torch.random.fork_rng(devices=[]):
            call(module, inputs)
        if generators == _generators():
            return False
    return True


def _generators() -> object:
    """Return the states of the generators of Python and NumPy."""
    state: Any = np.random.get_state()
    return random.getstate(), state[1].tolist(), state[2]


class _AsModule(StageInterpreter):
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
    """
    if task.freeze_norms:
        for part in module.modules():
            if isinstance(part, nn.modules.batchnorm._NormBase):
                part.eval()
    export = copy.deepcopy(root)
    one = Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast, task.freeze_norms)

    def ours() -> Tensors:
        return tensors_of(run_pass(export, inputs, one, _AsModule))

    def theirs() -> Tensors:
        with autocast_of(task.autocast):
            return tensors_of(call(module, given.filled(inputs)))
    made, found = [], []
    for run, parameters in ((ours, export), (theirs, module)):
        with DRAWING, torch.random.fork_rng(devices=[]):
            torch.manual_seed(_TRIED)
            outputs = run()
        _back(outputs)
        made.append(outputs)
        found.append({name: p.grad for name, p in parameters.named_parameters(
            remove_duplicate=False) if p.requires_grad})
    ours_by, theirs_by = found
    wrong = [name for name in ours_by.keys() & theirs_by.keys()
             if not _near(_dense(ours_by[name]), _dense(theirs_by[name]), task.autocast)]
    same = len(made[0]) == len(made[1]) and all(map(_same, *made))
    if not same or wrong:
        what = f'has other gradients of {", ".join(sorted(wrong)[:3])}' if same else \
            'does not return what the module returns'
        raise TaskError(f'the export of {type(module).__name__} {what}: use no views that are '
                        'written to, nothing that changes with each call, no hooks on tensors, no '
                        'autograd functions of your own, and checkpoint(use_reentrant=False)')


def freeze_unreached(root: fx.GraphModule, interface: Interface, inputs: Tensors, targets: Tensors,
                  task: TrainingTask) -> None:
    """Freeze the parameters that the loss does not reach: plain PyTorch does not step them."""
    export, one = copy.deepcopy(root), Pass(task.seed, 0, (0,), (len(inputs[0]),), task.autocast,
                                            task.freeze_norms)
    outputs = run_pass(export, inputs, one)
    losses, _ = losses_of(task, interface.outputs.filled(outputs),
                          interface.targets.filled(targets), len(inputs[0]))
    if not losses.requires_grad:
        raise TaskError('the loss depends on no parameter that is to be trained')
    torch.autograd.backward(losses.sum())
    reached = {name for name, p in export.named_parameters(remove_duplicate=False)
               if p.grad is not None}
    for name, parameter in root.named_parameters(remove_duplicate=False):
        if name not in reached:
            parameter.requires_grad_(False)


def _dense(gradient: torch.Tensor | None) -> torch.Tensor:
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


def mixes(root: fx.GraphModule, inputs: Tensors, task: TrainingTask) -> bool:
    """Whether two grains have other values or gradients together than each on its own."""
    rows = [FIRST_ROWS, TRIED_ROWS - FIRST_ROWS]

    def run(apart: bool, double: bool) -> dict[str, torch.Tensor]:
        export = copy.deepcopy(root)
        export, given = (export.double(), tuple(
            x.double() if x.is_floating_point() else x for x in inputs)) if double else \
            (export, inputs)
        one = Pass(task.seed, 0, (0, 1), rows, None if double else task.autocast,
                   task.freeze_norms)
        outputs = run_pass(export, given, one, apart=apart)
        _back(outputs)
        return {str(k): output.detach() for k, output in enumerate(outputs)} | {
            f'p:{name}': p.grad.to_dense() for name, p in export.named_parameters()
            if p.grad is not None}
    try:
        together, apart = run(False, True), run(True, True)
    except RuntimeError:  # types that are written down, say
        try:
            together, apart = run(False, False), run(True, False)
        except RuntimeError:
            return True
    # Some gradients are 0 but for rounding, such as a bias' before a norm: no measure of others.
    largest = max((float(value.abs().max()) for name, value in apart.items()
                   if name[:2] == 'p:' and value.numel()), default=0.0)
    return any(name not in together or not _near(together[name], value, None) and (
                   name[:2] != 'p:' or float((together[name] - value).abs().max())
                   > largest * torch.finfo(value.dtype).eps ** (2 / 3))
               for name, value in apart.items())


def loss_mixes(graph: LayerGraph, inputs: Tensors, targets: Tensors,
                task: TrainingTask) -> bool:
    """Whether the losses of two grains are others together than each on its own."""
    one = Pass(task.seed, 0, (0,), (TRIED_ROWS,), task.autocast, task.freeze_norms)
    with torch.no_grad():
        outputs = run_pass(graph.root, inputs, one)
        outputs = tuple(outputs[graph.interface.order.index(k)]
                        for k in range(len(graph.cuts[-1])))
        rows = [FIRST_ROWS, TRIED_ROWS - FIRST_ROWS]
        parts = [graph.losses(task, *pieces) for pieces in
                 zip(split_rows(outputs, rows), split_rows(targets, rows))]
        whole = graph.losses(task, outputs, targets)
    return not all(_near(found, torch.cat(pieces), None)
                   for found, pieces in zip(whole, zip(*parts)))


def _near(one: torch.Tensor, other: torch.Tensor, autocast: torch.dtype | None) -> bool:
    """Whether two gradients differ by no more than rounding of sums."""
    if not (one.is_floating_point() or one.is_complex()) or not one.numel():
        return torch.equal(one, other)
    bound = math.sqrt(torch.finfo(autocast or one.dtype).eps)
    return bool(((one - other).abs().max() <= bound * other.abs().max()) | other.isnan().any())
