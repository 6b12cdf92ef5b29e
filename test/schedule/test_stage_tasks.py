# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Tasks of plans against closed forms, the judge of pairs, and counts of what is alive."""
from __future__ import annotations

import random

import numpy as np
import pytest
from sharing import SOURCE
from small_models import seeded, UNet
from synthetic import random_split_graph

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Medium, Topology
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.event_simulator import Chunks, FAIR, simulate
from intradp_ros.schedule.schedule import ROBOT, Schedule, SERVER
from intradp_ros.schedule.stage_lowering import lower_stages
from intradp_ros.schedule.stage_plan import Member, PlanError, Stage, StagePlan
from intradp_ros.schedule.stage_tasks import stage_tasks, whole_seconds
from intradp_ros.schedule.task_graph import ComputeTask, TransferTask
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.judge.simulator import simulate as judge


def random_plan(split: SplitGraph, names: tuple[str, ...], rng: random.Random,
                samples: int) -> StagePlan:
    count = len(split.operators)
    borders = sorted(rng.sample(range(1, count), rng.randint(0, min(4, count - 1))))
    stages = []
    for start, stop in zip([0, *borders], [*borders, count]):
        takers = [rng.choice(names) for _ in range(samples)]
        stages.append(Stage(tuple(range(start, stop)), tuple(
            Member(name, takers.count(name)) for name in dict.fromkeys(takers))))
    return StagePlan('d', names[0], samples, tuple(stages))


def chain_plan(split: SplitGraph, names: tuple[str, ...]) -> StagePlan:
    edges = [len(split.operators) * k // len(names) for k in range(len(names) + 1)]
    return StagePlan('d', names[0], 1, tuple(
        Stage(tuple(range(a, b)), (Member(name, 1),))
        for name, a, b in zip(names, edges, edges[1:])))


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 32, 48), (SOURCE,))


@pytest.mark.parametrize('seed', range(40))
def test_one_frame_takes_what_the_judge_of_pairs_says(seed: int) -> None:
    rng, costs = random.Random(seed), np.random.default_rng(seed)
    split = random_split_graph(seed, rng.randint(2, 12))
    cost = CostModel(split, {side: tuple(np.r_[0.0, np.sort(costs.random(op.rows))] * 1e-3
                                         for op in split.operators) for side in (ROBOT, SERVER)})
    link = LinkModel(rng.uniform(1e4, 1e6), rng.uniform(1e4, 1e6), 1e-4)
    topology = Topology((Device(ROBOT), Device(SERVER)), (
        Medium('up', link.up, link.delay), Medium('down', link.down, link.delay)),
        {(ROBOT, SERVER): ('up',), (SERVER, ROBOT): ('down',)})
    plan = random_plan(split, (ROBOT, SERVER), rng, 1)
    schedule = lower_stages(split, plan)[0]
    both = Schedule(schedule.transfers, {ROBOT: (), SERVER: (), **schedule.programs})
    wanted = judge(both, cost, link)
    made = stage_tasks(split, plan, whole_seconds(cost), topology)
    found = simulate(made.graph, topology, Chunks())
    assert made.latencies(found)[0] == pytest.approx(wanted.latency, rel=1e-12)
    assert found.busy == pytest.approx(wanted.busy)
    assert found.carried['up'] == wanted.bytes_up


def test_frames_follow_each_other_at_the_pace_of_the_slowest_stage(model: SharedModel) -> None:
    split, names = model.split, ('a', 'b', 'c')
    topology = behind_access_point([Device(n) for n in names], 1e12)
    plan = chain_plan(split, names)
    seconds = {name: [pace] * len(split.operators) for name, pace in zip(names, (1, 3, 2))}
    slowest = max(3.0 * len(plan.stages[1].operators), 2.0 * len(plan.stages[2].operators))
    made = stage_tasks(split, plan, seconds, topology, frames=10)
    found = simulate(made.graph, topology)
    total = sum(len(s.operators) * pace for s, pace in zip(plan.stages, (1, 3, 2)))
    assert found.makespan == pytest.approx(total + 9 * slowest, rel=1e-6)
    first, last = (found.finish[made.ends[k]] for k in (0, -1))
    assert last - first == pytest.approx(9 * slowest, rel=1e-6)


