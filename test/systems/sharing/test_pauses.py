# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the robot leaves a server alone: as long as a dead link lasts, or longer each time."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
import math
import re
import threading
import time

from hypothesis import given
from hypothesis import strategies as st
import pytest
from sharing import (
    assert_equal,
    infer_until_shared,
    sharing_pair,
    SHORT,
    SOURCE,
    TIMEOUT,
    with_kernels,
)
import torch
from waiting import wait_for

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.memory_channel import memory_pair, MemoryChannel
from intradp_ros.systems.sharing.policy import schedule_decision, sharing_pause
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.policy.sharing_pause import (
    FIRST_PAUSE,
    FREE_SILENCES,
    LONGEST_PAUSE,
    SharingPause,
)
from intradp_ros.systems.sharing.session import connection, robot
from intradp_ros.systems.sharing.session.awake_clock import AwakeClock
from intradp_ros.systems.sharing.session.connection import State
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.systems.sharing.strategies import (
    OFFLOAD,
)
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame


@pytest.fixture
def log() -> list[str]:
    return []


@pytest.fixture
def pair(model: SharedModel, log: list[str]) -> Iterator[Pair]:
    with sharing_pair(model, patience=SHORT, log=log.append) as pair:
        yield pair


def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no pause end by itself."""
    for module, name in ((sharing_pause, 'FIRST_PAUSE'), (sharing_pause, 'LONGEST_PAUSE'),
                         (connection, 'RETRY')):
        monkeypatch.setattr(module, name, 10 * TIMEOUT)


def fail(pair: Pair, wanted: torch.Tensor) -> None:
    """Infer until the robot no longer counts on the server."""
    end, failed = time.monotonic() + TIMEOUT, False
    while not failed or pair.robot.connection.state is not State.ALONE:
        outcome = pair.robot.infer((SOURCE,))
        assert_equal(outcome.outputs, wanted)
        failed |= outcome.stats.recovered
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
        fail(pair, wanted)
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
    endless(monkeypatch)
    monkeypatch.setattr(connection, 'SILENCE', 1.5 if silent else 10 * TIMEOUT)
    patience = PatiencePolicy(TIMEOUT, late_slack=TIMEOUT, deadline=0.8)
    with sharing_pair(model, patience=patience) as pair:
        assert isinstance(pair.robot_channel, MemoryChannel)
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        pair.robot_channel.cut()
        fail(pair, wanted)
        while silent and pair.robot.connection.quiet < 1.6:
            time.sleep(0.05)
        pair.robot_channel.restore()
        assert pair.robot.connection.wait_ready(TIMEOUT if silent else 0.5) is silent


def test_a_server_that_answers_but_fails_is_left_alone_ever_longer(
        model: SharedModel, wanted: torch.Tensor, log: list[str],
        monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is late, and no silence is noticed, however busy the machine is."""
    monkeypatch.setattr(connection, 'SILENCE', 10 * TIMEOUT)
    patience = PatiencePolicy(TIMEOUT, late_slack=TIMEOUT)
    with sharing_pair(model, patience=patience, log=log.append) as pair:
        fail_and_recover(pair, wanted)
    pauses = [found[1] for line in log if (found := re.search(r'paused for (.*) s:', line))]
    assert pauses == ['0.5', '1.0', '0.5']


def fail_and_recover(pair: Pair, wanted: torch.Tensor) -> None:
    """Let the server fail twice, work, and fail once more."""
    def failing(frame: Frame) -> None:
        if not isinstance(frame, Chunk):
            pair.server.handle(frame)
        elif frame.inference:
            pair.server_channel.send(Control(ControlKind.FAILED, frame.session, frame.epoch,
                                             frame.inference, {'reason': 'no'}, frame.server))

    pair.server_channel.listen(failing)
    for _ in range(2):
        assert pair.robot.connection.wait_ready(TIMEOUT)
        fail(pair, wanted)
    pair.server_channel.listen(pair.server.handle)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    pair.server_channel.listen(failing)
    fail(pair, wanted)


