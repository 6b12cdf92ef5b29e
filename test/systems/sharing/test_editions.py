# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A new book interrupts nothing: inferences go on by the one in use until both sides have it."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
import threading

import pytest
from sharing import assert_equal, ENDLESS, hand_made_book, sharing_pair, SOURCE, TIMEOUT
import torch
from waiting import wait_for

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.book_versions import BookVersion, BookVersions
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.session.connection import State
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame
from intradp_ros.wire.texts import packed


@pytest.fixture
def pair(model: SharedModel) -> Iterator[Pair]:
    with sharing_pair(model, patience=ENDLESS) as pair:
        yield pair


class Detained:
    """Keeps control frames of one kind from a side of a pair until they are let go."""

    def __init__(self, pair: Pair, kind: ControlKind) -> None:
        at_server = kind is ControlKind.BOOK
        self.kind, self.frames = kind, list[Control]()
        self._handle = pair.server.handle if at_server else pair.robot.handle
        channel = pair.server_channel if at_server else pair.robot_channel
        channel.listen(self._sort)

    def _sort(self, frame: Frame) -> None:
        if isinstance(frame, Control) and frame.kind is self.kind:
            self.frames.append(frame)
        else:
            self._handle(frame)

    def let_go(self, **changes: object) -> None:
        """Hand over the first of them, with another body if wanted."""
        frame = self.frames[0]
        self._handle(replace(frame, body={**frame.body, **changes}))


def another_book(model: SharedModel, share: float = 0.3) -> ScheduleBook:
    """Return a book that shares by another schedule than `hand_made_book` does."""
    return hand_made_book(model, Partition((RowStage(len(model.split.operators), share, 1, 3),)))


def used(pair: Pair) -> int:
    """Return the epoch by which the robot shares, 0 if it does not."""
    agreement = pair.robot.connection.agreement
    return agreement.epoch if agreement else 0


def assert_shared(pair: Pair, wanted: torch.Tensor) -> None:
    """Infer, together with the server, what the model alone does."""
    outcome = pair.robot.infer((SOURCE,))
    assert outcome.stats.shared and not outcome.stats.recovered
    assert_equal(outcome.outputs, wanted)


@pytest.mark.parametrize('kind', [ControlKind.BOOK, ControlKind.BOOK_READY])
def test_the_former_book_is_used_until_the_robot_knows_that_the_server_has_the_new_one(
        pair: Pair, model: SharedModel, wanted: torch.Tensor, kind: ControlKind) -> None:
    """Whether the offer is in flight or the answer."""
    detained = Detained(pair, kind)
    pair.robot.use_book(another_book(model))
    wait_for(lambda: bool(detained.frames))
    for _ in range(3):
        assert_shared(pair, wanted)
        assert used(pair) == 1
    assert not pair.robot.connection.wait_ready(0.0)
    detained.let_go()
    assert pair.robot.connection.wait_ready(TIMEOUT)
    assert used(pair) == 2
    assert_shared(pair, wanted)
    assert pair.server.rejections.total == pair.robot.rejections.total == 0


def test_books_that_follow_one_another_quickly(
        pair: Pair, model: SharedModel, wanted: torch.Tensor) -> None:
    """The newest is used in the end; those between may never be."""
    inferences, stop = list[int](), threading.Event()

    def infer() -> None:
        while not stop.is_set():
            assert_shared(pair, wanted)
            inferences.append(used(pair))

    worker = threading.Thread(target=infer)
    worker.start()
    for k in range(12):
        pair.robot.use_book(another_book(model, 0.2 + 0.05 * k))
        stop.wait(0.03)
    wait_for(lambda: used(pair) == 13 and inferences.count(13) > 2)
    stop.set()
    worker.join()
    assert inferences == sorted(inferences) and inferences[0] < 13
    assert pair.server.rejections.total == pair.robot.rejections.total == 0


def test_a_refused_book_leaves_the_former_in_use(
        pair: Pair, model: SharedModel, wanted: torch.Tensor) -> None:
    """The reason is kept for the diagnostics until a book is taken."""
    connection = pair.robot.connection
    detained = Detained(pair, ControlKind.BOOK)
    pair.robot.use_book(another_book(model))
    wait_for(lambda: bool(detained.frames))
    detained.let_go(book=packed('{}'))
    wait_for(lambda: 'bad schedule table' in connection.refusal)
    assert connection.state is State.READY
    assert_shared(pair, wanted)
    assert used(pair) == 1
    detained.let_go()
    wait_for(lambda: used(pair) == 2)
    assert connection.refusal == ''
    assert_shared(pair, wanted)