def test_frames_in_flight_are_bounded(model: SharedModel) -> None:
    split, names = model.split, ('a', 'b', 'c')
    topology = behind_access_point([Device(n) for n in names], 1e6)
    seconds = {name: [0.1] * len(split.operators) for name in names}
    plan = chain_plan(split, names)
    alone = stage_tasks(split, plan, seconds, topology)
    one = simulate(alone.graph, topology).makespan
    for most in (1, 2):
        made = stage_tasks(split, plan, seconds, topology, frames=6, inflight=most)
        found = simulate(made.graph, topology)
        begins = found.start[list(made.arrivals)]
        ends = found.finish[list(made.ends)]
        assert (begins[most:] >= ends[:-most]).all()
        if most == 1:
            assert found.makespan == pytest.approx(6 * one)


def test_a_frame_is_due_every_interval(model: SharedModel) -> None:
    split = model.split
    topology = behind_access_point([Device('a'), Device('b')], 1e6)
    made = stage_tasks(split, chain_plan(split, ('a', 'b')),
                       {n: [0.01] * len(split.operators) for n in 'ab'}, topology, 5, 10.0)
    found = simulate(made.graph, topology)
    assert found.start[list(made.arrivals)].tolist() == [0.0, 10.0, 20.0, 30.0, 40.0]
    assert len({round(s, 9) for s in made.latencies(found)}) == 1


@pytest.mark.parametrize('seed', range(20))
def test_random_plans_run_to_their_ends_within_bounds(model: SharedModel, seed: int) -> None:
    rng, names = random.Random(seed), tuple('abcd')
    split, count = model.split, len(model.split.operators)
    topology = behind_access_point([Device(n) for n in names], 1e5, 1e-3, wired='d')
    seconds = {n: [rng.uniform(0, 0.01) for _ in range(count)] for n in names}
    plan = random_plan(split, names, rng, rng.randint(1, 4))
    made = stage_tasks(split, plan, seconds, topology, frames=12)
    for discipline in (FAIR, Chunks(3000)):
        found = simulate(made.graph, topology, discipline)
        assert found.makespan >= max(*found.busy.values(), *found.in_use.values()) - 1e-9
        assert found.makespan <= sum(found.busy.values()) + sum(found.in_use.values()) \
            + 2e-3 * len(made.graph.tasks)
    work = sum(t.seconds for t in made.graph.tasks if isinstance(t, ComputeTask))
    routes = [plan.route(k % plan.samples) for k in range(12)]
    assert work == pytest.approx(sum(
        seconds[name][op] for route in routes
        for name, stage in zip(route, plan.stages) for op in stage.operators))
    moved = sum(t.nbytes for t in made.graph.tasks if isinstance(t, TransferTask))
    assert moved == sum(split.nbytes(t.value, t.region.rows) for k in range(12)
                        for t in lower_stages(split, plan)[
                            plan.routes().index(plan.route(k % plan.samples))].transfers)


def test_memory_is_parameters_and_what_is_alive(model: SharedModel) -> None:
    split = model.split
    graph, count = split.graph, len(split.operators)
    topology = Topology((Device('a'),), (), {})
    plan = chain_plan(split, ('a',))
    made = stage_tasks(split, plan, {'a': [1.0] * count}, topology)
    weights = sum(t.nbytes for name, t in graph.parameters.items()
                  if any(name in op.parameters for op in graph.operators))
    size = [value.nbytes for value in graph.values]
    last = {v: place for place, op in enumerate(graph.operators) for v in op.inputs}
    last |= dict.fromkeys(graph.output_values, count)
    alive, most = set(), 0
    for place, op in enumerate(graph.operators):
        alive |= {v for v in op.outputs if v is not None}
        most = max(most, sum(size[v] for v in alive))
        alive = {v for v in alive if last.get(v, place) > place}
    wanted = weights + sum(size[v] for v in graph.inputs) + most
    assert simulate(made.graph, topology).peak_memory['a'] == wanted


def test_plans_without_costs_are_refused(model: SharedModel) -> None:
    topology = Topology((Device('a'),), (), {})
    with pytest.raises(PlanError, match="0 operators for device 'a'"):
        stage_tasks(model.split, chain_plan(model.split, ('a',)), {}, topology)
