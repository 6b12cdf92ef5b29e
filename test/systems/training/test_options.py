# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Options of a task: mixed precision, clipping, schedules, weight decay groups, frozen norms."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
import math
import random

import numpy as np
import pytest
import torch
from training_fleet import difference, fixed, make_task, sgd, train
from training_models import train_alone_drawing

from intradp_lab.training.one_process import train_alone
from intradp_ros.systems.training.base.items import Items
from intradp_ros.systems.training.base.task import draw_seed, take_of_round, TaskError
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.task_trial import try_task

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


def noisy(item: tuple[torch.Tensor, int], generator: torch.Generator) -> tuple[torch.Tensor, int]:
    return item[0] + torch.randn(item[0].shape, generator=generator, dtype=item[0].dtype), item[1]


def transformed(item: tuple[float, int], generator: torch.Generator) -> tuple[float, int]:
    return item[0] + random.random() + float(np.random.rand() + torch.rand(())), item[1]


def test_what_transforms_draw_by_the_process_goes_by_round_and_sample() -> None:
    task = replace(make_task('cnn', sgd), data=Items([(1.0, 0)] * 40, augment=transformed))
    states = random.getstate(), torch.get_rng_state()
    found = [take_of_round(task, number, samples)[0][0].tolist()
             for number, samples in ((0, [5, 6]), (0, [6]), (1, [5, 6]))]
    assert found[0][1:] == found[1] and len({*found[0], *found[2]}) == 4
    assert states[0] == random.getstate() and torch.equal(states[1], torch.get_rng_state())


def test_augmentation_draws_by_round_and_sample_on_any_plan_and_after_a_loss() -> None:
    """Each round has others: the oracle draws each by its round's and sample's number alone."""
    plain = make_task('cnn', sgd)
    images, labels = plain.data.take(range(len(plain.data)))
    pairs = list(zip(images[0], labels.tolist()))
    task = replace(plain, data=Items(pairs, augment=noisy), batch=30)  # 3 rounds have each once
    graph, alone = capture(task), train_alone(task)
    inputs = [take_of_round(task, number, [5])[0][0] for number in (0, 0, 3)]
    assert torch.equal(inputs[0], inputs[1]) and not torch.equal(inputs[0], inputs[2])
    drawn = torch.Generator().manual_seed(draw_seed(task.seed, 4, 3, 5))
    assert torch.equal(inputs[2][0], noisy(pairs[5], drawn)[0])
    try_task(task)
    _, state = train(task, DEVICES, fixed(len(graph.layers), task), LOST, graph=graph)
    assert difference(state, alone) < 1e-10
    assert difference(state, train_alone(plain)) > 1e-3
