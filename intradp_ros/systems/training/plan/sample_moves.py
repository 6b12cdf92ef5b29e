# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which samples go from the devices on which they lie to those that compute with them.

The first stage needs inputs, the last one targets.  Samples are numbered device after device, so
that a number says where one lies.
"""
from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from intradp_ros.systems.training.plan.training_plan import TrainingPlan


@dataclass(frozen=True, slots=True)
class SampleMove:
    """Samples that a device has, and their rows among those of another's pass."""

    source: str
    target: str
    rows: tuple[int, ...]
    samples: tuple[int, ...]


def homes_of(plan: TrainingPlan, samples: Sequence[int]) -> list[str]:
    """Return on which device each sample lies."""
    ends = list(accumulate(count for _, count in plan.data))
    return [plan.data[bisect_right(ends, sample)][0] for sample in samples]


def sample_moves(plan: TrainingPlan, target: str, samples: Sequence[int]) -> list[SampleMove]:
    """Return from whom the samples of a pass come, its own among them."""
    homes = homes_of(plan, samples)
    found = []
    for source, _ in plan.data:
        rows = tuple(row for row, home in enumerate(homes) if home == source)
        if rows:
            found.append(SampleMove(source, target, rows, tuple(samples[row] for row in rows)))
    return found
