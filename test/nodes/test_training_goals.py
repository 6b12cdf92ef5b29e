# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Goals to train: which checkpoint is the newest, whose it is, and goals that end early."""
from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
import time
from typing import Any

import pytest
import rclpy
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
import torch

from intradp_ros.core.atomic_write import sole_writer
from intradp_ros.nodes.training.trainer_node import TrainerNode
from intradp_ros.nodes.training.training_goals import Client, Goal, TrainingGoals
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.systems.training.layers.checkpoint import (
    best_of,
    Checkpoint,
    previous_of,
    write_checkpoint,
)

TASK = f'{Path(__file__).parents[1]}/training_fleet.py:small_sgd'


@pytest.fixture
def goals(context: rclpy.Context, tmp_path: Path) -> Iterator[TrainingGoals]:
    node = TrainerNode(context=context, parameter_overrides=[
        Parameter('tasks', value=[TASK]), Parameter('folder', value=str(tmp_path))])
    assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
    yield node._goals
    node.release()
    node.destroy_node()


def save(path: Path, number: int) -> None:
    write_checkpoint(path, Checkpoint({'p:x': torch.zeros(1)}, TASK, number, 0, 8, 0.1))


def ended(goals: TrainingGoals, goal: Goal) -> tuple[Fate, Any]:
    """Return what a goal ends with."""
    found = list[tuple[Fate, Any]]()
    goal.clients.append(Client(lambda feedback: None, lambda *end: found.append(end)))
    goals._train(goal)
    [end] = found
    return end


def test_the_newest_checkpoint_is_the_last_one_whatever_clocks_say(
        goals: TrainingGoals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / 'small_sgd-20261128-223001.safetensors', 1)  # as names were before
    for number, year in ((2, '2026'), (3, '2044'), (4, '1970'), (5, '1970')):
        monkeypatch.setattr(time, 'strftime', lambda *form, year=year: f'{year}0101-000000')
        save(goals._new_file(TASK), number)
        found = goals._newest(TASK)
        assert found is not None and found[1].round == number
    assert len(list(tmp_path.glob('small_sgd-*'))) == 5
    found[0].write_bytes(b'half')
    path = found[0]
    found = goals._newest(TASK)
    assert found is not None and found[1].round == 4
    save(previous_of(path), 5)
    found = goals._newest(TASK)
    assert found is not None and found[0] == path and found[1].round == 5


def test_training_does_not_go_on_from_the_best_weights(goals: TrainingGoals,
                                                       tmp_path: Path) -> None:
    """They are of an earlier round, and nothing is known of what the newest had reached."""
    save(best_of(tmp_path / 'small_sgd-00001-20261128-223001.safetensors'), 1)
    assert goals._newest(TASK) is None


def test_a_checkpoint_is_written_by_one_training_only(goals: TrainingGoals,
                                                      tmp_path: Path) -> None:
    save(tmp_path / 'small_sgd-00001-20261128-223001.safetensors', 1)
    with sole_writer(tmp_path / 'small_sgd-00001-20261128-223001.safetensors'):
        fate, result = ended(goals, Goal(TASK, True, []))
    assert fate is Fate.REFUSED and 'another process is writing it' in result.reason


def test_a_goal_that_is_cancelled_while_it_is_prepared_ends_soon(goals: TrainingGoals) -> None:
    fate, result = ended(goals, Goal(TASK, False, [], fate=Fate.CANCELLED))
    assert fate is Fate.CANCELLED and result.reason == 'ended before its first round'
