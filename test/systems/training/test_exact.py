# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever the plan, and whoever leaves: weights, losses and norms are those of one process."""
from __future__ import annotations

import pytest
from training_fleet import adam, difference, fixed, make_task, sgd, train

from intradp_ros.systems.training.layer_graph import capture
from intradp_ros.systems.training.one_process import train_alone
from intradp_ros.systems.training.round_groups import measured_hop

DEVICES = ('a', 'b', 'c', 'd')


def check(task, devices, bound=1e-10, **options):
    graph, alone = capture(task), train_alone(task)
    trainer, state = train(task, devices, fixed(len(graph.layers), task), graph=graph, **options)
    commit = trainer.commit
    assert difference(state, alone) < bound
    assert sorted(commit.figures) == list(range(task.rounds))
    for number in range(task.rounds):
        figures = commit.figures[number]
        assert figures['samples'] == task.batch
        assert figures['loss'] == pytest.approx(alone.loss[number], rel=bound)
        assert figures['norm'] == pytest.approx(alone.norm[number], rel=10 * bound)
    return commit


@pytest.mark.parametrize('model', ['cnn', 'transformer'])
@pytest.mark.parametrize('optimiser', [sgd, adam])
@pytest.mark.parametrize('count', [1, 2, 4])
def test_rounds_are_those_of_one_process(model, optimiser, count):
    check(make_task(model, optimiser), DEVICES[:count])


def test_losses_of_devices_change_nothing():
    commit = check(make_task('cnn'), DEVICES,
                   faults={'b': (7, 'B1'), 'd': (11, 'F2'), 'a': (15, 'S')})
    assert [recovery.lost for recovery in commit.recoveries] == [('b',), ('d',), ('a',)]
    assert all(recovery.tag % 3 == 0 and recovery.reached - recovery.tag <= 2 * 3
               for recovery in commit.recoveries)


def test_a_hop_takes_time():
    assert 0 < measured_hop(3) < 5
