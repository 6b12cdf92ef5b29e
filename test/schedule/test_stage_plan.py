# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
import json
import random
import threading

import pytest
from sharing import assert_equal, SOURCE
from small_models import seeded, UNet
import torch

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.graph.reference_evaluation import run_graph
from intradp_ros.runtime.execution.interpreter import Execution
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.pipeline.stage_programs import compile_stages, reordered
from intradp_ros.runtime.transport.mailbox import Mailbox
from intradp_ros.runtime.transport.timeline import Recorder
from intradp_ros.schedule.program import compile_program
from intradp_ros.schedule.schedule import Schedule
from intradp_ros.schedule.stage_lowering import lower_stages
from intradp_ros.schedule.stage_plan import Member, PlanError, Stage, StagePlan, Turn
from intradp_ros.schedule.stage_tasks import stage_tasks
from intradp_ros.schedule.task_graph import TransferTask

DEVICES = ('a', 'b', 'c', 'd')


@pytest.fixture(scope='module')
def model() -> SharedModel:
    return share_module(seeded(UNet, 32, 48), (SOURCE,))


def random_plan(model: SharedModel, rng: random.Random) -> StagePlan:
    count, samples = len(model.split.operators), rng.randint(1, 4)
    borders = sorted(rng.sample(range(1, count), rng.randint(0, 4)))
    stages = []
    for start, stop in zip([0, *borders], [*borders, count]):
        takers = [rng.choice(DEVICES) for _ in range(samples)]
        stages.append(Stage(tuple(range(start, stop)), tuple(
            Member(name, takers.count(name)) for name in dict.fromkeys(takers))))
    return StagePlan(model.digest, rng.choice(DEVICES), samples, tuple(stages))


