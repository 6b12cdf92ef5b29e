# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a device of a stage does in a round, as data: `F0 F1 F2 B0 F3 B1 ... S U`.

F and B are the passes of a micro-batch, S sums gradients over the group and the norm over all,
U steps the optimiser.  Where the data lie on devices, I comes first: it sends others the samples
of the round that they need.  After some rounds comes a validation, `V0 V1 ... T0 V2 ...`: V are
forward passes of samples that are not trained with, T sums their losses.  A stage lets
K = min(M, 2 (P - p) - 1) micro-batches go forward before the first comes back, then alternates
(Asteroid, 1F1B).
"""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.systems.training.plan.training_plan import TrainingPlan, warm_up


@dataclass(frozen=True, slots=True)
class Action:
    """One thing that a stage does; `micro_batch` is -1 for I, S and U, T has a part's number."""

    kind: str
    micro_batch: int = -1

    def __str__(self) -> str:
        """Return it as people write it."""
        return self.kind if self.micro_batch < 0 else f'{self.kind}{self.micro_batch}'


def passes(ahead: int, micro_batches: int) -> tuple[Action, ...]:
    """Return the passes of a round of which so many forward ones go ahead: F0 F1 B0 F2 B1 ..."""
    found = [Action('F', m) for m in range(min(ahead, micro_batches))]
    for m in range(micro_batches):
        found.append(Action('B', m))
        if ahead + m < micro_batches:
            found.append(Action('F', ahead + m))
    return tuple(found)


def stage_actions(stage: int, stages: int, micro_batches: int) -> tuple[Action, ...]:
    """Return what each device of a stage does in a round."""
    ahead = warm_up(stage, stages, micro_batches)
    return (*passes(ahead, micro_batches), Action('S'), Action('U'))


def device_actions(plan: TrainingPlan, device: str) -> tuple[Action, ...]:
    """Return what a device does in a round of a plan; without a stage it only sends samples."""
    first = (Action('I'),) if plan.data else ()
    place = plan.stage_of(device)
    return first + ((Action('S'), Action('U')) if place is None else
                    stage_actions(place, len(plan.stages), plan.micro_batches))


def validation_actions(plan: TrainingPlan, device: str, parts: int) -> tuple[Action, ...]:
    """Return what a device does to validate in so many parts, each dealt as a round is."""
    count = 0 if plan.stage_of(device) is None else plan.micro_batches
    return tuple(action for part in range(parts) for action in (
        *(Action('V', part * count + k) for k in range(count)), Action('T', part)))


@dataclass(frozen=True, slots=True)
class Part:
    """Grains of a micro-batch that go from a device of one stage to one of the next."""

    source: str
    target: str
    grains: range


def fan_out(plan: TrainingPlan, stage: int, micro_batch: int,
            behind: int | None = None) -> tuple[Part, ...]:
    """
    Return what goes from a stage to the next, or one behind, to each device what it computes.

    Gradients go the other way: a grain goes forward and back on the same devices.  A part may
    stay on no device twice, since no device has two stages.
    """
    here = plan.dealt(stage, micro_batch)
    there = plan.dealt(stage + 1 if behind is None else behind, micro_batch)
    return tuple(
        Part(a, b, range(max(have.start, want.start), min(have.stop, want.stop)))
        for a, have in here.items() for b, want in there.items()
        if max(have.start, want.start) < min(have.stop, want.stop))
