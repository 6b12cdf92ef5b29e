# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One stage on one device: its layers, their optimiser, and passes over grains with autograd.

State has names: `p:` parameters, `b:` statistics of batch norm, `o:` what the optimiser keeps,
`v:best` what validations found, which goes with the first layer, `w:` the best weights so far.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from math import inf

import torch

from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.training.base.structure import rows_apart, Tensors
from intradp_ros.systems.training.base.task import draw_seed, TaskError, TrainingTask
from intradp_ros.systems.training.base.user_code import drawing, Watch
from intradp_ros.systems.training.layers.judgement import (
    BEST,
    BEST_WEIGHTS,
    best_weights,
    BestSoFar,
    right_answers,
)
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.loss_watch import check_read, readable_tensors
from intradp_ros.systems.training.layers.parameter_hooks import ParameterHooks
from intradp_ros.systems.training.layers.stage_interpreter import Pass, run_pass, StageInterpreter
from intradp_ros.systems.training.layers.stage_optimiser import stage_optimiser

State = Mapping[str, torch.Tensor]
#: Numbers whose squares are summed in their own precision.
_DOT = 1 << 14
#: What `draw_seed` gets first for draws of losses.
_LOSS = 3


@dataclass
class _Kept:
    inputs: Tensors
    outputs: Tensors
    grains: range
    rows: list[int]


