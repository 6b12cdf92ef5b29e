# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Options of a task: mixed precision, clipping, schedules, weight decay groups, frozen norms."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
import math

import pytest
import torch
from training_fleet import difference, fixed, make_task, sgd, train
from training_models import train_alone_drawing

from intradp_lab.training.one_process import train_alone
from intradp_ros.systems.training.base.task import TaskError
from intradp_ros.systems.training.layers.layer_capture import capture

DEVICES = ('a', 'b', 'c')
LOST = {'b': (4, 'B1')}


def cosine(number: int) -> float:
    return 0.5 * (1 + math.cos(math.pi * number / 12))


def by_groups(named: Iterable[tuple[str, torch.nn.Parameter]]) -> torch.optim.Optimizer:
    """Weights decay, biases and norms do not."""
    named = list(named)
    return torch.optim.AdamW(
        [{'params': [p for _, p in named if p.ndim > 1], 'weight_decay': 0.1},
         {'params': [p for _, p in named if p.ndim <= 1], 'weight_decay': 0.0, 'lr': 3e-3}],
        lr=1e-3)


@pytest.mark.parametrize('frozen', [False, True])
def test_all_options_together_are_those_of_one_process(frozen):
    task = make_task('cnn', by_groups, rounds=8, clip=0.5, schedule=cosine, freeze_norms=frozen)
    graph, alone = capture(task), train_alone(task)
    assert max(alone.norm) > 0.5  # it is clipped
    trainer, state = train(task, DEVICES, fixed(len(graph.layers), task), graph=graph, faults=LOST)
    assert len(trainer.commit.recoveries) == 1
    assert difference(state, alone) < 1e-10
    assert [trainer.commit.figures[k]['norm'] for k in range(8)] == pytest.approx(
        alone.norm, rel=1e-9)


@pytest.mark.parametrize('model', ['cnn', 'transformer'])
def test_mixed_precision_is_that_of_one_process_however_many_grains_a_device_has(model):
    """Border values are of 16 bits, weights and what the optimiser keeps of 32."""
    task = make_task(model, sgd, torch.float32, rounds=8, clip=1.0, schedule=cosine,
                     autocast=torch.bfloat16)
    graph, alone = capture(task), train_alone_drawing(task)
    whole = train_alone_drawing(make_task(model, sgd, torch.float32, rounds=8, clip=1.0,
                                          schedule=cosine))
    trainer, state = train(task, DEVICES, fixed(len(graph.layers), task), graph=graph, faults=LOST)
    assert len(trainer.commit.recoveries) == 1
    assert {value.dtype for name, value in state.items() if name[:2] in ('p:', 'o:')} == {
        torch.float32}
    assert difference(state, alone) < 1e-5 < difference(state, whole)


def test_epochs_grains_and_micro_batches_may_be_left_to_the_task() -> None:
    """What is chosen depends on the batch alone, so that no plan changes the result."""
    made = replace(make_task('small', sgd), batch=36, grain=0, micro_batches=0, rounds=0,
                   epochs=1.5)
    assert (made.grain, made.micro_batches, made.rounds) == (9, 4, 4), '1.5 x 90 of 36 samples'
    assert replace(made, rounds=7).rounds == 7
    for batch in range(1, 90):
        chosen = replace(made, batch=batch, grain=0, micro_batches=0)
        assert 1 <= chosen.grain <= 16 and 1 <= chosen.micro_batches <= chosen.grains
        assert len(chosen.grain_rows(chosen.grains - 1)) > 1 or batch == 1, 'as batch norm needs'
    for wrong in ({'epochs': 2.0}, {'rounds': 0}, {'rounds': 0, 'epochs': -1.0}):
        with pytest.raises(TaskError, match='rounds'):
            replace(made, **wrong)
