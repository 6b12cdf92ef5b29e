# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans against those of every other planner, and as what devices run."""
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from random_fleets import random_case, random_model, random_topology
from small_models import UNet
import torch

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.graph.capture import capture
from intradp_ros.planning.baselines import (
    by_memory,
    edgeshard,
    equal_split,
    fastest,
    pipedream,
)
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.estimate import estimate
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.planning.quality import Quality
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.fleet.partitioner import baselines, reference_scale
from intradp_ros.systems.fleet.planner import check_size, judge, plan_fleet, stage_plan


def fleet_case(seed):
    rng = np.random.default_rng(seed)
    model = random_model(rng, 10, chain=bool(seed % 2))
    alone = sum(node.seconds for node in model.nodes)
    quality = (Quality(), Quality(latency=0.6 * alone), Quality(latency=alone, rate=2 / alone),
               )[seed % 3]
    return FleetCosts(model, random_topology(rng, 4), 'd0', quality, batches=1 + 2 * (seed % 2))


@pytest.mark.parametrize(('nodes', 'devices', 'batches', 'samples', 'message'), [
    (13, 2, 256, 64, '256 micro-batches of 64 samples over 13 nodes are 212992 tasks'),
    (1, 33, 1, 1, '33 devices in the fleet: plans are made for at most 32')])
def test_what_would_take_without_end_is_refused(nodes, devices, batches, samples, message):
    """Up to the limits it is planned: nothing is left to the memory of the machine."""
    rng = np.random.default_rng(0)
    costs = FleetCosts(random_model(rng, nodes), random_topology(rng, devices), 'd0',
                       batches=batches, samples=samples)
    with pytest.raises(ValueError, match=message):
        plan_fleet(costs)
    check_size(replace(costs, model=random_model(rng, min(nodes, 12)),
                       topology=random_topology(rng, min(devices, 32))))


@pytest.mark.parametrize('seed', range(9))
def test_ours_is_never_worse_than_what_others_plan(seed):
    costs = fleet_case(seed)
    plans = plan_fleet(costs, compare=True)
    scale = reference_scale(costs)
    for name, placement in baselines(fastest(costs), 10).items():  # planned apart from the pool
        if placement is not None:
            theirs = judge(costs, scale, name, placement.tolist())
            assert plans.best.score <= theirs.score * (1 + 1e-9), name
            assert plans.others[name].score == pytest.approx(theirs.score)
    assert plans.best.score <= plans.others['fair sharing'].score * (1 + 1e-9)
    assert plans.best.latency >= plans.best.bound * (1 - 1e-9)


@pytest.mark.parametrize('seed', range(6))
def test_the_plan_is_near_the_best_of_all_placements_in_the_simulator(seed):
    rng = np.random.default_rng(seed)
    costs = random_case(rng, 5, 3)
    costs = replace(costs, quality=Quality())
    scale = reference_scale(costs)
    every = [judge(costs, scale, '', placement) for placement in product(range(3), repeat=5)]
    least = min((plan.score for plan in every if not plan.beyond), default=None)
    if least is None:
        pytest.skip('nothing fits')
    assert plan_fleet(costs).best.score <= 1.01 * least


@pytest.mark.parametrize('seed', range(4))
def test_edgeshard_has_the_least_latency_of_a_chain(seed):
    rng = np.random.default_rng(seed)
    costs = FleetCosts(random_model(rng, 6, chain=True), random_topology(rng, 3), 'd0',
                       contended=False)
    every = np.array(list(product(range(3), repeat=6)))
    least = estimate(costs, every).latency.min()
    assert estimate(costs, edgeshard(costs)[None]).latency[0] == pytest.approx(least)


def plain_chain(*seconds):
    nodes = tuple(Node(f'n{k}', s, 1e6, 1.0) for k, s in enumerate(seconds))
    flows = [Flow(k, (k + 1 if k + 1 < len(nodes) else SOURCE,), 1.0) for k in range(len(nodes))]
    return PlanningModel('chain', nodes, (Flow(SOURCE, (0,), 1.0), *flows))


def test_simple_planners_follow_their_rules():
    devices = [Device('a', 4e6), Device('b', 12e6)]
    costs = FleetCosts(plain_chain(1, 1, 1, 3), behind_access_point(devices, 1e9), 'a')
    assert list(equal_split(costs)) == [0, 0, 1, 1]
    assert list(by_memory(costs)) == [1, 1, 1, 0]
    assert list(pipedream(costs)) == [0, 0, 0, 1]


def test_a_rival_whose_plan_does_not_fit_has_none():
    devices = [Device('a', 1.5e6), Device('b', 9e6)]
    costs = FleetCosts(plain_chain(1, 1, 1, 3), behind_access_point(devices, 1e9), 'a')
    assert equal_split(costs) is None
    assert plan_fleet(costs, compare=True).others['equal split'] is None


def test_a_placement_of_a_network_is_a_plan_that_passes_every_check():
    split = split_graph(capture(UNet().eval(), (torch.zeros(1, 3, 32, 32),)))
    profile = Profile('d', 2, 'board', 1, tuple(
        OperatorTiming((op.rows,), (1e-3,)) for op in split.operators), 1.0)
    model = coarsen(captured_model(split, profile), 0.15)
    devices = [Device('a', 0.7 * model.weight_bytes + 1e6), Device('b', speed=3)]
    costs = FleetCosts(model, behind_access_point(devices, 1e7), 'a', samples=2)
    rng = np.random.default_rng(0)
    for placement in (plan_fleet(costs).best.placement,
                      rng.integers(len(costs.groups), size=len(model.nodes)).tolist()):
        plan = stage_plan(costs, placement)
        plan.check(split.graph, costs.topology.names)
        assert StagePlan.from_json(plan.to_json()) == plan


def test_a_profile_without_a_network_cannot_be_run():
    costs = fleet_case(1)
    with pytest.raises(PlanError, match='nothing to run'):
        stage_plan(costs, [0] * 10)
