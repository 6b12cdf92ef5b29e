# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever the figures, and whoever comes and goes: it ends, with the result of one process."""
from __future__ import annotations

from collections import Counter
from functools import cache
from types import SimpleNamespace

from hypothesis import given, HealthCheck, Phase, settings
from hypothesis import strategies as st
from training_fleet import adam, difference, make_task, sgd, shuffled, train
from training_models import train_alone_drawing

from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.plan.stage_actions import fan_out, stage_actions
from intradp_ros.systems.training.plan.training_plan import parse_plan

DEVICES = ('a', 'b', 'c', 'd')


@cache
def prepared(model, optimiser, batch, grain, micro_batches):
    task = make_task(model, optimiser, batch=batch, grain=grain, micro_batches=micro_batches,
                     rounds=9)
    return task, capture(task), train_alone_drawing(task)


@st.composite
def trainings(draw):
    """Return a task, who is there from the start and who comes, who dies when, and pauses."""
    grain = draw(st.integers(4, 6))  # of two rows, batch norm leaves only which is larger
    batch = draw(st.integers(2 * grain, 36))
    if 0 < batch % grain < 4:
        batch += 4 - batch % grain
    grains = -(-batch // grain)
    micro_batches = draw(st.integers(1, min(4, grains)))
    there = draw(st.integers(1, 4))
    dying = draw(st.lists(st.sampled_from(DEVICES), max_size=3, unique=True))
    actions = [*(f'{kind}{k}' for kind in 'FB' for k in range(micro_batches)), 'S', 'U']
    faults = {name: (draw(st.integers(0, 8)), draw(st.sampled_from(actions)))
              for name in dying}
    pauses = draw(st.lists(st.integers(1, 7), max_size=2, unique=True))
    return (draw(st.sampled_from(['small', 'typed'])), draw(st.sampled_from([sgd, adam])), batch,
            grain, micro_batches, there, faults, pauses, draw(st.integers(0, 99)),
            draw(st.integers(1, 4)))


def check(found):
    model, optimiser, batch, grain, micro_batches, there, faults, pauses, seed, every = found
    task, graph, alone = prepared(model, optimiser, batch, grain, micro_batches)
    if set(faults) >= set(DEVICES[:there]):
        faults = {name: fault for name, fault in faults.items() if name != 'a'}
    trainer, state = train(task, DEVICES[:there], shuffled(seed, len(graph.layers), task), faults,
                           every, late=DEVICES[there:], graph=graph, pauses=pauses,
                           expected=False)
    assert difference(state, alone) < 1e-10
    figures = trainer.commit.figures
    assert sorted(figures) == list(range(task.rounds))
    assert all(figures[k]['samples'] == task.batch for k in figures)
    assert all(abs(figures[k]['norm'] / alone.norm[k] - 1) < 1e-9 for k in figures)
    assert all(abs(figures[k]['loss'] / alone.loss[k] - 1) < 1e-10 for k in figures)


@settings(max_examples=8, suppress_health_check=list(HealthCheck), derandomize=True,
          phases=(Phase.explicit, Phase.generate))  # smaller ones would take as long each
@given(trainings())
def test_it_ends_with_the_result_of_one_process(found):
    check(found)


@settings(max_examples=100)
@given(seed=st.integers(0, 10 ** 6), devices=st.integers(1, 4), grains=st.integers(1, 30),
       micro_batches=st.integers(1, 30), layers=st.integers(4, 9))
def test_actions_of_stages_fit_together(seed, devices, grains, micro_batches, layers):
    """
    Each micro-batch goes forward and back once on every stage, in an order that cannot block.

    What a stage sends is what the next one computes, each grain once.
    """
    task = SimpleNamespace(grains=grains, micro_batches=min(grains, micro_batches))
    if task.micro_batches and -(-grains // task.micro_batches) * layers < devices:
        devices = 1
    plan = shuffled(seed, layers, task)(DEVICES[:devices], None)
    assert parse_plan(plan.to_json()) == plan
    count, batches = len(plan.stages), plan.micro_batches
    lists = [list(stage_actions(k, count, batches)) for k in range(count)]
    for k, actions in enumerate(lists):
        assert Counter(map(str, actions)) == Counter(
            [*(f'{kind}{m}' for kind in 'FB' for m in range(batches)), 'S', 'U'])
        held = most = 0
        for action in actions:
            held += {'F': 1, 'B': -1}.get(action.kind, 0)
            most = max(most, held)
        assert most == min(batches, 2 * (count - k) - 1)
    done, at = set(), [0] * count
    while any(place < len(actions) - 2 for place, actions in zip(at, lists)):
        before = list(at)
        for k, actions in enumerate(lists):
            action = actions[at[k]]
            needs = (k + 1, 'B') if action.kind == 'B' else (k - 1, 'F')
            if action.kind in 'FB' and (not 0 <= needs[0] < count
                                        or (*needs, action.micro_batch) in done):
                done.add((k, action.kind, action.micro_batch))
                at[k] += 1
        assert at != before, 'the stages wait for each other'
    for k in range(count):
        dealt = [g for m in range(batches) for part in plan.dealt(k, m).values() for g in part]
        assert sorted(dealt) == list(range(grains))
        assert max(len(part) for m in range(batches)
                   for part in plan.dealt(k, m).values()) <= plan.largest
    for k in range(count - 1):
        for m in range(batches):
            grains_sent = [g for part in fan_out(plan, k, m) for g in part.grains]
            assert sorted(grains_sent) == list(plan.micro_batch(m))
            for part in fan_out(plan, k, m):
                assert set(part.grains) <= set(plan.dealt(k, m)[part.source])
                assert set(part.grains) <= set(plan.dealt(k + 1, m)[part.target])
