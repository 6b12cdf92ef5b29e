# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What trained weights are worth: their loss on samples that were never trained with."""
from __future__ import annotations

from collections.abc import Mapping
import copy
from dataclasses import dataclass

import torch

from intradp_ros.runtime.weight_file import module_state
from intradp_ros.systems.training.task import TrainingTask

#: Samples of one pass.
_PART = 64


@dataclass(frozen=True, slots=True)
class Judgement:
    """Mean loss, and the share of right answers where targets are classes."""

    samples: int
    loss: float
    accuracy: float | None


def judge(task: TrainingTask, state: Mapping[str, torch.Tensor]) -> Judgement | None:
    """Return how a state does on the task's `check`; None where there is none."""
    if task.check is None or not len(task.check) or not state:
        return None
    module = copy.deepcopy(task.module).eval()
    module.load_state_dict(module_state(state), strict=False)
    loss, right, classes = 0.0, 0, True
    with torch.no_grad():
        for first in range(0, len(task.check), _PART):
            inputs, targets = task.check.take(
                range(first, min(first + _PART, len(task.check))))
            outputs = module(*inputs)
            loss += float(task.loss(outputs, targets).double().sum())
            classes = classes and outputs.dim() == 2 and targets.dim() == 1 and \
                not targets.is_floating_point()
            if classes:
                right += int((outputs.argmax(1) == targets).sum())
    count = len(task.check)
    return Judgement(count, loss / count, right / count if classes else None)
