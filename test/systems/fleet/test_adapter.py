# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The adapter replayed over changing rates and devices, against a static plan and an oracle."""
from __future__ import annotations

import numpy as np
import pytest
from random_fleets import random_model

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import Quality
from intradp_ros.power.power_states import PowerStates
from intradp_ros.systems.fleet.adapter import Act, as_observed, begin, observe, Observed
from intradp_ros.systems.fleet.partitioner import NothingFits, reference_scale
from intradp_ros.systems.fleet.planner import judge, plan_fleet

STEP, AIR = 0.2, 6e6


@pytest.fixture(scope='module')
def declared():
    model = random_model(np.random.default_rng(1), 8, chain=True)
    robot = PowerStates(13.0, 5.0, 4.0, 'declared')
    devices = [Device('robot', 1e9, 0.25, power=robot), Device('helper', 1e9, 1.0, power=robot),
               Device('box', 1e9, 3.0, power=PowerStates(60.0, 21.0, 20.0, 'declared'))]
    costs = FleetCosts(model, behind_access_point(devices, AIR, 1e-3, ['box']), 'robot')
    fastest = plan_fleet(costs).best.latency
    return FleetCosts(model, costs.topology, 'robot', Quality(latency=3.5 * fastest))


def planner():
    """Return a planner that remembers, so that the oracle costs little."""
    known = {}

    def plan(costs):
        key = (costs.topology.names, tuple(m.bytes_per_second for m in costs.topology.media))
        if key not in known:
            known[key] = plan_fleet(costs)
        return known[key]

    return plan


def burst(now):
    """Let a camera take most of the air from 4 to 12 s, and the box be gone from 16 to 22 s."""
    rate = 0.15 * AIR if 4 <= now < 12 else 0.96 * AIR if now < 4 else AIR
    return Observed({'air': rate}, frozenset({'box'}) if 16 <= now < 22 else frozenset())


def replay(declared, plan):
    """Return seconds in which the target is missed: adapter, static, oracle; and all acts."""
    state = begin(declared, 0.0, plan)
    missed, acts, static = [0.0, 0.0, 0.0], [], begin(declared, 0.0, plan)
    names = declared.topology.names
    used = {names[d] for g in static.plan.placement
            for d in np.flatnonzero(declared.groups[g])}
    for now in np.arange(0.0, 26.0, STEP):
        seen = burst(now)
        costs = as_observed(declared, seen)
        stays = meets_unchanged(static, declared, seen) if not used & seen.gone else False
        best = plan(costs).best.meets
        state, decision = observe(state, declared, seen, float(now), planner=plan)
        acts.append(decision.act)
        late = decision.plan is None or not decision.plan.meets
        switching = decision.act in (Act.SWITCH, Act.REPLAN)  # the old plan goes on for a step
        missed[0] += STEP * (late or switching)
        missed[1] += STEP * (not stays)
        missed[2] += STEP * (not best)
    return missed, acts


def meets_unchanged(state, declared, seen):
    """Return whether the first plan still meets the target."""
    names = declared.topology.names
    here = as_observed(declared, seen)
    groups = [here.topology.names.index(names[g]) for g in state.plan.placement]
    return judge(here, reference_scale(here), '', groups).meets


def test_little_is_missed_beside_a_static_plan_and_no_more_than_an_oracle_and_its_reaction(
        declared):
    (ours, static, oracle), acts = replay(declared, planner())
    assert static > 3 * ours
    assert ours <= 1.25 * oracle + 3 * 0.7  # three changes, each of which has to last 0.5 s
    assert sum(act in (Act.SWITCH, Act.REPLAN) for act in acts) <= 6


def test_small_changes_move_no_weights(declared):
    plan = planner()
    state = begin(declared, 0.0, plan)
    for now, part in enumerate((1.0, 0.97, 0.93, 0.91, 0.95)):
        state, decision = observe(state, declared, Observed({'air': part * AIR}), float(now),
                                  planner=plan)
        assert decision.act in (Act.STAY, Act.REORDER)


def test_a_plan_whose_device_is_gone_is_replaced_at_once_and_comes_back(declared):
    plan = planner()
    state = begin(declared, 0.0, plan)
    first = state.plan.placement
    used = {declared.topology.names[g] for g in first} - {'robot'}
    assert used
    gone = frozenset(used)
    state, decision = observe(state, declared, Observed({}, gone), 1.0, planner=plan)
    assert decision.act in (Act.SWITCH, Act.REPLAN)
    assert not gone & set(decision.costs.topology.names)
    for now in (2.0, 3.0, 9.0):
        state, decision = observe(state, declared, Observed(), now, planner=plan)
    if decision.plan.meets:
        assert decision.plan.latency <= declared.quality.latency


def test_without_the_source_nobody_asks(declared):
    with pytest.raises(ValueError, match='source robot is gone'):
        observe(begin(declared, 0.0, planner()), declared, Observed({}, frozenset({'robot'})),
                1.0)


def test_when_nothing_fits_it_waits_and_goes_on_later(declared):
    plan = planner()
    state = begin(declared, 0.0, plan)

    def nothing(costs):
        raise NothingFits('too large')

    gone = Observed({}, frozenset({'box', 'helper'}))
    alone = [a for a in state.front if all(dict(shares).keys() == {'robot'} for shares in a)]
    state, decision = observe(state, declared, gone, 1.0, planner=nothing)
    assert decision.act is (Act.SWITCH if alone and decision.plan else Act.WAIT)
    state, decision = observe(state, declared, Observed(), 2.0, planner=plan)
    assert decision.plan is not None and decision.plan.meets


def test_a_plan_that_became_much_too_late_is_replaced_however_new_it_is(declared):
    state = begin(declared, 0.0)
    slow = Observed({'air': 0.02 * AIR})
    state, decision = observe(state, declared, slow, 0.1)
    assert decision.act is Act.REPLAN
    assert decision.plan.latency < judge(
        as_observed(declared, slow), reference_scale(declared), '',
        begin(declared, 0.0).plan.placement).latency
