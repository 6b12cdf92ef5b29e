# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the robot leaves a server alone: as long as a dead link lasts, or longer each time."""
from __future__ import annotations

from collections.abc import Iterator
import re
import time

import pytest
from sharing import assert_equal, infer_until_shared, sharing_pair, SHORT, SOURCE, TIMEOUT
import torch

from intradp_ros.runtime.memory_channel import MemoryChannel
from intradp_ros.runtime.model import SharedModel
from intradp_ros.systems.sharing.session.connection import State
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.systems.sharing.session.patience import PatiencePolicy
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def pair(model: SharedModel, log: list[str]) -> Iterator[Pair]:
    with sharing_pair(model, patience=SHORT, log=log.append) as pair:
        yield pair


def fail_once(pair: Pair, wanted: torch.Tensor) -> None:
    """Infer until an inference was not finished by both sides."""
    end = time.monotonic() + TIMEOUT
    while True:
        outcome = pair.robot.infer((SOURCE,))
        assert_equal(outcome.outputs, wanted)
        if outcome.stats.recovered:
            return
        assert time.monotonic() < end


def test_sharing_resumes_when_the_link_is_back(
        pair: Pair, wanted: torch.Tensor, log: list[str]) -> None:
    """The first ping that is answered ends the pause, and the server still has the book."""
    heard: list[Frame] = []
    pair.server_channel.listen(lambda frame: (heard.append(frame), pair.server.handle(frame)))
    assert isinstance(pair.robot_channel, MemoryChannel)
    for _ in range(3):
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        pair.robot_channel.cut()
        fail_once(pair, wanted)
        assert pair.robot.connection.state is State.ALONE
        assert not pair.robot.infer((SOURCE,)).stats.shared
        pair.robot_channel.restore()
        assert pair.robot.connection.wait_ready(TIMEOUT)
    kinds = [frame.kind for frame in heard if isinstance(frame, Control)]
    assert kinds.count(ControlKind.HELLO) >= 3 and ControlKind.BOOK not in kinds
    assert len([line for line in log if 'until the server answers' in line]) == 3


@pytest.mark.parametrize('silent', [True, False])
def test_a_silence_that_shows_after_an_inference_was_late(
        model: SharedModel, wanted: torch.Tensor, silent: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the pause, which is endless here, as one does that was known before."""
    monkeypatch.setattr('intradp_ros.systems.sharing.session.connection.RETRY', 10 * TIMEOUT)
    monkeypatch.setattr('intradp_ros.systems.sharing.session.connection.SILENCE', 1.5)
    with sharing_pair(model, patience=PatiencePolicy(TIMEOUT, late_slack=0.8)) as pair:
        assert isinstance(pair.robot_channel, MemoryChannel)
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        pair.robot_channel.cut()
        fail_once(pair, wanted)
        if silent:
            time.sleep(1.5)
        pair.robot_channel.restore()
        assert pair.robot.connection.wait_ready(TIMEOUT if silent else 0.5) is silent


def test_a_server_that_answers_but_fails_is_left_alone_ever_longer(
        pair: Pair, wanted: torch.Tensor, log: list[str]) -> None:
    def failing(frame: Frame) -> None:
        if not isinstance(frame, Chunk):
            pair.server.handle(frame)
        elif frame.inference:
            pair.server_channel.send(Control(ControlKind.FAILED, frame.session, frame.epoch,
                                             frame.inference, {'reason': 'no'}, frame.server))

    pair.server_channel.listen(failing)
    for _ in range(2):
        assert pair.robot.connection.wait_ready(TIMEOUT)
        fail_once(pair, wanted)
    pair.server_channel.listen(pair.server.handle)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    pair.server_channel.listen(failing)
    fail_once(pair, wanted)
    pauses = [found[1] for line in log if (found := re.search(r'paused for (.*) s:', line))]
    assert pauses == ['0.5', '1.0', '0.5']


def test_a_link_that_fails_again_at_once_is_left_alone(
        pair: Pair, wanted: torch.Tensor, log: list[str]) -> None:
    """A ping that gets through does not mean that tensors do."""
    channel = pair.robot_channel
    assert isinstance(channel, MemoryChannel)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    for _ in range(2):
        assert pair.robot.connection.wait_ready(TIMEOUT)
        channel.cut()
        fail_once(pair, wanted)
        channel.restore()
    pauses = ['until the server answers' in line for line in log if 'paused' in line]
    assert pauses == [True, False]