class StageRunner:
    """
    Layers first to last - 1 of a task.

    It computes on `device`; what enters and leaves is in the host's memory, where losses are
    computed.  `statistics` of norms are folded at the end of the round, in the order of grains;
    other buffers that a forward pass changes, change once a round, as in a pass of all samples.
    A parameter that no sample of a round reaches has no gradient, and is not stepped.
    """

    def __init__(self, task: TrainingTask, graph: LayerGraph, first: int, last: int,
                 device: KernelDevice = HOST) -> None:
        self.task, self.graph, self.first, self.last = task, graph, first, last
        self._device = device
        self.module = graph.stage(first, last, torch.device(device.name))
        layers = graph.layers[first:last]
        names = [name for layer in layers for name in layer.parameters]
        own = dict(self.module.named_parameters(remove_duplicate=False))
        self.parameters = {name: own[name] for name in names if own[name].requires_grad}
        self.buffers = {name: self.module.get_buffer(name)
                        for layer in layers for name in layer.buffers}
        self.optimiser = stage_optimiser(task, [*self.parameters.items()]) \
            if self.parameters else None
        self._rates = [group.get('lr') for group in self.optimiser.param_groups] \
            if self.optimiser else []
        self._change = graph.changed(first, last, self.module)
        self.hooks = ParameterHooks(task)
        self._readable = readable_tensors(task, graph) if last == len(graph.layers) else {}
        self._kept: dict[int, _Kept] = {}
        self.statistics: dict[str, dict[int, torch.Tensor]] = {}
        self.best, self._best = BestSoFar(), dict[str, torch.Tensor]()

    def forward(self, round: int, micro_batch: int, grains: range,  # noqa: A002
                inputs: Tensors) -> Tensors:
        """Compute grains of a micro-batch, keep what the way back needs, return what leaves."""
        values = self.graph.cuts[self.first]
        entered = tuple(self._device.take(x).requires_grad_(value.gradient)
                        for x, value in zip(inputs, values))
        one = Pass(self.task.seed, round, grains,
                   [len(self.task.grain_rows(grain)) for grain in grains], self.task.autocast,
                   self.task.freeze_norms)
        # What passes through is another tensor than what entered: a leaf keeps its own gradient.
        outputs = run_pass(self.module, [x.view_as(x) for x in entered], one,
                           apart=self.graph.apart)
        for name, found in one.statistics.items():
            self.statistics.setdefault(name, {}).update(found)
        self._kept[micro_batch] = _Kept(entered, outputs, grains, list(one.rows))
        return tuple(self._device.give(output.detach()) for output in outputs)

    def lose(self, round: int, micro_batch: int, targets: Tensors,  # noqa: A002
             ) -> tuple[float, float]:
        """
        Return the sums of losses and counts of a micro-batch; the way back begins here.

        :raises TaskError: if the loss returns something else than the task says it does.
        """
        kept = self._kept[micro_batch]
        outputs = tuple(map(self._device.give, kept.outputs))
        if self._readable:
            with Watch(self._readable) as watch:
                losses, counts = self._losses(round, kept, outputs, targets)
            check_read(watch)
        else:
            losses, counts = self._losses(round, kept, outputs, targets)
        kept.outputs = (losses.sum(),)
        return float(losses.detach().double().sum()), float(counts.sum())

    def _losses(self, round: int, kept: _Kept, outputs: Tensors,  # noqa: A002
                targets: Tensors) -> tuple[torch.Tensor, torch.Tensor]:
        if self.graph.loss_apart:
            pieces = []
            for grain, *both in zip(kept.grains, rows_apart(outputs, kept.rows),
                                    rows_apart(targets, kept.rows)):
                with drawing(draw_seed(self.task.seed, _LOSS, round, grain)):
                    pieces.append(self.graph.losses(self.task, *_own(*both)))
            losses, counts = (torch.cat(parts) for parts in zip(*pieces))
            return losses, counts
        return self.graph.losses(self.task, outputs, targets)

    def backward(self, micro_batch: int, gradients: Sequence[torch.Tensor | None],
                 ) -> tuple[torch.Tensor | None, ...]:
        """
        Go back through a micro-batch; return the gradients of what entered and may have one.

        None stands for a value that no loss depends on.
        """
        kept = self._kept.pop(micro_batch)
        if self.last == len(self.graph.layers):
            roots, gradients = kept.outputs, [torch.ones_like(kept.outputs[0])]
        else:
            roots = tuple(output for output, value in zip(kept.outputs, self.graph.cuts[self.last])
                          if value.gradient)
        pairs = [(root, self._device.take(gradient)) for root, gradient in zip(roots, gradients)
                 if root.requires_grad and gradient is not None]
        if pairs:
            torch.autograd.backward([root for root, _ in pairs], [g for _, g in pairs])
        for parameter in self.parameters.values():
            if parameter.grad is not None and parameter.grad.is_sparse:
                parameter.grad = parameter.grad.to_dense()
        return tuple(None if x.grad is None else self._device.give(x.grad)
                     for x in kept.inputs if x.requires_grad)

    def evaluate(self, rows: Sequence[int], inputs: Tensors) -> Tensors:
        """Return what leaves in eval mode, for grains of so many rows; nothing here changes."""
        one = Pass(self.task.seed, 0, range(len(rows)), rows, None, self.task.freeze_norms,
                   evaluating=True)
        with torch.no_grad():
            outputs = run_pass(self.module, [self._device.take(x) for x in inputs], one,
                               apart=self.graph.apart)
        return tuple(map(self._device.give, outputs))

    def judged(self, rows: Sequence[int], outputs: Tensors, targets: Tensors) -> list[float]:
        """Return sums of losses, counts and right answers; without classes the last is -inf."""
        plain, found = replace(self.task, autocast=None), [0.0, 0.0, 0.0]
        both, alone = self.graph.interface, self.graph.loss_apart
        pieces = zip(rows_apart(outputs, rows), rows_apart(targets, rows)) if alone else \
            [(outputs, targets)]
        with torch.no_grad():
            for some, wanted in pieces:
                some, wanted = _own(some, wanted) if alone else (some, wanted)
                losses, counts = self.graph.losses(plain, some, wanted)
                right = right_answers(both.outputs.filled([some[k] for k in both.order]),
                                      both.targets.filled(wanted))
                found[0] += float(losses.double().sum())
                found[1] += float(counts.sum())
                found[2] += -inf if right is None else right
        return found

    def judge(self, score: float, number: int) -> None:
        """Take the score of these weights, those before a round; the best ones are kept."""
        self.best = self.best.after(score, number)
        if self.best.round == number:
            self._best = self._weights()

    def begin(self) -> None:
        """Begin a round, or begin it again: nothing is summed yet."""
        self._kept.clear()
        self.statistics.clear()
        for parameter in self.parameters.values():
            parameter.grad = None

    def gradients(self) -> list[torch.Tensor]:
        """Return the sums of gradients over the samples so far, of parameters that have one."""
        return [p.grad for p in self.parameters.values() if p.grad is not None]

    def divide(self, round: int, counted: float) -> None:  # noqa: A002
        """Divide gradients by what all samples of the round count, then run the hooks."""
        if gradients := self.gradients():
            torch._foreach_div_(gradients, counted)
        self.hooks.run(self.parameters, round)

    def step(self, round: int, norm: float) -> None:  # noqa: A002
        """Step the optimiser with gradients of that norm (of the whole network), fold norms."""
        gradients = self.gradients()  # a stage may have none
        if gradients and self.task.clip is not None and \
                (scale := self.task.clip / (norm + 1e-6)) < 1:  # as clip_grad_norm_ of PyTorch
            torch._foreach_mul_(gradients, scale)
        changed = dict[str, torch.Tensor]()
        if self._change is not None:  # with the parameters of the pass
            with torch.no_grad():
                changed = StageInterpreter(self._change, Pass(0, round, (0,), (0,))).run()
                changed = {name: value.clone() for name, value in changed.items()}
        if self.optimiser:
            factor = self.task.schedule(round) if self.task.schedule else 1.0
            for group, rate in zip(self.optimiser.param_groups, self._rates):
                if rate is not None:
                    group['lr'] = rate * factor
            self.optimiser.step()
        for name, value in changed.items():
            self.buffers[name].copy_(value)
        self._fold()

    def _fold(self) -> None:
        """Fold the statistics of all norms, grain after grain; those of one momentum at once."""
        alike: dict[tuple[float, torch.dtype, int], list[str]] = {}
        for name in self.statistics:
            norm = self.graph.norms[name]
            alike.setdefault((norm.momentum, self.buffers[name].dtype, norm.uses),
                             []).append(name)
        for (momentum, _, uses), names in alike.items():
            held = [self.buffers[one] for name in names
                    for one in (name, self.graph.norms[name].variance)]
            folded = torch.cat([buffer.flatten() for buffer in held])
            for grain, use in product(sorted(self.statistics[names[0]]), range(uses)):
                found = torch.cat([self.statistics[name][grain][use].flatten() for name in names])
                found = self._device.take(found)
                folded.mul_(1 - momentum).add_(found, alpha=momentum)
            for buffer, part in zip(held, torch.split(folded, [b.numel() for b in held])):
                buffer.copy_(part.view_as(buffer))

    def _weights(self) -> dict[str, torch.Tensor]:
        return {f'p:{name}': _copied(p) for name, p in self.parameters.items()} | {
            f'b:{name}': _copied(b) for name, b in self.buffers.items()}

    def state(self) -> dict[str, torch.Tensor]:
        """Return copies of parameters, statistics and what the optimiser keeps, by name."""
        found = self._weights()
        if self.task.validate_every:
            found |= {BEST: self.best.tensor,
                      **{BEST_WEIGHTS + name: tensor for name, tensor in self._best.items()}}
        for name, parameter in self.parameters.items():
            kept = self.optimiser.state.get(parameter, {}) if self.optimiser else {}
            for key, value in kept.items():
                if isinstance(value, torch.Tensor):
                    found[f'o:{name}:{key}'] = _copied(value)
                elif value is not None:
                    raise TaskError(f'{type(self.optimiser).__name__} keeps {key} as '
                                    f'{type(value).__name__}: only tensors move between devices')
        return found

    def restore(self, state: State) -> None:
        """
        Take the state of these layers; more may be in it.

        :raises KeyError: if some of it is missing.
        """
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(state[f'p:{name}'])
            for name, buffer in self.buffers.items():
                buffer.copy_(state[f'b:{name}'])
        self._best = best_weights(state)
        for name, parameter in self.parameters.items():
            own = {key.rpartition(':')[2]: value for key, value in state.items()
                   if key.startswith(f'o:{name}:')}
            if self.optimiser and own:  # steps are counted in the host's memory, as PyTorch does
                self.optimiser.state[parameter] = {
                    key: value.clone() if key == 'step' else _lying_as(parameter, value)
                    for key, value in own.items()}


