# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Never slower than the plans of others, in Asteroid's environments (modelled) and random ones."""
import contextlib
from dataclasses import replace

import pytest
from training_cases import random_costs

from intradp_lab.paper_training import ENVIRONMENTS, NETWORKS, paper_costs
from intradp_ros.schedule.stage_plan import PlanError
from intradp_ros.systems.training.plan.baselines import baseline_seconds, BASELINES
from intradp_ros.systems.training.plan.hybrid_planner import judged, plan_round
from intradp_ros.systems.training.plan.replanning import light_stages, regrouped


def check(costs):
    """See that no other planner's round is shorter; return how many had a plan."""
    plan = plan_round(costs)
    for name, nbytes in plan.memory.items():
        assert nbytes <= costs.topology.device(name).memory_bytes
    found = {name: baseline_seconds(costs, pipelines) for name, rule in BASELINES.items()
             if (pipelines := rule(costs))}
    for name, seconds in found.items():
        assert plan.seconds <= seconds * (1 + 1e-9), (name, plan.shape)
    return len(found)


@pytest.mark.parametrize('network', ['MobileNetV2', 'ResNet50'])
@pytest.mark.parametrize('environment', ['A', 'B'])
def test_no_other_planner_is_faster_in_the_papers_environments(network, environment):
    assert check(paper_costs(network, environment, 100)) >= 2


@pytest.mark.slow
@pytest.mark.parametrize('mbits', [100, 1000])
@pytest.mark.parametrize('environment', ENVIRONMENTS)
@pytest.mark.parametrize('network', NETWORKS)
def test_no_other_planner_is_faster_in_all_environments(network, environment, mbits):
    assert check(paper_costs(network, environment, mbits)) >= 1


def check_light(network, environment, every=1):
    """See that rounds after each loss take at most a ninth longer than by a plan from scratch."""
    costs = paper_costs(network, environment, 100)
    before, found = plan_round(costs).stages, []
    for lost in [name for stage in before for name in stage.devices][::every]:
        left = replace(costs, topology=costs.topology.without({lost}))
        if light := light_stages(left, before):
            assert {name for s in light for name in s.devices} <= set(left.topology.names)
            found.append(plan_round(left).seconds / judged(left, light).seconds)
    assert min(found) >= 0.9, found


def test_stages_that_are_left_are_tried_with_one_device_or_border_elsewhere():
    found = regrouped((('a',), ('b', 'c')))
    assert found[0] == (('a',), ('b', 'c')) and len(found) == len(set(found))
    assert set(found[1:]) == {(('a', 'b', 'c'),), (('a', 'b'), ('c',)), (('a', 'c'), ('b',)),
                              (('a',), ('b',), ('c',))}
    assert regrouped((('a',),)) == [(('a',),)]


def test_light_plans_after_a_loss_have_nine_tenths_of_the_throughput_of_plans_from_scratch():
    check_light('MobileNetV2', 'C', 2)


@pytest.mark.slow
@pytest.mark.parametrize('environment', ENVIRONMENTS)
@pytest.mark.parametrize('network', NETWORKS)
def test_light_plans_are_nearly_as_good_in_all_environments(network, environment):
    check_light(network, environment)


def test_no_other_planner_is_faster_on_random_fleets():
    compared = 0
    for seed in range(12):
        with contextlib.suppress(PlanError):
            compared += check(random_costs(seed, 8, 2 + seed % 4, 4 + seed % 5))
    assert compared > 12


def test_networks_have_about_the_operations_and_weights_that_are_known():
    for network, millions in (('MobileNetV2', 2.2), ('ResNet50', 23.7), ('BERT-small', 28.8),
                              ('EfficientNet-B1', 6.0)):
        table = paper_costs(network, 'A', 100).table
        assert sum(table.weight_bytes) / 4e6 == pytest.approx(millions, rel=0.25), network
