# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What training adds to a plan: backward passes, gradients, the memory that both need.

A round is M micro-batches, forward and backward through a pipeline of
replica groups (1F1B), after which each group sums its weight gradients, as
in Asteroid and Dora.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from intradp_ros.planning.planning_model import PlanningModel

#: Backward seconds in forward ones where nothing was measured: two products for one.
BACKWARD = 2.0


@dataclass(frozen=True, slots=True)
class Training:
    """
    How a model is trained.

    `states` are the numbers that the optimizer keeps of each weight (Adam 2,
    momentum 1), beside the weight and its gradient.

    Raises
    ------
    ValueError
        If `states` is below 0.

    """

    states: float = 2.0

    def __post_init__(self) -> None:
        """Check the figure."""
        if not 0 <= self.states < 1e3:
            raise ValueError(f'an optimizer keeps 0 numbers of a weight or more, got '
                             f'{self.states}')


def warm_up(stage: int, stages: int, batches: int) -> int:
    """Return the micro-batches that a stage may have forward of the backward pass: 2(P-p)-1."""
    return min(batches, 2 * (stages - stage) - 1)


def stage_numbers(placement: Sequence[int]) -> list[int]:
    """Return the stage of each node: a stage is neighbours of one group."""
    numbers = [0]
    for before, group in zip(placement, placement[1:]):
        numbers.append(numbers[-1] + (group != before))
    return numbers


def with_backward(model: PlanningModel, factor: float = BACKWARD) -> PlanningModel:
    """Return the model with backward seconds of so many times the forward ones (declared)."""
    if not 0 < factor < 1e3:
        raise ValueError(f'backward passes take a part of forward ones above 0, got {factor}')
    return replace(model, nodes=tuple(replace(node, backward_seconds=factor * node.seconds)
                                      for node in model.nodes))
