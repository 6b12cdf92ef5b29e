# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whatever a book says, every frame is answered, right and in time."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
import json
import time

import pytest
from sharing import assert_equal, hand_made_book, sharing_pair, SOURCE, TIMEOUT
import torch
from waiting import wait_for

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.systems.sharing.book.book import MAX_ENTRIES, ScheduleBook
from intradp_ros.systems.sharing.book.choice import ScheduleChoice
from intradp_ros.systems.sharing.book.critical_paths import MAX_PATHS
from intradp_ros.systems.sharing.policy.local_times import check_book
from intradp_ros.systems.sharing.policy.patience import (
    clamped_prediction,
    LONGEST_WAIT,
    PatiencePolicy,
)
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)
from intradp_ros.wire.frames import Chunk, Control, ControlKind


@pytest.fixture
def pair(model: SharedModel) -> Iterator[Pair]:
    with sharing_pair(model, patience=PatiencePolicy(silence=TIMEOUT)) as pair:
        yield pair


@pytest.mark.parametrize('change', [
    {'predicted': 1e299}, {'predicted': 1.1e6}, {'mbps': 1.1e6}, {'predicted': -1.0},
    {'predicted': float('nan')}, {'mbps': 1e300},
    {'joules': float('inf')}, {'low': float('nan')}])
def test_impossible_entries_are_refused(model: SharedModel, change: dict[str, float]) -> None:
    data = json.loads(hand_made_book(model).to_json())
    data['entries'][0].update(change)
    with pytest.raises(ValueError, match='impossible entry'):
        ScheduleBook.from_json(json.dumps(data))


@pytest.mark.parametrize('change', [
    {'busy': [1.1e6, 0.0]}, {'crossing': [0.0, 1.1e6]}, {'catch_up': [1.1e6]},
    {'catch_up': [0.1]}, {'paths': [[1.1e6, 0.0, 0.0, 0.0]]}, {'paths': []},
    {'paths': [[1.0, 0.0, 0.0, 0.0]] * (MAX_PATHS + 1)}, {'busy': [float('nan'), 0.0]}])
def test_impossible_times_of_entries_are_refused(model: SharedModel,
                                                 change: dict[str, object]) -> None:
    data = json.loads(hand_made_book(model).to_json())
    data['entries'][0]['anywhere'] = {'paths': [[1.0, 0.0, 0.0, 0.0]], 'busy': [0.1, 0.1],
                                      'crossing': [0.1, 0.1], 'catch_up': []}
    assert ScheduleBook.from_json(json.dumps(data)).entries[0].anywhere
    data['entries'][0]['anywhere'].update(change)
    with pytest.raises(ValueError, match='not a schedule table'):
        ScheduleBook.from_json(json.dumps(data))


def test_a_book_of_too_many_entries_is_refused(model: SharedModel) -> None:
    data = json.loads(hand_made_book(model).to_json())
    data['entries'] = data['entries'][:1] * (MAX_ENTRIES + 1)
    with pytest.raises(ValueError, match='not a schedule table'):
        ScheduleBook.from_json(json.dumps(data))


@pytest.mark.parametrize('name', ['delay', 'overhead'])
@pytest.mark.parametrize('seconds', [-1.0, 1.1e6, 1e300, float('nan'), float('inf')])
def test_impossible_links_are_refused(model: SharedModel, name: str, seconds: float) -> None:
    data = {**json.loads(hand_made_book(model).to_json()), name: seconds}
    with pytest.raises(ValueError, match=f'not a schedule table: {name}'):
        ScheduleBook.from_json(json.dumps(data))


def test_a_robot_takes_no_book_that_leaves_it_without_a_way_alone(model: SharedModel) -> None:
    book = hand_made_book(model)
    check_book(book, 0.0)
    without = replace(book, entries=tuple(e for e in book.entries if e.strategy != LOCAL))
    with pytest.raises(ValueError, match="no schedule 'local'"):
        check_book(without, 0.0)


