# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How long a round takes, in closed form (Asteroid, Eq. 4 to 6, split by direction).

Execution and communication steps alternate.  What is busiest for a micro-batch decides: a device,
or a medium with all that any step sends over it in either direction; so half duplex adds both
directions where full duplex does not.  A stage that may keep K micro-batches also waits for the
way there and back of every K-th.  After that each group sums its gradients and statistics, and
all devices the norm of the gradients; then they step.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.round_costs import ring_delays, ring_moves, RoundCosts


@dataclass(frozen=True, slots=True)
class Step:
    """
    Seconds of a micro-batch, on average: forward, backward, and how long the busiest device works.

    Of a communication step, `media` has the busy seconds; of an execution step, `kept` is K_p and
    `sums` has the busy seconds of media in the sum of gradients.
    """

    forward: float
    backward: float
    busy: float = 0.0
    kept: int = 0
    media: Mapping[str, float] = field(default_factory=dict)
    sums: Mapping[str, float] = field(default_factory=dict)
    delay: float = 0.0


def execution_step(costs: RoundCosts, stage: HybridStage) -> Step:
    """Return the step of a stage (Eq. 8: the slowest device of the group)."""
    count = costs.micro_batches
    if stage.of_round:  # as a micro-batch's part of all that the slowest device has to do
        forward, backward = max((costs.stage_seconds(stage, name)
                                 for name in stage.devices), key=sum)
        both = [(forward / count, backward / count)]
    elif costs.even:
        both = [costs.seconds(name, stage.first, stage.last, samples)
                for name, samples in stage.shares]
    else:
        both = [(forward / count, backward / count) for forward, backward in (
            costs.stage_seconds(stage, name) for name in stage.devices)]
    ring = ring_moves(stage.devices)
    return Step(max(f for f, _ in both), max(b for _, b in both), max(f + b for f, b in both),
                stage.warm_up, {},
                costs.media_seconds(ring, costs.summed_bytes(stage.first, stage.last)),
                _sum_delay(costs, stage.devices))


def communication_step(costs: RoundCosts, before: HybridStage, behind: HybridStage) -> Step:
    """Return the step between two stages; values go forward, gradients back."""
    moves = costs.crossings(before, behind)
    back = {(b, a): samples for (a, b), samples in moves.items()}
    there = costs.media_seconds(moves, costs.table.border_bytes[behind.first])
    again = costs.media_seconds(back, costs.table.gradient_bytes[behind.first])
    return Step(max(there.values(), default=0.0) + costs.delay(moves),
                max(again.values(), default=0.0) + costs.delay(back), media=_sum(there, again))


def image_step(costs: RoundCosts, stage: HybridStage) -> Step | None:
    """Return the step that brings images to the first stage, None where all lie there."""
    moves = costs.images_of(stage)
    if not moves:
        return None
    media = costs.media_seconds(moves, costs.table.border_bytes[0])
    return Step(max(media.values()) + costs.delay(moves), 0.0, media=media)


def round_seconds(steps: Sequence[Step], micro_batches: int) -> float:
    """Return the seconds of a round of these steps, in order."""
    after, there_and_back = [0.0] * len(steps), 0.0
    for k in range(len(steps) - 1, -1, -1):
        there_and_back += steps[k].forward + steps[k].backward
        after[k] = there_and_back
    total = before = 0.0
    for step, trip in zip(steps, after):
        busy = micro_batches * step.busy
        if step.kept:
            busy = max(busy, trip * max(1.0, micro_batches / step.kept))
        total = max(total, before + max(busy, trip))
        before += step.forward + step.backward
    loads: dict[str, float] = {}
    for step in reversed(steps):  # nothing of it, nor of later ones, is sent before its turn
        before -= step.forward + step.backward
        for medium, seconds in step.media.items():
            loads[medium] = loads.get(medium, 0.0) + seconds
            total = max(total, before + micro_batches * loads[medium])
    end = total
    back = sum(step.backward for step in steps)
    free: dict[str, float] = {}
    for step in reversed(steps):  # later stages are done first, and sum first
        back -= step.backward
        if step.sums:
            begun = max(total - back, *(free.get(medium, 0.0) for medium in step.sums))
            ended = begun + max(step.sums.values())
            free.update({medium: begun + seconds for medium, seconds in step.sums.items()})
            end = max(end, ended + step.delay)
    return end


def ending_seconds(costs: RoundCosts, stages: Sequence[HybridStage]) -> float:
    """Return how long all devices take to sum the norm (a few bytes, all hops), and to step."""
    parts = [(name, stage) for stage in stages for name in stage.devices]
    return _sum_delay(costs, [name for name, _ in parts]) + max(
        costs.step_seconds(name, stage.first, stage.last) for name, stage in parts)


def _sum_delay(costs: RoundCosts, names: Sequence[str]) -> float:
    if len(names) < 2:
        return 0.0
    hop, count = ring_delays(names, costs.topology)
    return count * costs.topology.delay(*hop)


def steps_of(costs: RoundCosts, stages: Sequence[HybridStage]) -> list[Step]:
    """Return all steps of a plan, the images' first."""
    steps = [step for step in (image_step(costs, stages[0]),) if step]
    for k, stage in enumerate(stages):
        if k:
            steps.append(communication_step(costs, stages[k - 1], stage))
        steps.append(execution_step(costs, stage))
    return steps


def _sum(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    found = dict(one)
    for medium, seconds in other.items():
        found[medium] = found.get(medium, 0.0) + seconds
    return found
