# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Validation between rounds: figures, best weights and early ends are those of one process."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
import json
from pathlib import Path
from typing import Any

from fleets import cell
import pytest
from safetensors.torch import load_file
import torch
from torch import nn
from training_fleet import adam, difference, make_task, shuffled, Threads, train
from training_models import train_alone_drawing

from intradp_lab.training.one_process import OneProcess
from intradp_ros.runtime.models.weight_file import module_state
from intradp_ros.systems.training.base.task import TaskError, TensorData, TrainingTask
from intradp_ros.systems.training.layers.checkpoint import best_of, read_checkpoint
from intradp_ros.systems.training.layers.judgement import best_weights, BestSoFar, judge
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.task_trial import try_task
from intradp_ros.systems.training.plan.prepared import prepare, Prepared
from intradp_ros.systems.training.service.round_commit import RoundCommit
from intradp_ros.systems.training.service.training_job import JobOptions, TrainingJob

TASK = f'{Path(__file__).parents[2]}/training_fleet.py:small_sgd'


@pytest.fixture(scope='module')
def prepared() -> Prepared:
    return replace(prepare(TASK, cell(8000.0, 'ab')), task=held_out(), graph=capture(held_out()))


def held_out(samples: int = 31, **changes: Any) -> TrainingTask:
    """Return a task with batch norm, dropout and samples to check, more than a round's."""
    task = make_task('small', adam, rounds=20)
    torch.manual_seed(5)
    check = TensorData((torch.randn(samples, 1, 8, 8, dtype=torch.float64),),
                       torch.randint(0, 10, (samples,)))
    return replace(task, check=check, **{'validate_every': 3, 'best_by': 'accuracy', **changes})


def check_validations(commit: RoundCommit, alone: OneProcess) -> None:
    found: Mapping[int, Any] = {k + 1: one['validation'] for k, one in commit.figures.items()
                                if one['validation']}
    assert sorted(found) == sorted(alone.check)
    for number, (loss, accuracy) in alone.check.items():
        assert found[number]['loss'] == pytest.approx(loss, rel=1e-9)
        assert found[number]['accuracy'] == accuracy
        assert found[number]['samples'] == 31


def check_weights(found: Mapping[str, torch.Tensor], alone: OneProcess) -> None:
    assert found
    for name, value in found.items():
        assert torch.allclose(value, alone.best[1][name], rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize('seed', range(3))
def test_figures_are_those_of_one_process_and_change_no_weights(
        prepared: Prepared, seed: int) -> None:
    """Whatever the plan, with a device that is lost in a validation or before it."""
    task, graph = prepared.task, prepared.graph
    alone = train_alone_drawing(task)
    faults = [{}, {'b': (5, 'T0')}, {'a': (8, 'F0')}][seed]
    trainer, state = train(task, 'abc', shuffled(seed, len(graph.layers), task), faults,
                           graph=graph)
    check_validations(trainer.commit, alone)
    assert BestSoFar.of(state).round == alone.best[0] < task.rounds
    assert difference(state, alone) < 1e-10
    check_weights(module_state(best_weights(state)), alone)
    plain = train_alone_drawing(replace(task, validate_every=0))
    assert alone.loss == plain.loss


def test_the_best_weights_are_kept_and_training_ends_early_as_in_one_process(
        tmp_path: Path, prepared: Prepared) -> None:
    """By accuracy, over a loss right after the best round, and a resume on the way."""
    task = replace(prepared.task, validate_every=2, best_by='accuracy', patience=2, rounds=60)
    alone = train_alone_drawing(task)
    assert 2 <= alone.best[0] < len(alone.loss) < 60, 'the task is one that ends early'
    prepared = replace(prepared, task=task)
    path, last = tmp_path / 'night.safetensors', len(alone.loss)

    def make(*given: Any) -> Threads:
        return Threads(*given, leaving='b')
    job = JobOptions(path, metrics=tmp_path / 'night.jsonl')
    found = TrainingJob(prepared, job, make=make).run()
    assert found.done and found.round == last and found.best == alone.best[0]
    assert difference(load_file(path), alone) < 1e-10
    best = read_checkpoint(best_of(path))
    assert best.round == alone.best[0]
    check_weights(best.weights, alone)
    lines = [json.loads(line) for line in (tmp_path / 'night.jsonl').read_text().splitlines()]
    assert len(lines) == last
    assert {line['round']: line['check_accuracy'] for line in lines if 'check_loss' in line} == {
        number: accuracy for number, (_, accuracy) in alone.check.items()}
    judged = judge(task, found.state)
    assert judged is not None
    assert (judged.loss, judged.accuracy) == pytest.approx(alone.check[last], rel=1e-9)
    with pytest.raises(TaskError, match='give the task more patience'):
        TrainingJob(prepared, replace(job, resume=True))


def test_a_resumed_training_knows_what_was_best(tmp_path: Path, prepared: Prepared) -> None:
    task = prepared.task
    alone, path = train_alone_drawing(task), tmp_path / 'night.safetensors'
    short = replace(prepared, task=replace(task, rounds=10))
    assert TrainingJob(short, JobOptions(path), make=Threads).run().round == 10
    found = TrainingJob(prepared, JobOptions(path, resume=True), make=Threads).run()
    assert found.done and found.best == alone.best[0]
    check_weights(read_checkpoint(best_of(path)).weights, alone)
    assert difference(load_file(path), alone) < 1e-10


class Other(nn.Module):
    """Computes something else in eval mode."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(64, 10).double()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x.flatten(1))
        return found if self.training else found.softmax(1)


def test_what_cannot_be_validated_is_refused_with_the_reason() -> None:
    task = held_out()
    capture(replace(task, module=Other(), validate_every=0))
    with pytest.raises(TaskError, match='Other computes something else in eval mode'):
        capture(replace(task, module=Other()))
    for changes, reason in (({'check': None}, 'give the task check='),
                            ({'best_by': 'size'}, 'loss or accuracy'),
                            ({'validate_every': 0, 'patience': 2}, 'validate_every, too')):
        with pytest.raises(TaskError, match=reason):
            replace(task, **changes)
    assert isinstance(task.check, TensorData) and isinstance(task.data, TensorData)
    unnamed = TensorData(task.check.inputs, torch.randn(31, 10, dtype=torch.float64))
    with pytest.raises(TaskError, match="take best_by='loss'"):
        try_task(replace(task, loss=far, data=TensorData(task.data.inputs, torch.randn(
            len(task.data), 10, dtype=torch.float64)), check=unnamed, best_by='accuracy'))


def far(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return (outputs - targets).square().mean(1)