def test_silences_cost_no_pause_while_the_server_comes_back(
        pair: Pair, wanted: torch.Tensor, log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause would end in this test, and nothing is shared between the silences."""
    endless(monkeypatch)
    assert isinstance(pair.robot_channel, MemoryChannel)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    for _ in range(FREE_SILENCES):
        pair.robot_channel.cut()
        fail(pair, wanted)
        pair.robot_channel.restore()
        assert pair.robot.connection.wait_ready(TIMEOUT)
    assert pair.robot.infer((SOURCE,)).stats.shared


def test_a_link_that_fails_again_and_again_is_left_alone(
        pair: Pair, wanted: torch.Tensor, log: list[str]) -> None:
    """A ping that gets through does not mean that tensors do."""
    channel = pair.robot_channel
    assert isinstance(channel, MemoryChannel)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    for _ in range(FREE_SILENCES + 1):
        assert pair.robot.connection.wait_ready(TIMEOUT)
        channel.cut()
        fail(pair, wanted)
        channel.restore()
    pauses = ['until the server answers' in line for line in log if 'paused' in line]
    assert pauses == [True] * FREE_SILENCES + [False]


def test_a_robot_that_is_faster_than_a_late_server_goes_on_sharing(
        model: SharedModel, wanted: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    It works on from half of its patience on, and has the result before that ends.

    No pause would end in this test.
    """
    endless(monkeypatch)
    patience, go_on = PatiencePolicy(TIMEOUT, late_slack=6.0), threading.Event()
    stuck = with_kernels(model, lambda kernel: lambda tensors: (
        go_on.wait(TIMEOUT), kernel(tensors))[1])
    with sharing_pair(model, server=stuck, patience=patience) as pair:
        for _ in range(2):
            outcome = pair.robot.infer((SOURCE,))
            assert_equal(outcome.outputs, wanted)
            assert outcome.stats.recovered and outcome.stats.reason.startswith('late')
            assert 3.0 < outcome.stats.latency < 6.0
        go_on.set()
        assert pair.robot.infer((SOURCE,)).stats.shared


@pytest.mark.parametrize('at_once', [True, False])
def test_who_works_at_once_leaves_nobody_alone_for_it(
        model: SharedModel, wanted: torch.Tensor, at_once: bool,
        monkeypatch: pytest.MonkeyPatch) -> None:
    """
    The result first is not a failure of a server that is there, however often it happens.

    Who did not mean to pauses after some, for ever in this test.
    """
    endless(monkeypatch)
    choose = schedule_decision.select
    monkeypatch.setattr(robot, 'select', lambda *args: replace(
        choose(*args), at_once=at_once))
    monkeypatch.setattr(connection, 'SILENCE', TIMEOUT)
    slack = TIMEOUT if at_once else 0.2
    patience, go_on = PatiencePolicy(TIMEOUT, TIMEOUT, slack), threading.Event()
    stuck = with_kernels(model, lambda kernel: lambda tensors: (
        go_on.wait(TIMEOUT), kernel(tensors))[1])
    with sharing_pair(model, server=stuck, patience=patience) as pair:
        shared = 0
        for _ in range(2 * FREE_SILENCES):
            outcome = pair.robot.infer((SOURCE,))
            assert_equal(outcome.outputs, wanted)
            shared += outcome.stats.recovered
        go_on.set()
        assert shared == (2 * FREE_SILENCES if at_once else FREE_SILENCES + 1)


def test_a_server_that_is_silent_is_not_waited_for(pair: Pair, wanted: torch.Tensor) -> None:
    """Known to be silent before the inference begins; shared with again once it is heard."""
    channel = pair.robot_channel
    assert isinstance(channel, MemoryChannel)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    channel.cut()
    wait_for(lambda: pair.robot.connection.quiet > 2 * SHORT.silence)
    outcome = pair.robot.infer((SOURCE,))
    assert not outcome.stats.shared and not outcome.stats.recovered
    assert pair.robot.connection.state is State.ALONE
    channel.restore()
    infer_until_shared(pair.robot, (SOURCE,), wanted)


def test_a_silent_server_that_may_come_back_is_counted_on(
        model: SharedModel, wanted: torch.Tensor, log: list[str]) -> None:
    """Inferences that begin in a silence are the robot's own, exact, and never wait for long."""
    patience = replace(SHORT, away=TIMEOUT)
    with sharing_pair(model, patience=patience, log=log.append) as pair:
        channel = pair.robot_channel
        assert isinstance(channel, MemoryChannel)
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        channel.cut()
        wait_for(lambda: pair.robot.connection.quiet > 2 * patience.silence)
        for _ in range(2 * FREE_SILENCES):
            outcome = pair.robot.infer((SOURCE,))
            assert_equal(outcome.outputs, wanted)
            assert outcome.stats.recovered and 'silent' in outcome.stats.reason
            assert outcome.stats.strategy == OFFLOAD
            assert pair.robot.connection.state is State.READY
        channel.restore()
        infer_until_shared(pair.robot, (SOURCE,), wanted)
    assert not [line for line in log if 'paused' in line]


def test_a_server_that_stays_silent_is_given_up(
        model: SharedModel, wanted: torch.Tensor, log: list[str]) -> None:
    """With the silences that nodes have by default."""
    patience = PatiencePolicy(late_slack=TIMEOUT)
    with sharing_pair(model, patience=patience, log=log.append) as pair:
        channel = pair.robot_channel
        assert isinstance(channel, MemoryChannel)
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        channel.cut()
        fail(pair, wanted)
        assert pair.robot.connection.quiet > patience.away
        assert not pair.robot.infer((SOURCE,)).stats.shared
        channel.restore()
        infer_until_shared(pair.robot, (SOURCE,), wanted)
    assert len([line for line in log if 'paused until the server answers' in line]) == 1


def test_a_server_that_comes_back_takes_its_part(model: SharedModel, wanted: torch.Tensor) -> None:
    """The inference began while it was stopped, and it is the first to have the result."""
    patience = replace(SHORT, away=TIMEOUT)
    held = threading.Event()
    slow = with_kernels(model, lambda kernel: lambda tensors: (
        held.is_set() and time.sleep(0.02), kernel(tensors))[1])
    with sharing_pair(slow, server=model, patience=patience) as pair:
        channel, kept = pair.server_channel, list[Frame]()
        stopped, resuming = threading.Event(), threading.Lock()

        def handle(frame: Frame) -> None:
            with resuming:
                kept.append(frame)
                if not stopped.is_set():
                    while kept:
                        pair.server.handle(kept.pop(0))

        channel.listen(handle)
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        stopped.set()
        wait_for(lambda: pair.robot.connection.quiet > 2 * patience.silence)
        held.set()
        going_on = threading.Timer(0.1, stopped.clear)
        going_on.start()
        outcome = pair.robot.infer((SOURCE,))
        going_on.join()
        assert_equal(outcome.outputs, wanted)
        assert outcome.stats.shared and not outcome.stats.recovered


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=40, max_size=200))
def test_a_server_that_never_finishes_costs_little(faults: list[tuple[bool, bool]]) -> None:
    """Silent or not, before the failure or shown after it: few begin before a long pause."""
    pause, now, begun = SharingPause(), 0.0, []
    for silent, shows in faults:
        now = max(now + 0.1, pause.until)
        begun.append(now)
        pause.failed(silent, now)
        pause.answered(silent or shows)
    early = [b for a, b in zip(begun, begun[1:]) if b - a < LONGEST_PAUSE - 1e-6]
    assert len(early) <= FREE_SILENCES + math.log2(LONGEST_PAUSE / FIRST_PAUSE)