def run_on_threads(model: SharedModel, schedule: Schedule, source: str,
                   inputs: Mapping[int, torch.Tensor]) -> dict[int, torch.Tensor]:
    """Run every device's program on a thread of its own, transfers by reference."""
    boxes = {name: Mailbox(lambda waited: 'stuck' if waited > 10 else None)
             for name in schedule.programs}
    found: dict[str, dict[int, torch.Tensor]] = {}

    def send(index: int, tensor: torch.Tensor) -> None:
        boxes[schedule.transfers[index].target].deliver(index, tensor.clone())

    def run(name: str) -> None:
        program = compile_program(model.split, schedule, name, model.parameters,
                                  delivers=name == source)
        found[name] = Execution(program, Recorder(name), boxes[name], send).run(
            inputs if name == source else {})

    threads = [threading.Thread(target=run, args=(name,)) for name in schedule.programs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found[source]


@pytest.mark.parametrize('seed', range(12))
def test_every_route_of_a_random_plan_gives_the_unsplit_result(
        model: SharedModel, seed: int) -> None:
    plan = random_plan(model, random.Random(seed))
    plan.check(model.split.graph, DEVICES)
    wanted = run_graph(model.split.graph, (SOURCE,))
    schedules = lower_stages(model.split, plan)
    assert len(schedules) == len(plan.routes())
    for schedule in schedules:
        got = run_on_threads(model, schedule, plan.source, {model.split.graph.inputs[0]: SOURCE})
        assert_equal([got[v] for v in model.split.graph.output_values], wanted)


def test_values_go_straight_to_their_readers_once(model: SharedModel) -> None:
    plan = random_plan(model, random.Random(3))
    for schedule in lower_stages(model.split, plan):
        crossings = [(t.value, t.target) for t in schedule.transfers]
        assert len(crossings) == len(set(crossings))
        assert all(t.source != t.target for t in schedule.transfers)


def test_samples_are_divided_in_order_of_the_members() -> None:
    stage = Stage((0,), (Member('a', 2), Member('b', 1)))
    plan = StagePlan('x', 'a', 3, (stage, Stage((1,), (Member('c', 3),))))
    assert [plan.route(k) for k in range(3)] == [('a', 'c'), ('a', 'c'), ('b', 'c')]
    assert plan.routes() == (('a', 'c'), ('b', 'c'))


def test_plans_survive_json(model: SharedModel) -> None:
    plan = random_plan(model, random.Random(1))
    assert StagePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def nested() -> object:
    found: list[object] = []
    for _ in range(5000):
        found = [found]
    return found


def turn(**changes: object) -> dict[str, object]:
    return {'value': 0, 'source': 'a', 'target': 'b', 'lead': 1.5, **changes}


@pytest.mark.parametrize('order', [None, (), 'leads'])
def test_orders_survive_json_and_rank_what_the_simulator_plays(model: SharedModel, order) -> None:
    plan = random_plan(model, random.Random(3))
    schedules = lower_stages(model.split, plan)
    kinds = sorted({(t.value, t.source, t.target) for s in schedules for t in s.transfers})
    if order == 'leads':
        order = tuple(Turn(*kind, 0.5 + k) for k, kind in enumerate(kinds))
    plan = replace(plan, order=order)
    assert StagePlan.from_json(json.loads(json.dumps(plan.to_json()))) == plan
    seconds = {name: [1e-3] * len(model.split.operators) for name in DEVICES}
    tasks = stage_tasks(model.split, plan, seconds, behind_access_point(
        [Device(name) for name in DEVICES], 1e6), frames=3)
    leads = {(model.split.graph.values[t.value].name, t.source, t.target): t.lead
             for t in order or ()}
    moved = [(t.name, t.source, t.target, t.priority) for t in tasks.graph.tasks
             if isinstance(t, TransferTask) and t.source != t.target]
    assert moved and {p + leads.get((n, s, t), 0.0) for n, s, t, p in moved} <= {0.0, 1.0, 2.0}
    programs = compile_stages(model, plan, plan.source)
    for route in programs.routes:
        for k, t in enumerate(route.schedule.transfers):
            lead = plan.leads.get((t.value, t.source, t.target), 0.0)
            assert route.urgency(7, k) == (0.0 if order is None else 7 - lead)
    again = reordered(model, programs, replace(plan, order=()))
    assert again is not None and again.plan.order == ()
    assert reordered(model, programs, random_plan(model, random.Random(4))) is None


def test_an_order_of_what_does_not_cross_is_refused(model: SharedModel) -> None:
    plan = random_plan(model, random.Random(1))
    with pytest.raises(PlanError, match='which it does not have'):
        lower_stages(model.split, replace(plan, order=(Turn(0, 'a', 'nobody', 1.0),)))


@pytest.mark.parametrize('spoil, message', [
    (lambda d: d.update(format='other'), 'not a plan'), (lambda d: d.update(version=9), 'again'),
    (lambda d: d.update(samples=True), 'whole numbers'), (lambda d: d.pop('source'), 'source'),
    (lambda d: d.update(samples=10 ** 9), '1 to 256 samples'),
    (lambda d: d.update(stages=[]), 'lists of 1 to'), (lambda d: d.update(stages=3), 'lists of'),
    (lambda d: d.pop('order'), 'order'), (lambda d: d.update(order=5), 'lists of 0 to'),
    (lambda d: d.update(order=[turn(lead=float('nan'))]), 'leads in a plan'),
    (lambda d: d.update(order=[turn(lead=1e9)]), 'leads in a plan'),
    (lambda d: d.update(order=[turn(lead=10**400)]), 'leads in a plan'),
    (lambda d: d.update(samples=nested()), 'counts in a plan.*list: maximum'),
    (lambda d: d.update(version=nested()), 'version list: maximum'),
    (lambda d: d.update(order=[turn(lead=True)]), 'leads in a plan'),
    (lambda d: d.update(order=[turn(value=-1)]), 'whole numbers'),
    (lambda d: d.update(order=[turn(), turn(lead=2)]), 'names a transfer twice'),
    (lambda d: d['stages'][0].update(operators=[1, 0]), 'ascending'),
    (lambda d: d['stages'][0].update(operators=[-1]), 'whole numbers'),
    (lambda d: d['stages'][0]['members'][0].update(device='x' * 999), 'texts of 1 to 256'),
    (lambda d: d['stages'][0]['members'].append({'device': 'z', 'samples': 1}), 'must add up')])
def test_malformed_plans_are_refused(model: SharedModel, spoil, message: str) -> None:
    data = json.loads(json.dumps(random_plan(model, random.Random(1)).to_json()))
    spoil(data)
    with pytest.raises(PlanError, match=message):
        StagePlan.from_json(data)


def test_plans_of_another_model_or_fleet_are_refused(model: SharedModel) -> None:
    graph, plan = model.split.graph, random_plan(model, random.Random(1))
    last = plan.stages[-1]
    with pytest.raises(PlanError, match='places each of the'):
        replace(plan, stages=(*plan.stages, last)).check(graph, DEVICES)
    with pytest.raises(PlanError, match='names device'):
        replace(plan, source='nobody').check(graph, DEVICES)
    with pytest.raises(PlanError, match='before .* is there'):
        replace(plan, stages=plan.stages[::-1]).check(graph, DEVICES)
