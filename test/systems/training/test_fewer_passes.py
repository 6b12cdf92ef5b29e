# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Who trains the whole network takes a round in few, large passes, as quick as a plain loop's."""
from __future__ import annotations

from itertools import product
import math
from typing import Any

from fleets import cell
from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import torch
from training_fleet import difference, layer_table, make_task, sgd, shuffled, train
from training_models import plain_loop

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import Topology
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.round_trial import Trial
from intradp_ros.systems.training.layers.stage_interpreter import (
    ByGrain,
    Pass,
    run_pass,
    StageInterpreter,
)
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.replanning import costs_of, replanner
from intradp_ros.systems.training.plan.round_tasks import validation_tasks
from intradp_ros.systems.training.plan.training_plan import TrainingPlan

#: Bytes that a layer keeps of a sample, and a process's in these plans.
KEPT = 1e8
TRIAL = Trial(0, (), (), ())


def free(**changes: Any) -> TrainingTask:
    """Return a task that leaves grains and micro-batches to us: 3 grains of 8 samples."""
    return make_task('transformer', sgd, **{'batch': 24, 'grain': 0, 'micro_batches': 0,
                                            **changes})


GRAPHS = {model: capture(make_task(model)) for model in ('small', 'typed', 'dropout')}
FREE, GRAPH = capture(free()), GRAPHS['small']


def planned(task: TrainingTask, pass_seconds: float = 1e-3, memory: float = math.inf,
            kept: float = 1e3) -> TrainingPlan:
    made = layer_table(FREE, 'a', pass_seconds, kept)
    found = replanner(task, made, Topology((Device('a', memory_bytes=memory),), (), {}))(
        ('a',), None)
    assert found is not None
    return found


def test_a_round_is_one_pass_where_that_is_no_slower_fits_and_was_left_to_us() -> None:
    task = free()
    assert (task.grain, task.micro_batches) == (8, 3)
    assert planned(task).micro_batches == planned(task, 0.0).micro_batches == 1
    assert planned(free(micro_batches=3)).micro_batches == 3, 'as it is told'
    assert planned(task, -1e-3).micro_batches == 2, 'by 5 % slower is by chance, by 10 not'
    most = [4e8 + samples * len(FREE.layers) * KEPT * 1.05 for samples in (8, 16, 24)]
    assert [planned(task, memory=memory, kept=KEPT).micro_batches for memory in most] == [3, 2, 1]
    assert planned(task, kept=KEPT).micro_batches == 3, 'who knows what memory there is'


def test_the_result_is_a_plain_loops_though_passes_become_fewer_after_a_loss() -> None:
    task = free(rounds=8)
    graph, planner = FREE, replanner(task, layer_table(FREE, 'ab'), cell(8000.0, 'ab'))

    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        return shuffled(1, len(graph.layers), task)(devices, before) if len(devices) > 1 else \
            planner(devices, before)
    trainer, state = train(task, 'ab', plan, {'b': (4, 'B1')}, graph=graph)
    commit = trainer.commit
    assert commit.plan is not None and commit.plan.micro_batches == 1
    assert len(commit.recoveries) == 1
    alone = plain_loop(free(rounds=8))
    assert difference(state, alone) < 1e-10
    assert [commit.figures[k]['loss'] for k in range(8)] == pytest.approx(alone.loss, rel=1e-9)


def test_generated_code_computes_what_the_interpreter_does() -> None:
    """With norms, dropout, draws in attention and integers, in training and in eval mode."""
    for model, evaluating in product(('typed', 'dropout'), (False, True)):
        task, graph = make_task(model), GRAPHS[model]
        stage, rows, found = graph.stage(0, len(graph.layers)), [3, 3, 2], []
        for run in (lambda one, x: StageInterpreter(stage, one).run(x),  # noqa: B023
                    lambda one, x: run_pass(stage, [x], one)):  # noqa: B023
            one = Pass(5, 2, range(4, 7), rows, evaluating=evaluating)
            outputs, = run(one, task.data.take(range(8))[0][0])
            stage.zero_grad()
            outputs.sum().backward()
            found.append([outputs, *(p.grad for p in stage.parameters()),
                          *(t for of_grain in one.statistics.values()
                            for t in of_grain.values())])
        assert len(found[0]) == len(found[1]) and all(map(torch.equal, *found))