def test_a_server_that_fails_for_days() -> None:
    pause = SharingPause()
    for _ in range(10**5):
        pause.failed(False, 0.0)
    assert pause.length == LONGEST_PAUSE


@given(st.lists(st.booleans(), max_size=30))
def test_a_shared_inference_resets_the_pause(faults: list[bool]) -> None:
    pause = SharingPause()
    for silent in faults:
        pause.failed(silent, 0.0)
    pause.succeeded()
    assert pause.length == FIRST_PAUSE
    assert pause.failed(True, 5.0) and pause.until == 5.0 + FIRST_PAUSE
    assert pause.answered(True) and pause.until < 0


@given(st.lists(st.floats(0, 3), max_size=50))
def test_of_a_stop_only_a_step_counts(gaps: list[float]) -> None:
    now, clock = 100.0, AwakeClock(100.0, 0.15)
    for gap in gaps:
        now += gap
        clock.read(now)
    assert clock.read(now) == pytest.approx(sum(min(gap, 0.15) for gap in gaps))
    assert clock.read(now - 5.0) == clock.read(now)  # another thread was faster


class Clock:
    """A steady clock that a test moves on."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_a_robot_that_was_stopped_does_not_blame_the_server(
        model: SharedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Quiet is what it could have heard, and did not."""
    clock = Clock()
    monkeypatch.setattr(connection, 'time', clock)
    kept = connection.Connection(model, memory_pair()[0], lambda text: None)
    kept.hear()
    clock.now += 10.0
    assert kept.quiet < SHORT.silence
    for _ in range(10):
        clock.now += connection.HEARTBEAT
        quiet = kept.quiet
    assert 1.0 <= quiet <= 1.0 + SHORT.silence
