# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A validation on one device: forward passes of `check` through the stages of a plan, in eval mode.

The samples are dealt in parts as a round's are, in their order; each device of the first and the
last stage reads its own.  Nothing that training computes with is changed.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
import math
import time
from typing import Any

import torch

from intradp_ros.systems.training.base.reading import take
from intradp_ros.systems.training.base.structure import taken_apart, Tensors
from intradp_ros.systems.training.base.task import Data, TaskError, TrainingTask
from intradp_ros.systems.training.plan.stage_actions import (
    Action,
    fan_out,
    Part,
    validation_actions,
)
from intradp_ros.systems.training.plan.training_plan import TrainingPlan
from intradp_ros.systems.training.run.round_groups import RoundGroup
from intradp_ros.systems.training.run.stage_runner import StageRunner


def parts_of(task: TrainingTask) -> int:
    """Return in how many parts, of a round's samples, a task is validated."""
    return -(-len(task.check) // task.batch) if task.validate_every and task.check else 0


class Validation:
    """Validates with a stage, on the device that has it, and with those of other devices."""

    def __init__(self, name: str, plan: TrainingPlan, group: RoundGroup, stage: StageRunner,
                 taking: Callable[[str, int], AbstractContextManager[None]]) -> None:
        assert stage.task.check is not None
        self._name, self._plan, self._group, self._stage = name, plan, group, stage
        self._check: Data = stage.task.check
        self._place, self._taking = plan.stage_of(name), taking
        self._sums = [0.0, 0.0, 0.0]

    def run(self, number: int, before: Callable[[int, Action], None]) -> dict[str, Any]:
        """
        Return loss, accuracy (None where targets are not classes), samples and seconds.

        All devices return the same loss and accuracy.  `number` is the round's, for `before`.
        """
        begun, totals = time.monotonic(), torch.zeros(3, dtype=torch.float64)
        for action in validation_actions(self._plan, self._name, parts_of(self._stage.task)):
            before(number, action)
            if action.kind == 'V':
                self._pass(number, *divmod(action.micro_batch, self._plan.micro_batches))
                continue
            self._group.settle()
            sums, self._sums = torch.tensor(self._sums, dtype=torch.float64), [0.0, 0.0, 0.0]
            self._group.total(sums)
            totals += sums
        loss, counted, right = totals.tolist()
        samples = len(self._check)
        return {'loss': loss / (counted or 1.0), 'samples': samples,
                'accuracy': None if math.isinf(right) else right / samples,
                'seconds': time.monotonic() - begun}

    def _pass(self, number: int, part: int, micro_batch: int) -> None:
        """Take what enters, compute, and send what leaves, or sum the losses."""
        plan, place = self._plan, self._place
        assert place is not None
        first, last = not place, place == len(plan.stages) - 1
        grains = self._there(part, plan.dealt(place, micro_batch)[self._name])
        if not grains:
            return
        samples = [k for grain in grains for k in self._samples(part, grain)]
        inputs, targets = self._read(samples) if first or last else ((), ())
        tag = (number % 64) << 24 | micro_batch << 8
        if not first:
            inputs = self._received(part, micro_batch, tag)
        rows = [len(self._samples(part, grain)) for grain in grains]
        with self._taking('F', len(samples)):
            outputs = self._stage.evaluate(rows, inputs)
            if last:
                found = self._stage.judged(rows, outputs, targets)
                self._sums = [a + b for a, b in zip(self._sums, found)]
        if last:
            return
        for one in self._between(place, part, micro_batch):
            if one.source == self._name:
                begin = self._count(part, range(grains.start, one.grains.start))
                own = slice(begin, begin + self._count(part, one.grains))
                for k, value in enumerate(outputs):
                    self._group.send(value[own], one.target, tag | k << 1)

    def _received(self, part: int, micro_batch: int, tag: int) -> Tensors:
        """Return what enters this stage, from those that have computed it."""
        assert self._place is not None
        begun = [(one.source, *self._group.receive(
            (self._count(part, one.grains), *value.shape), value.dtype, one.source, tag | k << 1))
            for one in self._between(self._place - 1, part, micro_batch)
            if one.target == self._name
            for k, value in enumerate(self._stage.graph.cuts[self._stage.first])]
        for source, _, work in begun:
            self._group.wait(work, source)
        width = len(self._stage.graph.cuts[self._stage.first])
        return tuple(torch.cat([tensor for _, tensor, _ in begun[k::width]])
                     for k in range(width))

    def _between(self, border: int, part: int, micro_batch: int) -> list[Part]:
        """Return what crosses a border, without grains behind the last sample."""
        found = [Part(one.source, one.target, self._there(part, one.grains))
                 for one in fan_out(self._plan, border, micro_batch)]
        return [one for one in found if one.grains]

    def _samples(self, part: int, grain: int) -> range:
        rows, first = self._stage.task.grain_rows(grain), part * self._stage.task.batch
        return range(first + rows.start, min(first + rows.stop, len(self._check)))

    def _there(self, part: int, grains: range) -> range:
        """Return those of some grains that have samples."""
        left = len(self._check) - part * self._stage.task.batch
        return range(grains.start, min(grains.stop, -(-left // self._stage.task.grain)))

    def _count(self, part: int, grains: range) -> int:
        return sum(len(self._samples(part, grain)) for grain in grains)

    def _read(self, samples: Sequence[int]) -> tuple[Tensors, Tensors]:
        graph = self._stage.graph
        inputs, whole = take(self._check, samples)
        targets, structure = taken_apart(whole)
        if structure != graph.interface.targets:
            raise TaskError(f'among the samples {list(samples)} of check some have targets of the '
                            f'form {structure.spec}, those of data {graph.interface.targets.spec}')
        return graph.entering(inputs), targets
