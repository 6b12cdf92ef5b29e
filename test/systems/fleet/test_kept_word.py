# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans keep their word: the target first, then energy; limits as judged; against brute force."""
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from random_fleets import random_case

from intradp_ros.planning import held_memory
from intradp_ros.planning.quality import Quality
from intradp_ros.systems.fleet.partitioner import NothingFits, reference_scale
from intradp_ros.systems.fleet.planner import judge, plan_fleet


def cases(seed):
    """Return a fleet with its target and limits near the edge of what can be met."""
    rng = np.random.default_rng(seed)
    costs = replace(random_case(rng, 5, 3), quality=Quality())
    scale = reference_scale(costs)
    every = [judge(costs, scale, '', groups) for groups in product(range(3), repeat=5)]
    fits = [plan for plan in every if not plan.beyond]
    if not fits:
        return costs, every
    edge = sorted(plan.latency for plan in fits)[int(rng.integers(0, 4)) * (len(fits) - 1) // 8]
    chosen = min(fits, key=lambda plan: abs(plan.latency - edge))
    quality = Quality(latency=chosen.latency * (1 + 1e-6))
    if seed % 2:
        quality = replace(
            quality, energy={n: j * (1 + 1e-6) for n, j in chosen.joules.items() if j},
            memory={n: m * (1 + 1e-6) for n, m in chosen.memory.items() if m})
    costs = replace(costs, quality=quality)
    return costs, [judge(costs, scale, '', groups) for groups in product(range(3), repeat=5)]


@pytest.mark.parametrize('seed', range(10))
def test_a_target_that_some_plan_meets_is_met_with_about_the_least_energy(seed):
    costs, every = cases(seed)
    meeting = [plan for plan in every if plan.meets]
    try:
        plans = plan_fleet(costs, compare=True)
    except NothingFits:
        assert all(plan.beyond for plan in every)
        return
    assert not plans.best.beyond
    if meeting:
        assert plans.best.meets
        assert sum(plans.best.joules.values()) <= 1.02 * min(
            sum(plan.joules.values()) for plan in meeting)
    if any(plan.meets for plan in plans.others.values() if plan):
        assert plans.best.meets


@pytest.mark.parametrize('seed', range(8))
def test_bounds_of_memory_change_no_plan(seed, monkeypatch):
    rng = np.random.default_rng(seed)
    costs = random_case(rng, int(rng.integers(5, 10)), 3)
    if seed % 2:  # the room that some division takes
        groups = rng.integers(0, 3, len(costs.model.nodes)).tolist()
        held = judge(costs, reference_scale(costs), '', groups).memory
        costs = replace(costs, quality=replace(costs.quality, energy={}, memory={
            name: most * (1 + 1e-6) for name, most in held.items() if most}))

    def found():
        try:
            plans = plan_fleet(costs)
        except NothingFits:
            return None
        return [(plan.placement, plan.score, plan.meets, dict(plan.memory))
                for plan in (plans.best, *plans.front)]

    quick = found()
    monkeypatch.setattr(held_memory, 'memory_bounds', lambda one, batches, names: (
        dict.fromkeys(names, 0.0), dict.fromkeys(names, float('inf'))))
    assert quick == found()
