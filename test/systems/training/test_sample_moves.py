# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Data that lie on several devices: each reads its own, and the result is that of one process."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from training_fleet import (
    adam,
    cross_entropy,
    difference,
    fixed,
    make_task,
    sgd,
    shuffled,
    small_sgd,
    train,
)
from training_models import train_alone_drawing

from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.systems.training.base.items import ItemsHere
from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.plan.replanning import data_of, replanner
from intradp_ros.systems.training.plan.sample_moves import homes_of, sample_moves
from intradp_ros.systems.training.plan.stage_actions import device_actions
from intradp_ros.systems.training.plan.training_plan import (
    DataGoneError,
    parse_plan,
    TrainingPlan,
    TrainingStage,
)
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit


@dataclass
class Here:
    """Samples from `first` on, so many; `read` are those that were asked for."""

    whole: Any
    first: int
    count: int
    read: list[int]

    def __len__(self) -> int:
        return len(self.whole)

    def take(self, samples: Sequence[int]) -> Any:
        assert all(self.first <= k < self.first + self.count for k in samples), 'lies elsewhere'
        self.read += samples
        return self.whole.take(samples)

    def examples(self, count: int) -> Any:
        inputs, targets = self.whole.take([0] * count)
        return tuple(torch.zeros_like(x) for x in inputs), torch.zeros_like(targets)


def placed(planner, data):
    def plan(devices, before):
        return replace(planner(devices, before), data=data)
    return plan


def tasks_of(task, plan_data, names):
    """Return each device's task, which has only the samples that lie there."""
    found, first = {}, 0
    for name, count in plan_data:
        found[name] = replace(task, data=Here(task.data, first, count, []))
        first += count
    return {name: found.get(name) or replace(task, data=Here(task.data, 0, 0, []))
            for name in names}


@pytest.mark.parametrize(('seed', 'model', 'optimiser', 'faults'), [
    (1, 'small', adam, {}), (2, 'typed', sgd, {}), (3, 'small', sgd, {}), (5, 'typed', adam, {}),
    (4, 'small', adam, {'b': (4, 'F0')}), (6, 'small', sgd, {'b': (5, 'I')})])