@pytest.mark.parametrize('alone, taken', [
    (0.02, True), (0.19, True), (0.21, False), (0.0021, True), (0.0019, False), (0.0, True)])
def test_a_robot_takes_no_book_of_another_device(
        model: SharedModel, alone: float, taken: bool) -> None:
    """By the book it takes 20 ms; up to ten times more or less may be drift."""
    if taken:
        check_book(hand_made_book(model), alone)
        return
    with pytest.raises(ValueError, match='another device'):
        check_book(hand_made_book(model), alone)


@pytest.mark.parametrize('measured, profiled, taken', [
    (0.5, 0.02, True), (0.001, 0.02, True), (0.02, 0.5, True), (0.5, 0.5, False),
    (0.0, 0.5, False), (0.0, 0.1, True)])
def test_a_busy_robot_takes_the_book_of_its_own_profile(
        model: SharedModel, measured: float, profiled: float, taken: bool) -> None:
    """Planned when it was quiet, and busy now by more than ten times; or profiled when busy."""
    if taken:
        check_book(hand_made_book(model), measured, profiled)
        return
    with pytest.raises(ValueError, match='its profile says .* another device'):
        check_book(hand_made_book(model), measured, profiled)


def test_what_is_believed_of_a_prediction() -> None:
    assert clamped_prediction(0.1, 0.3, faster=True) == 0.1
    assert clamped_prediction(1e299, 0.3, faster=True) == 0.3
    assert clamped_prediction(2.0, 0.3, faster=False) == 2.0
    assert clamped_prediction(1e299, 0.3, faster=False) == 3.0
    assert clamped_prediction(1e299, 0.0, faster=True) == LONGEST_WAIT


def test_waiting_ends_whatever_was_predicted(
        pair: Pair, model: SharedModel, wanted: torch.Tensor) -> None:
    """One cancellation in the robot's name: no other frame comes, and the book promises ages."""
    for _ in range(3):
        pair.robot.infer((SOURCE,), strategy=LOCAL)
    book = hand_made_book(model)
    entries = tuple(replace(e, predicted=1e5 if e.strategy == LOCAL else 9e4)
                    for e in book.entries)
    pair.robot.use_book(replace(book, entries=entries))
    connection = pair.robot.connection
    assert connection.wait_ready(TIMEOUT)
    session = pair.server.sessions[connection.session]
    start_inference = session._start

    def cancelled(chunk: Chunk, book: ScheduleBook) -> None:
        start_inference(chunk, book)
        session.control(Control(ControlKind.CANCEL, session.id, 0, chunk.inference, {}))

    session._start = cancelled
    begin = time.monotonic()
    outcome = pair.robot.infer((SOURCE,))
    assert outcome.stats.recovered and 'late' in outcome.stats.reason
    assert time.monotonic() - begin < 2.0
    assert_equal(outcome.outputs, wanted)


def test_a_choice_that_fails_is_a_frame_that_runs_alone(
        pair: Pair, wanted: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> int:
        raise ArithmeticError('as a book might bring about')

    with monkeypatch.context() as patch:
        patch.setattr(ScheduleChoice, 'choose', fail)
        outcome = pair.robot.infer((SOURCE,))
        assert not outcome.stats.shared
        assert_equal(outcome.outputs, wanted)
        assert pair.robot.rejections.by_cause() == {'choice': 1}
    assert pair.robot.infer((SOURCE,)).stats.shared


def test_a_shared_frame_that_fails_in_a_way_nobody_foresaw_runs_alone(
        pair: Pair, wanted: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object) -> None:
        raise RuntimeError('as falsified rows might bring about')

    with monkeypatch.context() as patch:
        patch.setattr(pair.robot, '_infer_shared', fail)
        outcome = pair.robot.infer((SOURCE,))
        assert outcome.stats.recovered and 'falsified rows' in outcome.stats.reason
        assert_equal(outcome.outputs, wanted)
    wait_for(lambda: pair.robot.infer((SOURCE,)).stats.shared)
