# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever the plan, and whoever leaves: weights, losses and norms are those of one process."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

import pytest
import torch
from training_fleet import adam, difference, fixed, make_task, sgd, shuffled, train
from training_models import bound_of, train_alone_drawing

from intradp_lab.training.least_times import measured_hop
from intradp_lab.training.one_process import OneProcess
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.plan.training_plan import TrainingPlan, TrainingStage
from intradp_ros.systems.training.run import layer_traffic
from intradp_ros.systems.training.run.layer_traffic import LayerTraffic
from intradp_ros.systems.training.service.round_commit import RoundCommit

DEVICES = ('a', 'b', 'c', 'd')
MODELS = ('cnn', 'mobilenet', 'transformer', 'dropout', 'typed')


@cache
def prepared(model: str, optimiser: Any) -> tuple[TrainingTask, Any, OneProcess]:
    task = make_task(model, optimiser, **({'rounds': 4} if model == 'mobilenet' else {}))
    return task, capture(task), train_alone_drawing(task)


def check(case, devices, bound=1e-10, planner=None, **options) -> RoundCommit:
    task, graph, alone = case
    trainer, state = train(task, devices, planner or fixed(len(graph.layers), task), graph=graph,
                           **options)
    assert difference(state, alone) < bound
    same_curves(trainer.commit, task, alone, bound)
    return trainer.commit


def same_curves(commit: RoundCommit, task: TrainingTask, alone: OneProcess, bound: float) -> None:
    """Each round trained every sample once, with the loss and the norm of one process."""
    assert sorted(commit.figures) == list(range(task.rounds))
    for number in range(task.rounds):
        figures: Mapping[str, float] = commit.figures[number]
        assert figures['samples'] == task.batch
        assert figures['loss'] == pytest.approx(alone.loss[number], rel=bound)
        assert figures['norm'] == pytest.approx(alone.norm[number], rel=10 * bound)


@pytest.mark.parametrize('model, optimiser, count', [
    ('cnn', adam, 1), ('cnn', sgd, 4), ('transformer', sgd, 2), ('dropout', adam, 4),
    ('mobilenet', sgd, 3), ('typed', sgd, 4)])
def test_rounds_are_those_of_one_process(model, optimiser, count):
    check(prepared(model, optimiser), DEVICES[:count])


@pytest.mark.slow
@pytest.mark.parametrize('count', [1, 2, 3, 4])
@pytest.mark.parametrize('optimiser', [sgd, adam])
@pytest.mark.parametrize('model', MODELS)
def test_all_rounds_are_those_of_one_process(model, optimiser, count):
    task = make_task(model, optimiser)
    case = task, capture(task), train_alone_drawing(task)
    # Adam divides gradients of pure rounding by their size: MobileNetV2 has some.
    bound = bound_of(task, case[2]) if (model, optimiser) == ('mobilenet', adam) else 0.0
    check(case, DEVICES[:count], max(1e-10, bound),
          shuffled(count, len(case[1].layers), task))


@pytest.fixture
def copies_in_time(monkeypatch):
    """Have rounds wait for a copy that has begun: how long one takes is the machine's matter."""
    begin = LayerTraffic.copy

    def copy(traffic: LayerTraffic, tag: int, best: int) -> None:
        begin(traffic, tag, best)
        traffic.join()
    monkeypatch.setattr(LayerTraffic, 'copy', copy)


def test_losses_of_devices_change_nothing(copies_in_time):
    commit = check(prepared('cnn', sgd), DEVICES,
                   faults={'b': (7, 'B1'), 'd': (11, 'F2'), 'a': (15, 'S')})
    assert [recovery.lost for recovery in commit.recoveries] == [('b',), ('d',), ('a',)]
    assert all(recovery.reached - recovery.tag <= 2 * 3 for recovery in commit.recoveries)


def test_a_copy_of_what_one_device_trains_alone_is_on_an_idle_one(monkeypatch, copies_in_time):
    monkeypatch.setattr(layer_traffic, 'PIECE', 1000)
    task, graph, alone = prepared('cnn', adam)

    def planner(devices, before):
        return TrainingPlan((TrainingStage(0, len(graph.layers), ((devices[0], -(
            -task.grains // task.micro_batches)),)),), task.grains, task.micro_batches,
            keepers=devices[1:2])
    commit = check((task, graph, alone), 'abc', faults={'a': (11, 'B1'), 'b': (17, 'F0')},
                   planner=planner)
    assert [recovery.lost for recovery in commit.recoveries] == [('a',), ('b',)]
    assert all(recovery.reached - recovery.tag <= 2 * 3 for recovery in commit.recoveries)
    _, keeps = train(task, 'ab', planner, {'b': (11, 'S')}, graph=graph)
    assert difference(keeps, alone) < 1e-10, 'a copy that is lost changes nothing'


@pytest.mark.parametrize('faults', [{'b': (9, 'U')}, {'b': (5, 'F0'), 'c': (13, 'B2')}])
def test_losses_change_nothing_with_adam_and_dropout(faults):
    assert len(check(prepared('dropout', adam), DEVICES, faults=faults).recoveries) == len(faults)


@pytest.mark.parametrize('model', ['cnn', 'transformer'])
def test_float32_with_sgd_is_within_1e_6(model):
    task = make_task(model, sgd, torch.float32)
    check((task, capture(task), train_alone_drawing(task)), DEVICES, 1e-6)


@pytest.mark.slow
@pytest.mark.parametrize('model', ['cnn', 'transformer'])
def test_float32_with_adam_is_as_near_as_another_order_of_sums(model):
    task = make_task(model, adam, torch.float32)
    graph, alone = capture(task), train_alone_drawing(task)
    _, state = train(task, DEVICES, fixed(len(graph.layers), task), graph=graph)
    assert difference(state, alone) <= bound_of(task, alone)


def test_a_hop_takes_time():
    assert 0 < measured_hop(3) < 5
