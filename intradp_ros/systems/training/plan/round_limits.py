# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a round cannot be shorter than, and what forbids it: of one plan, and of any plan.

In the model of the costs these are true lower bounds: devices compute one pass at a time, a
medium carries its bytes at its rate, a micro-batch goes through all stages and back.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.round_costs import crossings, RoundCosts
from intradp_ros.systems.training.plan.round_estimate import steps_of


@dataclass(frozen=True, slots=True)
class RoundLimit:
    """Seconds that a round takes at least, and what needs them."""

    seconds: float
    binds: str


def plan_limit(costs: RoundCosts, stages: Sequence[HybridStage]) -> RoundLimit:
    """
    Return the limit of a plan: its busiest device, its busiest medium, or the longest way.

    A device of a later stage cannot begin before a micro-batch has come through those before, and
    these have to take the last one back.
    """
    found: dict[str, float] = {}
    way = 0.0
    for k, stage in enumerate(stages):
        if k:
            way += _quickest_crossing(costs, stages[k - 1], stage)
        computed = {name: sum(costs.stage_seconds(stage, name)) for name in stage.devices}
        for name, seconds in computed.items():
            found[f'computing on {name}'] = way + seconds + \
                costs.step_seconds(name, stage.first, stage.last)
        way += min(sum(costs.seconds(name, stage.first, stage.last, samples))
                   for shares, _ in costs.different_passes(stage) for name, samples in shares)
    found['the way of a micro-batch through all stages and back'] = way
    carried: dict[str, float] = {}
    for step in steps_of(costs, stages):
        _add(carried, step.media, costs.micro_batches)
        _add(carried, step.sums, 1)
    found |= {f'bytes over {medium}': seconds for medium, seconds in carried.items()}
    binds = max(found, key=found.__getitem__)
    return RoundLimit(found[binds], binds)


def fleet_limit(costs: RoundCosts) -> RoundLimit:
    """
    Return the limit of any plan: all devices compute all the time, and bytes take no time.

    A linear program: samples of each layer on each device, at the least seconds a sample of any
    share, so that the busiest device is least busy.
    """
    from scipy.optimize import linprog
    if costs.merges:
        costs = costs.in_passes(1)  # of all sizes that a pass may have
    names, layers = costs.topology.names, costs.layers
    least = np.array([[
        min(sum(costs.seconds(name, k, k + 1, size)) / size for size in costs.sizes[1:])
        for k in range(layers)] for name in names])
    count = least.size
    whole = np.zeros((layers, count + 1))
    busy = np.zeros((len(names), count + 1))
    for d in range(len(names)):
        whole[:, d * layers:(d + 1) * layers] = np.eye(layers)
        busy[d, d * layers:(d + 1) * layers] = least[d]
    busy[:, -1] = -1
    scale = least.sum() or 1.0
    busy[:, :-1] /= scale
    found = linprog(np.eye(1, count + 1, count)[0], busy, np.zeros(len(names)), whole,
                    np.ones(layers), method='highs')
    return RoundLimit(float(found.fun) * scale * costs.samples,
                      'computing on all devices together')


def _quickest_crossing(costs: RoundCosts, before: HybridStage, behind: HybridStage) -> float:
    """Return the seconds that the quickest rows take from a stage to the next and back."""
    there = costs.table.border_bytes[behind.first]
    again = costs.table.gradient_bytes[behind.first]
    return min((samples * there / costs.topology.rate(a, b) + costs.topology.delay(a, b)
                + samples * again / costs.topology.rate(b, a) + costs.topology.delay(b, a)
                for (one, _), (other, _) in zip(costs.different_passes(before),
                                                costs.different_passes(behind))
                for (a, b), samples in crossings(one, other).items()), default=0.0)


def _add(total: dict[str, float], more: Mapping[str, float], times: int) -> None:
    for medium, seconds in more.items():
        total[medium] = total.get(medium, 0.0) + times * seconds