def _own(outputs: Tensors, targets: Tensors) -> tuple[Tensors, Tensors]:
    """Return what a loss may write to: parts of one tensor have its version."""
    return tuple(map(torch.clone, outputs)), tuple(map(torch.clone, targets))


def squares(gradients: Sequence[torch.Tensor]) -> float:
    """Return the sum of the squares of gradients, in about the precision of float64."""
    parts, found = [piece for g in gradients for piece in (
        (g,) if g.numel() <= _DOT else torch.split(g.flatten(), _DOT))], 0.0
    for dtype in dict.fromkeys(part.dtype for part in parts):
        some = [part if dtype in (torch.float32, torch.float64) else part.float()
                for part in parts if part.dtype == dtype]
        found += float(torch.stack(torch._foreach_norm(some)).double().square().sum())
    return found


def _copied(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().to('cpu', copy=True)


def _lying_as(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return a copy that lies in memory as the parameter: fused optimisers step by memory."""
    if value.shape != parameter.shape:
        return value.to(parameter.device, copy=True)
    return torch.empty_like(parameter, dtype=value.dtype, requires_grad=False).copy_(value)


def names_of(graph: LayerGraph, layer: int) -> tuple[str, ...]:
    """Return the beginnings of the names of a layer's state."""
    one = graph.layers[layer]
    own = (*(f'p:{n}' for n in one.parameters), *(f'b:{n}' for n in one.buffers))
    return (*own, *(BEST_WEIGHTS + name for name in own), *(f'o:{n}:' for n in one.parameters),
            *([] if layer else [BEST]))


def by_layer(graph: LayerGraph, state: State, layers: Sequence[int] | None = None,
             ) -> dict[int, dict[str, torch.Tensor]]:
    """Return what belongs to some layers in a state, by default to all, by layer."""
    found: dict[int, dict[str, torch.Tensor]] = {
        layer: {} for layer in (range(len(graph.layers)) if layers is None else layers)}
    layer_of = {name: layer for layer in found for name in names_of(graph, layer)}
    for key, value in state.items():
        name = key[:key.rfind(':') + 1] if key.startswith('o:') else key
        if name in layer_of:
            found[layer_of[name]][key] = value
    return found
