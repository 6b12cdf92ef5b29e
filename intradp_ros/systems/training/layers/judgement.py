# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What trained weights are worth: their loss on samples that were never trained with.

What is best so far travels with weights: as `v:best`, and the best weights themselves, `w:` before
their names.  So whoever goes on with a training has them, and copies of layers are copies of both.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import math
import sys
from typing import Any

import torch

from intradp_ros.graph.module_parts import copied
from intradp_ros.runtime.models.weight_file import module_state
from intradp_ros.systems.training.base.structure import tensors_of
from intradp_ros.systems.training.base.task import call, losses_of, TrainingTask

#: The name of what is best so far in a state, and what the names of the best weights begin with.
BEST, BEST_WEIGHTS = 'v:best', 'w:'
#: What one must be better by, in parts of it: so that rounding decides nothing.
_BETTER = 1e-6
#: Why there may be no accuracy.
NO_CLASSES = ("best_by='accuracy' needs targets that are classes, a number a sample, and a first "
              "output with a number for each class: take best_by='loss'")


@dataclass(frozen=True, slots=True)
class Judgement:
    """
    Mean loss, and the share of right answers where targets are classes.

    Answers are the first tensor that the module returns.
    """

    samples: int
    loss: float
    accuracy: float | None


@dataclass(frozen=True, slots=True)
class BestSoFar:
    """
    The best score so far (higher is better), its round, and the validations since that were not.

    The round is the one that begins with these weights; 0 where there was no validation.
    """

    score: float = -sys.float_info.max
    round: int = 0
    waited: int = 0

    def after(self, score: float, number: int) -> BestSoFar:
        """Return what is best after a validation before that round; nan is never better."""
        if math.isfinite(score) and score > self.score + _BETTER * abs(self.score) \
                or not self.round and math.isfinite(score):
            return BestSoFar(score, number)
        return replace(self, waited=self.waited + 1)

    def ends(self, task: TrainingTask) -> bool:
        """Return whether a task's patience is over."""
        return task.patience is not None and self.waited >= task.patience

    @property
    def tensor(self) -> torch.Tensor:
        """Return it as part of a state."""
        return torch.tensor([self.score, self.round, self.waited], dtype=torch.float64)

    @staticmethod
    def of(state: Mapping[str, torch.Tensor]) -> BestSoFar:
        """Return that of a state; none, where it has none."""
        if BEST not in state or state[BEST].shape != (3,):
            return BestSoFar()
        score, number, waited = state[BEST].tolist()
        return BestSoFar(score, int(number), int(waited))


def best_weights(state: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the best weights so far that are part of a state, under the names that they had."""
    return {name[2:]: tensor for name, tensor in state.items() if name.startswith(BEST_WEIGHTS)}


def right_answers(outputs: Any, targets: Any) -> int | None:
    """Return how many answers are right; None where targets are not classes."""
    answers, wanted = tensors_of(outputs)[0], tensors_of(targets)[0]
    classes = answers.dim() == 2 and wanted.dim() == 1 and not wanted.is_floating_point()
    return int((answers.argmax(1) == wanted).sum()) if classes else None


def judge(task: TrainingTask, state: Mapping[str, torch.Tensor]) -> Judgement | None:
    """Return how a state does on the task's `check`; None where there is none."""
    check = task.check
    if check is None or not len(check) or not state:
        return None
    plain = replace(task, autocast=None)
    module = copied(task.module).eval()
    module.load_state_dict(module_state(state), strict=False)
    loss, counted, right, classes = 0.0, 0.0, 0, True
    with torch.no_grad():
        for first in range(0, len(check), task.grain):
            rows = range(first, min(first + task.grain, len(check)))
            inputs, wanted = check.take(rows)
            outputs = call(module, inputs)
            losses, counts = losses_of(plain, outputs, wanted, len(rows))
            loss, counted = loss + float(losses.double().sum()), counted + float(counts.sum())
            some = right_answers(outputs, wanted)
            classes, right = classes and some is not None, right + (some or 0)
    count = len(check)
    return Judgement(count, loss / (counted or 1.0), right / count if classes else None)