def test_a_pass_of_the_same_stage_within_another_changes_nothing(
        monkeypatch: pytest.MonkeyPatch) -> None:
    """As where two threads run it."""
    task, graph, bernoulli = make_task('dropout'), GRAPHS['dropout'], ByGrain._bernoulli
    stage, x = graph.stage(0, len(graph.layers)), task.data.take(range(6))[0][0]
    ones = [Pass(5, number, (number, 3), [2, 4]) for number in (1, 2)]
    wanted, inner = [run_pass(stage, [x], one)[0] for one in ones], list[torch.Tensor]()

    def within(self: ByGrain, *args: Any) -> torch.Tensor:
        if not inner:
            inner.append(x)
            inner.append(run_pass(stage, [x], ones[1])[0])
        return bernoulli(self, *args)
    monkeypatch.setattr(ByGrain, '_bernoulli', within)
    assert torch.equal(run_pass(stage, [x], ones[0])[0], wanted[0])
    assert torch.equal(inner[1], wanted[1]) and not torch.equal(*wanted)


def test_an_error_of_a_pass_names_the_operator() -> None:
    graph = GRAPHS['typed']
    with pytest.raises(IndexError, match='While executing .*embedding'):
        run_pass(graph.stage(0, len(graph.layers)), [torch.full((4, 5), 99)],
                 Pass(0, 0, (0,), (4,)))


@settings(deadline=None, max_examples=25)
@given(st.integers(1, 50), st.integers(0, 99))
def test_a_validation_is_priced_as_workers_deal_it(samples: int, seed: int) -> None:
    """All samples once on each stage, each where the plan deals its row of a round."""
    task, names = make_task('small'), 'abc'
    assert task.batch == 24
    made = layer_table(GRAPH, names)
    prepared = Prepared('', task, GRAPH, made, cell(8000.0, names), {}, None)  # type: ignore[arg-type]
    plan = shuffled(seed, len(GRAPH.layers), task)(tuple(names), None)
    assert plan is not None
    stages = prepared.stages(plan)
    played = simulate(validation_tasks(prepared.costs_of(plan), stages, samples, 0.0),
                      prepared.topology)
    for k, stage in enumerate(plan.stages):
        for name in stage.devices:
            passes = [sum(part * task.batch + row < samples
                          for grain in plan.dealt(k, number)[name]
                          for row in task.grain_rows(grain))
                      for part in range(-(-samples // task.batch))
                      for number in range(plan.micro_batches)]
            layers = stage.last - stage.first
            assert played.busy[name] == pytest.approx(layers * sum(  # in whole grains
                1e-3 + 1e-3 * task.grain * math.ceil(count / task.grain)
                for count in passes if count))


def test_a_validation_of_one_device_takes_its_forward_passes() -> None:
    graph, check = FREE, free().data
    task = free(rounds=9, check=check, validate_every=4)
    assert task.validations == 3, 'after 4, 8 and the last'
    prepared = Prepared('', task, graph, layer_table(graph, 'a'), Topology(
        (Device('a'),), (), {}), {}, TRIAL)
    plan = replanner(task, prepared.table, prepared.topology)(('a',), None)
    assert plan is not None
    passes, samples = 4, 96
    assert len(check) == 90 and (task.batch, task.grain) == (24, 8), 'grains are priced whole'
    assert prepared.validation_seconds(plan) == pytest.approx(
        len(graph.layers) * (1e-3 * passes + 1e-3 * samples))
    assert costs_of(task, prepared.table, prepared.topology).merges