def test_the_result_is_that_of_one_process_wherever_the_data_lie(seed, model, optimiser, faults):
    """Device b has none and may be killed; d only sends where its plan has no stage for it."""
    task = make_task(model, optimiser, batch=20, grain=4, micro_batches=3, rounds=8)
    graph, count = capture(task), len(task.data)
    data = (('d', count // 3), ('a', count // 2 - count // 3), ('c', count - count // 2))
    stages = shuffled(seed, len(graph.layers), task)

    def planner(devices, before):  # d has no stage in every second case
        return stages(tuple(n for n in devices if n != 'd' or seed % 2), before)

    own = tasks_of(task, data, 'abcd')
    trainer, state = train(task, 'abcd', placed(planner, data), faults, graph=graph, tasks=own)
    alone = train_alone_drawing(task)
    assert difference(state, alone) < 1e-10
    figures = trainer.commit.figures
    assert all(figures[k]['samples'] == task.batch for k in range(task.rounds))
    assert all(abs(figures[k]['loss'] / alone.loss[k] - 1) < 1e-10 for k in figures)
    read = sorted(k for one in own.values() for k in one.data.read)
    assert read and (faults or len(read) == task.rounds * task.batch)  # each once a round


def test_samples_go_from_where_they_lie():
    plan = TrainingPlan((TrainingStage(0, 3, (('a', 1), ('b', 2))),), 6, 2,
                        data=(('c', 10), ('a', 30)))
    assert plan.participants == ('a', 'b', 'c') and parse_plan(plan.to_json()) == plan
    assert homes_of(plan, [0, 9, 10, 39]) == ['c', 'c', 'a', 'a']
    found = sample_moves(plan, 'b', [12, 3, 4, 30])
    assert [(m.source, m.rows, m.samples) for m in found] == [
        ('c', (1, 2), (3, 4)), ('a', (0, 3), (12, 30))]
    assert ' '.join(map(str, device_actions(plan, 'c'))) == 'I S U'
    assert ' '.join(map(str, device_actions(plan, 'a'))) == 'I F0 B0 F1 B1 S U'
    assert parse_plan(plan.to_json() | {'data': [['c', 1 << 30]]}).data == (('c', 1 << 30),)
    with pytest.raises(PlanError, match='not a number from 0 to'):
        parse_plan(plan.to_json() | {'data': [['c', 1 << 41]]})
    for data in ([['c', 0]], [['c', 5], ['c', 5]]):
        with pytest.raises(PlanError, match='each once'):
            parse_plan(plan.to_json() | {'data': data})


def test_shares_become_counts_and_who_left_takes_its_data_along():
    assert data_of({'a': 0.6, 'b': 0.0, 'c': 0.4}, 11) == (('a', 7), ('c', 4))
    plan = replanner(None, None, _Names(), images={'a': 0.75, 'b': 0.25})
    with pytest.raises(PlanError, match='a left, and with it 75% of the data'):
        plan(('b', 'c'), None)


def test_a_fleet_waits_for_who_has_the_data():
    """A training that is on this machine alone ends: nobody comes back to it."""
    plan = TrainingPlan((TrainingStage(0, 1, (('a', 1),)),), 1, 1, data=(('b', 9),))

    def planner(devices, before):
        if 'b' not in devices:
            raise DataGoneError('b left')
        return plan

    for waits, phase in ((True, Phase.PAUSED), (False, Phase.FAILED)):
        commit = RoundCommit(9, (1.0,), planner, 5.0, waits=waits)
        for name in 'ab':
            commit.joined(name, 0.0)
        commit.resume(0.0)
        idle = {'report': 'idle', 'plan': commit.number, 'round': 0, 'error': 'b: gone',
                'peer': 'b', 'cut': [], 'held': {}}
        commit.lost('b', 1.0)
        commit.reported('a', idle, 1.5)
        assert commit.phase is phase
        if waits:
            assert commit.joined('b', 2.0) and commit.phase is Phase.TRAINING
        else:
            assert commit.why == 'b left'


class _Names:
    names = ('a', 'b', 'c')


class Padded(Here):
    """Targets are as long as those of the samples that are taken with them need."""

    def take(self, samples: Sequence[int]) -> Any:
        inputs, targets = super().take(samples)
        longest = 1 + max(samples) % 3
        return inputs, torch.stack([targets, *[torch.full_like(targets, -1)] * longest], 1)


def first_column(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return cross_entropy(outputs, targets[:, 0])


@pytest.mark.parametrize('names', ['ab', 'abcd'])
def test_samples_are_read_by_the_first_stage_alone(names):
    task = small_sgd()
    graph, alone = capture(task), train_alone_drawing(task)
    data = {name: Here(task.data, 0, len(task.data), []) for name in names}
    tasks = {name: replace(task, data=data[name]) for name in names}
    _, state = train(task, names, fixed(len(graph.layers), task), graph=graph, tasks=tasks)
    assert difference(state, alone) < 1e-10
    first = names[:len(names) // 2]
    assert sum(len(data[name].read) for name in first) == task.rounds * task.batch
    assert not any(data[name].read for name in names if name not in first)


def test_targets_may_be_of_other_lengths_in_each_pass():
    plain = small_sgd()
    task = replace(plain, data=Padded(plain.data, 0, len(plain.data), []), loss=first_column)
    graph = capture(task)
    _, state = train(task, 'ab', fixed(len(graph.layers), task), graph=graph)
    assert difference(state, train_alone_drawing(plain)) < 1e-10


def test_only_items_that_lie_here_are_read():
    items = [(torch.full((2,), float(k)), k) for k in range(5)]
    data = ItemsHere(items, 10, 30)
    inputs, targets = data.take([12, 10])
    assert len(data) == 30 and inputs[0][:, 0].tolist() == [2, 0] and targets.tolist() == [2, 0]
    assert data.examples(7)[0][0].shape == (7, 2)
    with pytest.raises(TaskError, match='sample 15 of 30 does not lie here, where those from 10'):
        data.take([14, 15])
    with pytest.raises(TaskError, match='does not lie here'):
        ItemsHere(items[:1], 0, 30, count=0).take([0])
