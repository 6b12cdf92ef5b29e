# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What trained weights are worth: their loss on samples that were never trained with."""
from __future__ import annotations

from collections.abc import Mapping
import copy
from dataclasses import dataclass, replace

import torch

from intradp_ros.runtime.models.weight_file import module_state
from intradp_ros.systems.training.base.structure import tensors_of
from intradp_ros.systems.training.base.task import call, losses_of, TrainingTask

#: Samples of one pass.
_PART = 64


@dataclass(frozen=True, slots=True)
class Judgement:
    """
    Mean loss, and the share of right answers where targets are classes.

    Answers are the first tensor that the module returns.
    """

    samples: int
    loss: float
    accuracy: float | None


def judge(task: TrainingTask, state: Mapping[str, torch.Tensor]) -> Judgement | None:
    """Return how a state does on the task's `check`; None where there is none."""
    check = task.check
    if check is None or not len(check) or not state:
        return None
    plain = replace(task, autocast=None)
    module = copy.deepcopy(task.module).eval()
    module.load_state_dict(module_state(state), strict=False)
    loss, counted, right, classes = 0.0, 0.0, 0, True
    with torch.no_grad():
        for first in range(0, len(check), _PART):
            rows = range(first, min(first + _PART, len(check)))
            inputs, wanted = check.take(rows)
            outputs = call(module, inputs)
            losses, counts = losses_of(plain, outputs, wanted, len(rows))
            loss, counted = loss + float(losses.double().sum()), counted + float(counts.sum())
            answers, targets = tensors_of(outputs)[0], tensors_of(wanted)[0]
            classes = classes and answers.dim() == 2 and targets.dim() == 1 and \
                not targets.is_floating_point()
            if classes:
                right += int((answers.argmax(1) == targets).sum())
    count = len(check)
    return Judgement(count, loss / (counted or 1.0), right / count if classes else None)