def test_a_server_that_came_back_without_the_new_book(
        pair: Pair, model: SharedModel, wanted: torch.Tensor) -> None:
    """The robot goes on by the one that the server has, and offers the new one again."""
    detained = Detained(pair, ControlKind.BOOK)
    pair.robot.use_book(another_book(model))
    pair.robot.connection.lost('as if the link had failed')
    wait_for(lambda: used(pair) == 1)
    assert_shared(pair, wanted)
    detained.let_go()
    wait_for(lambda: used(pair) == 2)


def test_an_inference_ends_under_the_epoch_that_it_began_with(
        pair: Pair, wanted: torch.Tensor) -> None:
    """Even if the server has forgotten that book meanwhile."""
    session = pair.server.sessions[pair.robot.connection.session]

    def forget(frame: Frame) -> None:
        pair.server.handle(frame)
        if isinstance(frame, Chunk) and frame.inference:
            session.offered.versions = ()

    pair.server_channel.listen(forget)
    assert_shared(pair, wanted)
    assert session.epochs == []


def test_a_server_that_cannot_compile_a_book_says_so(
        pair: Pair, model: SharedModel, wanted: torch.Tensor, monkeypatch: pytest.MonkeyPatch,
        ) -> None:
    """Out of memory, say; the former book stays in use, and another one is taken."""
    connection = pair.robot.connection
    cache = pair.server.sessions[connection.session].cache

    def fail(*books: ScheduleBook, gently: bool) -> None:
        raise MemoryError('the device is full')

    with monkeypatch.context() as patch:
        patch.setattr(cache, 'prepare', fail)
        pair.robot.use_book(another_book(model))
        wait_for(lambda: 'the device is full' in connection.refusal)
        assert_shared(pair, wanted)
    pair.robot.use_book(another_book(model, 0.7))
    wait_for(lambda: used(pair) == 3)
    assert_shared(pair, wanted)


def test_a_book_that_is_refused_late_is_no_refusal_of_the_robot(pair: Pair) -> None:
    """The answer to an offer may come when the robot has begun to greet again."""
    connection = pair.robot.connection
    connection.lost('as if the link had failed')
    pair.robot.handle(Control(ControlKind.REFUSE, connection.session, connection.epoch,
                              body={'reason': 'bad schedule table', 'book': True},
                              server=pair.server.number))
    assert connection.state is State.ALONE
    wait_for(lambda: used(pair) == 1)


def test_editions(model: SharedModel) -> None:
    """What the server has decides which one is used; an answer to an old offer decides nothing."""
    versions = BookVersions()
    assert versions.offer is None and versions.epoch == 0 and versions.books == ()
    assert not versions.confirm(0, '') and not versions.resume({0: ''})
    books = first, second = another_book(model), another_book(model, 0.7)
    one, two = (BookVersion(n + 1, book, 'ab'[n], packed(book.to_json(indented=False)))
                for n, book in enumerate(books))
    assert versions.add(first, 'a') and not versions.add(another_book(model), 'a')
    assert versions.offer == (one, 0)
    assert versions.confirm(1, one.digest)
    assert versions.offer is None and versions.books == (first,)
    assert versions.add(second, 'b') and versions.offer == (two, 1)
    assert not versions.confirm(1, one.digest) and not versions.confirm(2, one.digest)
    assert versions.used == one and versions.books == (second, first)
    assert versions.resume({7: two.digest, 1: one.digest}) and versions.used == one
    assert versions.resume({1: one.digest, 2: two.digest}) and versions.used == two
    assert not versions.resume({7: two.digest, 2: one.digest}) and versions.used is None
    assert versions.offer == (two, 0)


def test_another_book_under_an_epoch_in_use_is_refused(
        pair: Pair, model: SharedModel, wanted: torch.Tensor) -> None:
    """Who sends it in the robot's name changes nothing; under the next epoch, it makes room."""
    connection = pair.robot.connection
    session = pair.server.sessions[connection.session]
    body = {'book': packed(another_book(model, 0.9).to_json()), 'used': 1,
            'fingerprint': ProgramCache(model, ROBOT).fingerprint(another_book(model, 0.9))}
    pair.robot_channel.send(Control(ControlKind.BOOK, session.id, 1, 0, body, pair.server.number))
    wait_for(lambda: pair.server.rejections.by_cause() == {'book': 1})
    assert_shared(pair, wanted)
    pair.robot_channel.send(Control(ControlKind.BOOK, session.id, 2, 0, body, pair.server.number))
    wait_for(lambda: 2 in session.epochs)
    assert_shared(pair, wanted)
    pair.robot.use_book(another_book(model))
    wait_for(lambda: used(pair) == 3)
    assert_shared(pair, wanted)
