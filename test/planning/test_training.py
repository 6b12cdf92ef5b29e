# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Training rounds: order, memory and gradients, and plans for them against other planners."""
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from random_fleets import random_case, random_model, random_topology

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.planning.baselines import fastest
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.estimate import estimate
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.planning.quality import Quality
from intradp_ros.planning.training import stage_numbers, Training, warm_up, with_backward
from intradp_ros.planning.training_tasks import training_tasks
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.schedule.stage_plan import PlanError
from intradp_ros.schedule.task_graph import ComputeTask, TransferTask
from intradp_ros.systems.fleet.contention_free import baselines
from intradp_ros.systems.fleet.partitioner import reference_scale
from intradp_ros.systems.fleet.planner import judge, plan_fleet, stage_plan


def chain(nodes, batches, samples=1, devices=3, rate=1e12, states=2.0):
    parts = tuple(Node(f'n{k}', 1.0, 1e6, 0.0, backward_seconds=2.0, kept_bytes=1e5)
                  for k in range(nodes))
    flows = [Flow(SOURCE, (0,), 8.0)]
    flows += [Flow(k, (k + 1 if k + 1 < nodes else SOURCE,), 1e3) for k in range(nodes)]
    machines = [Device(f'd{k}') for k in range(devices)]
    return FleetCosts(PlanningModel('chain', parts, tuple(flows)),
                      behind_access_point(machines, rate), 'd0', samples=samples,
                      batches=batches, training=Training(states))


def order_of(tasks, device):
    """Return what a device does in turn: F and B."""
    return ''.join('B' if task.name.endswith('back') else 'F' for task in tasks.graph.tasks
                   if isinstance(task, ComputeTask) and task.device == device)


def test_each_stage_warms_up_and_then_goes_forward_and_back_in_turn():
    costs = chain(3, 6)
    tasks = training_tasks(costs, [0, 1, 2])
    for device, most in (('d0', 5), ('d1', 3), ('d2', 1)):
        order = order_of(tasks, device)
        assert Counter(order) == {'F': 6, 'B': 6}
        ahead = np.cumsum([1 if step == 'F' else -1 for step in order])
        assert ahead.max() <= most and ahead[-1] == 0
    assert order_of(tasks, 'd2') == 'FB' * 6


def test_a_round_of_equal_stages_takes_what_a_pipeline_takes():
    played = simulate(training_tasks(chain(3, 6), [0, 1, 2]).graph, chain(3, 6).topology)
    assert played.makespan == pytest.approx((6 + 3 - 1) * 3.0, rel=1e-3)


def test_memory_is_that_of_weights_optimizer_and_activations_under_way():
    costs = chain(3, 6)
    tasks = training_tasks(costs, [0, 1, 2])
    peak = simulate(tasks.graph, costs.topology).peak_memory
    said = dict(zip(costs.topology.names, estimate(costs, [[0, 1, 2]]).memory[0]))
    assert said == pytest.approx({'d0': 4e6 + 5e5, 'd1': 4e6 + 3e5, 'd2': 4e6 + 1e5})
    assert all(peak[name] <= said[name] + 1 for name in said)


def test_replicas_sum_their_gradients_and_single_devices_do_not():
    costs = chain(2, 2, samples=2, devices=2)
    together = next(k for k, shares in enumerate(costs.groups) if list(shares) == [1, 1])

    def sums(placement):
        return [task for task in training_tasks(costs, placement).graph.tasks
                if isinstance(task, TransferTask) and task.name.startswith('gradients')]

    both = sums([together, together])
    assert [task.nbytes for task in both] == [2e6, 2e6]  # 2 (n-1)/n of the weights each
    assert {(task.source, task.target) for task in both} == {('d0', 'd1'), ('d1', 'd0')}
    assert len(sums([0, together])) == 2 and sums([0, together])[0].nbytes == 1e6
    assert not sums([0, 1])


@pytest.mark.parametrize('seed', range(8))
def test_values_that_cross_have_gradients_that_cross_back(seed):
    rng = np.random.default_rng(seed)
    costs = random_case(rng, 7, 3, int(rng.integers(1, 3)))
    costs = replace(costs, model=with_backward(costs.model), batches=3, training=Training())
    placement = rng.integers(len(costs.groups), size=7).tolist()
    tasks = training_tasks(costs, placement).graph.tasks
    there, back = Counter(), Counter()
    for task in tasks:
        if isinstance(task, TransferTask) and task.nbytes:
            word, _, number = task.name.partition(' ')
            if word == 'value' and costs.model.flows[int(number)].maker != SOURCE:
                there[number, task.source, task.target] += task.nbytes
            elif word == 'gradient':
                back[number, task.target, task.source] += task.nbytes
    assert there == back
    played = simulate(training_tasks(costs, placement).graph, costs.topology)
    work = sum(task.seconds for task in tasks if isinstance(task, ComputeTask))
    assert sum(played.busy.values()) == pytest.approx(work)
    assert work == pytest.approx(3 * float(sum(
        costs.seconds[k, g].sum() for k, g in enumerate(placement))))


@pytest.mark.parametrize('seed', range(4))
def test_ours_is_never_slower_than_what_others_plan(seed):
    rng = np.random.default_rng(seed)
    model = with_backward(random_model(rng, 8, chain=bool(seed % 2)))
    costs = FleetCosts(model, random_topology(rng, 3), 'd0', Quality(), 1 + seed % 2, 4,
                       training=Training())
    plans, scale = plan_fleet(costs, compare=True), reference_scale(costs)
    for name, placement in baselines(fastest(costs), 10).items():
        if placement is not None:
            theirs = judge(costs, scale, name, placement.tolist())
            assert plans.best.score <= theirs.score * (1 + 1e-9), name
    assert plans.best.latency >= plans.best.bound * (1 - 1e-9)


def test_warm_ups_and_stages_follow_their_rules():
    assert [warm_up(p, 3, 10) for p in range(3)] == [5, 3, 1]
    assert warm_up(0, 3, 2) == 2
    assert stage_numbers([4, 4, 1, 1, 4]) == [0, 0, 1, 1, 2]


def test_merged_nodes_keep_their_way_back_and_plans_of_training_are_not_run():
    costs = chain(6, 2)
    merged = coarsen(costs.model, 0.4)
    assert len(merged.nodes) < 6
    for name in ('backward_seconds', 'kept_bytes'):
        assert sum(getattr(n, name) for n in merged.nodes) == pytest.approx(
            sum(getattr(n, name) for n in costs.model.nodes))
    with pytest.raises(PlanError, match='training'):
        stage_plan(costs, [0] * 6)


def test_wrong_figures_are_told():
    with pytest.raises(ValueError, match='0 numbers of a weight or more'):
        Training(-1.0)
    with pytest.raises(ValueError, match='above 0'):
        with_backward(chain(2, 1).model, 0.0)
