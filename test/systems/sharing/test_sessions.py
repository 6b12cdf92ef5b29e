# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sessions under frames that nobody should send: refused, counted, and sharing goes on."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
import threading
import time
from typing import Any

import pytest
from sharing import (
    assert_equal,
    ENDLESS,
    FixedRate,
    hand_made_book,
    infer_until_shared,
    sharing_pair,
    SOURCE,
    TIMEOUT,
)
from small_models import seeded, UNet
import torch
from waiting import wait_for

from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.connection import State
from intradp_ros.systems.sharing.session.greeting import EVICT_AFTER, LEASE, USUAL_SESSIONS
from intradp_ros.systems.sharing.session.pair import Pair
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import MAX_ECHO, OffloadServer
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.frames import Chunk, Control, ControlKind, PROTOCOL
from intradp_ros.wire.texts import packed

HUGE = 2**63


@pytest.fixture(scope='module')
def other_model() -> SharedModel:
    return share_module(seeded(UNet, 32, 48, seed=1), (SOURCE,))


@pytest.fixture
def pair(model: SharedModel) -> Iterator[Pair]:
    """Return a pair that shares; it must not be late only for being led astray."""
    patience = PatiencePolicy(silence=TIMEOUT, late_slack=2.0)
    with sharing_pair(model, patience=patience) as pair:
        yield pair


class Stranger:
    """The robot's end of a link to a server, with nothing but the test behind it."""

    def __init__(self, models: Mapping[str, SharedModel], rate: float | None = None) -> None:
        self.channel, far = memory_pair(rate=rate)
        self.server = OffloadServer(far, models, lambda text: None)
        self.frames: list[Any] = []
        self.channel.listen(self.frames.append)

    def ask(self, frame: Control) -> Control:
        """Send a frame and return the answer."""
        before = len(self.frames)
        self.channel.send(replace(frame, server=self.server.number))
        wait_for(lambda: len(self.frames) > before)
        return self.frames[before]

    def greets(self, frame: Control) -> bool:
        """Greet as a robot does, again and again; return whether it was welcome."""
        before = len(self.frames)
        self.channel.send(replace(frame, server=self.server.number))
        time.sleep(0.05)
        return any(f.kind is ControlKind.WELCOME for f in self.frames[before:])

    def close(self) -> None:
        self.channel.close()
        self.server.close()


@pytest.fixture
def stranger(model: SharedModel) -> Iterator[Stranger]:
    stranger = Stranger({model.digest: model})
    yield stranger
    stranger.close()


def hello(model: SharedModel, session: int = 5, **changes: Any) -> Control:
    body = {'protocol': PROTOCOL, 'version': '', 'digest': model.digest, 'axis': 3, **changes}
    return Control(ControlKind.HELLO, session, body=body)


def seen_by(model: SharedModel) -> str:
    """Return what a robot makes of `hand_made_book`."""
    return ProgramCache(model, ROBOT).fingerprint(hand_made_book(model))


@pytest.mark.parametrize(('theirs', 'common'), [
    (['lz4', 'zstd', 'none', 'gzip'], ['lz4', 'zstd']), ([], []), (None, []), ('zstd', []),
    ({'zstd': 1}, []), ([1, None, ['zstd'], {'zstd': 2}], [])])
def test_encodings_are_those_of_both_sides(
        stranger: Stranger, model: SharedModel, theirs: object, common: list[str]) -> None:
    """What a robot says that it has is only ever compared."""
    answer = stranger.ask(hello(model, encodings=theirs))
    assert answer.kind is ControlKind.WELCOME
    assert answer.body['encodings'] == common


@pytest.mark.parametrize(('changes', 'reason'), [
    ({'protocol': 4}, f'protocol 4, this server {PROTOCOL}'),
    ({'protocol': None}, 'protocol None'),
    ({'digest': 'abc'}, 'abc'),
    ({'digest': ['a', {}]}, 'model'),
    ({'digest': None}, 'None'),
    ({'digest': 'x' * 10**6}, 'xxx'),
    ({'digest': '\ud800'}, r'\ud800'),
    ({'axis': 'rows'}, 'axis is rows, wanted a number'),
    ({'axis': 17}, 'split axis 17 is not a dimension'),
    ({'axis': -10**30}, 'not a dimension'),
    ({'axis': 0}, 'one row only'),
])
def test_greetings_are_refused_with_a_reason(
        stranger: Stranger, model: SharedModel, changes: dict[str, Any], reason: str) -> None:
    """The reason is short, names what is at fault, and opens no session."""
    answer = stranger.ask(hello(model, **changes))
    assert answer.kind is ControlKind.REFUSE
    assert reason in answer.body['reason'] and len(answer.body['reason']) < 1000
    assert not stranger.server.sessions
    assert stranger.server.rejections.by_cause() == {'refused': 1}


def test_another_digest_is_refused_with_both_named(
        stranger: Stranger, model: SharedModel, other_model: SharedModel) -> None:
    """Same network, other weights."""
    reason = stranger.ask(hello(other_model)).body['reason']
    assert model.digest[:12] in reason and other_model.digest[:12] in reason


def test_a_session_along_another_axis(stranger: Stranger, model: SharedModel) -> None:
    """The robot's axis counts; greeting again with another one opens the session anew."""
    for axis in (3, 2, 3):
        wait_for(lambda axis=axis: stranger.greets(hello(model, axis=axis)))
        assert stranger.server.sessions[5].model.split.axis == axis


def test_a_model_that_is_being_split_holds_up_nobody(
        stranger: Stranger, model: SharedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may take seconds; others are answered meanwhile, and the robot once it is done."""
    go, split = threading.Event(), SharedModel.with_axis

    def slowly(model: SharedModel, axis: int) -> SharedModel:
        assert go.wait(TIMEOUT)
        return split(model, axis)

    monkeypatch.setattr(SharedModel, 'with_axis', slowly)
    stranger.channel.send(replace(hello(model, axis=2), server=stranger.server.number))
    assert stranger.ask(Control(ControlKind.PING, 6, body={'robot': 1.0})).kind is ControlKind.PONG
    assert stranger.ask(hello(model, session=6)).kind is ControlKind.WELCOME
    assert [frame.kind for frame in stranger.frames] == [ControlKind.PONG, ControlKind.WELCOME]
    go.set()
    wait_for(lambda: stranger.greets(hello(model, axis=2)))
    assert stranger.server.sessions[5].model.split.axis == 2


@pytest.mark.parametrize('book', [
    None, 5, '', '{}', 'é', packed('{}')[:-4], packed('{}') + packed('{}'),
    lambda good: '', lambda good: '[]', lambda good: '{}', lambda good: '[' * 100_000,
    lambda good: ' ' * 2**23 + good, lambda good: '{"format": "intradp-schedule-book/2"}',
    lambda good: good.replace('"share": 0.5', '"share": 1e999'),
    lambda good: good.replace('"stop": ', '"stop": 1e999, "was": '),
    lambda good: good.replace('"robot_bands": 2', '"robot_bands": 100000000'),
    lambda good: good.replace('"entries": [', '"entries": [], "were": ['),
    lambda good: good.replace('"mbps": 100.0', '"mbps": NaN'),
    lambda good: good.replace('"axis": 3', '"axis": 2'),
    lambda good: good.replace('"digest": "', '"digest": "0'),
])
def test_bad_books_are_refused(stranger: Stranger, model: SharedModel, book: Any) -> None:
    """Each is counted once, and a good book is taken after it."""
    good = hand_made_book(model).to_json()
    bad = packed(book(good)) if callable(book) else book
    assert bad != packed(good)
    stranger.ask(hello(model))
    answer = stranger.ask(Control(ControlKind.BOOK, 5, 1, body={'book': bad}))
    assert answer.kind is ControlKind.REFUSE and 'bad schedule table' in answer.body['reason']
    assert stranger.server.rejections.by_cause() == {'book': 1}
    answer = stranger.ask(Control(
        ControlKind.BOOK, 5, 2, body={'book': packed(good), 'fingerprint': seen_by(model)}))
    assert (answer.kind, answer.epoch) == (ControlKind.BOOK_READY, 2)


@pytest.mark.parametrize('theirs', [
    None, '', 5, [], 'x' * 10**6, lambda good: good[:-1], lambda good: good.upper()])
def test_books_that_the_sides_read_differently_are_refused(
        stranger: Stranger, model: SharedModel, theirs: Any) -> None:
    """Nothing would show later that a transfer carries other rows than the server takes it for."""
    good = seen_by(model)
    body = {'book': packed(hand_made_book(model).to_json()),
            'fingerprint': theirs(good) if callable(theirs) else theirs}
    stranger.ask(hello(model))
    answer = stranger.ask(Control(ControlKind.BOOK, 5, 1, body=body))
    assert answer.kind is ControlKind.REFUSE and 'same release' in answer.body['reason']
    assert stranger.server.rejections.by_cause() == {'book': 1}
    assert not stranger.server.sessions[5].epochs
    answer = stranger.ask(Control(ControlKind.BOOK, 5, 1, body={**body, 'fingerprint': good}))
    assert answer.kind is ControlKind.BOOK_READY


def test_of_many_books_the_newest_is_compiled(
        stranger: Stranger, model: SharedModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes while one compiles waits as one, so that nobody's books fill the memory."""
    go, prepare, compiled = threading.Event(), ProgramCache.prepare, []

    def slowly(self: ProgramCache, *books: ScheduleBook, **named: Any) -> None:
        compiled.append(books)
        assert go.wait(TIMEOUT)
        prepare(self, *books, **named)

    monkeypatch.setattr(ProgramCache, 'prepare', slowly)
    stranger.ask(hello(model))
    body = {'book': packed(hand_made_book(model).to_json()), 'fingerprint': seen_by(model)}
    for epoch in range(1, 31):
        stranger.channel.send(Control(ControlKind.BOOK, 5, epoch, body=body,
                                      server=stranger.server.number))
        wait_for(lambda: compiled)
    stranger.ask(Control(ControlKind.PING, 5, body={'robot': 1.0}))  # all 30 have come
    go.set()
    wait_for(lambda: len(stranger.frames) >= 4)
    ready = [f.epoch for f in stranger.frames if f.kind is ControlKind.BOOK_READY]
    assert ready == [1, 30] and len(compiled) == 2


def test_sessions_that_begin_and_end_leave_no_threads(
        stranger: Stranger, model: SharedModel) -> None:
    """HELLO, BOOK and BYE again and again: what compiled for a session ends with it."""
    body = {'book': packed(hand_made_book(model).to_json()), 'fingerprint': seen_by(model)}
    before = threading.active_count()
    for session in range(1, 41):
        stranger.ask(hello(model, session))
        for kind in (ControlKind.BOOK, ControlKind.BYE):
            stranger.channel.send(Control(kind, session, 1, body=body,
                                          server=stranger.server.number))
    wait_for(lambda: not stranger.server.sessions)
    wait_for(lambda: threading.active_count() <= before)


def test_probes_without_end_are_echoed_as_far_as_the_link_takes_them(model: SharedModel) -> None:
    """Echoes that would only wait are dropped, no matter who asks for them."""
    stranger = Stranger({model.digest: model}, rate=1e5)
    try:
        stranger.ask(hello(model))
        probe = Chunk(session=5, server=stranger.server.number, epoch=0, inference=0, schedule=0,
                      transfer=0, value=0, start=0, stop=0, chunk=0, count=1, dtype_code=1,
                      dtype_bits=8, codec=0, shape=(30_000,), data=bytes(30_000))
        for _ in range(1000):
            stranger.server.handle(probe)
        assert MAX_ECHO <= stranger.server.channel.waiting < MAX_ECHO + 30_000
    finally:
        stranger.close()


def test_who_is_silent_makes_room(stranger: Stranger, model: SharedModel) -> None:
    """A robot that was heard lately keeps its session, no matter who else comes."""
    assert USUAL_SESSIONS > 2
    for session in range(1, USUAL_SESSIONS + 1):
        stranger.ask(hello(model, session))
    refused = stranger.ask(hello(model, 100))
    assert refused.kind is ControlKind.REFUSE and 'in use' in refused.body['reason']
    assert sorted(stranger.server.sessions) == list(range(1, USUAL_SESSIONS + 1))
    for kept in stranger.server.sessions.values():
        kept.heard -= EVICT_AFTER
    assert stranger.ask(Control(ControlKind.PING, 1, body={'robot': 1.0})).body['known']
    stranger.ask(hello(model, 100))
    assert sorted(stranger.server.sessions) == [1, *range(3, USUAL_SESSIONS + 1), 100]
    assert not stranger.ask(Control(ControlKind.PING, 2, body={'robot': 1.0})).body['known']


def test_sessions_of_robots_that_vanished_end(stranger: Stranger, model: SharedModel) -> None:
    """Anyone else who pings makes the server look."""
    for session in (1, 2):
        stranger.ask(hello(model, session))
    stranger.server.sessions[1].heard -= LEASE
    stranger.ask(Control(ControlKind.PING, 2, body={'robot': 1.0}))
    assert list(stranger.server.sessions) == [2]


@pytest.mark.parametrize('frame', [
    Control(ControlKind.HELLO, 5, server=7), Control(ControlKind.BYE, 5, server=7),
    Control(ControlKind.PING, 5, body={'robot': 1.0}, server=7)])
def test_frames_for_other_servers_are_left_to_them(stranger: Stranger, frame: Control) -> None:
    """Two servers of one name hear the same frames; only pings are for all who hear them."""
    stranger.channel.send(frame)
    assert stranger.ask(Control(ControlKind.PING, 5, body={'robot': 1.0})).body['robot'] == 1.0
    assert stranger.server.foreign == 1 and len(stranger.frames) == 1
    assert not stranger.server.rejections.by_cause()


@pytest.mark.parametrize('body', [{}, {'robot': '1'}, {'robot': float('inf')}, {'robot': []}])
def test_pings_without_a_time_are_rejected(stranger: Stranger, body: dict[str, Any]) -> None:
    """The answer to a good one carries its time and nothing else of it."""
    stranger.channel.send(Control(ControlKind.PING, 5, body=body))
    answer = stranger.ask(Control(ControlKind.PING, 5, body={'robot': 2.5, 'more': 'x' * 999}))
    assert set(answer.body) == {'robot', 'server', 'known', 'load'} and answer.body['robot'] == 2.5
    assert stranger.server.rejections.by_cause() == {'ping': 1}


def a_chunk(pair: Pair, **changes: Any) -> Chunk:
    """Return a chunk of the inference at hand, as it should be but for the changes."""
    session = pair.server.sessions[pair.robot.connection.session]
    chunk = Chunk(session=session.id, server=pair.server.number,
                  epoch=pair.robot.connection.epoch, inference=HUGE,
                  schedule=1, transfer=1, value=0, start=0, stop=48, chunk=0, count=1,
                  dtype_code=2, dtype_bits=32, codec=0, shape=(1, 3, 32, 48),
                  data=bytes(4 * SOURCE.numel()))
    return replace(chunk, **changes)


@pytest.mark.parametrize(('changes', 'cause'), [
    ({'session': 1}, 'session'), ({'epoch': 99}, 'epoch'), ({'inference': 1}, 'stale'),
    ({'schedule': 4}, 'schedule'), ({'schedule': 0}, 'unexpected'),
    ({'transfer': 10**6}, 'unexpected'), ({'value': 3}, 'value'), ({'stop': 47}, 'region'),
    ({'dtype_bits': 64}, 'dtype'), ({'shape': (2**31,) * 9}, 'shape'), ({'count': 7}, 'size'),
    ({'count': 10**9}, 'count'), ({'data': b''}, 'size'), ({'codec': 7}, 'codec'),
    ({'session': 1, 'inference': 0}, 'session')])
def test_chunks_that_do_not_fit_are_rejected(
        pair: Pair, wanted: torch.Tensor, changes: dict[str, Any], cause: str) -> None:
    """They start nothing, and the next inference is shared as if they had not been."""
    for _ in range(2):
        infer_until_shared(pair.robot, (SOURCE,), wanted)
    pair.server.handle(a_chunk(pair, **changes))
    assert pair.server.rejections.by_cause() == {cause: 1}
    outcome = pair.robot.infer((SOURCE,))
    assert outcome.stats.shared
    assert_equal(outcome.outputs, wanted)


def test_a_session_that_was_led_astray_begins_anew(pair: Pair, wanted: torch.Tensor) -> None:
    """A forged chunk of a far later inference makes one inference late, no more."""
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    pair.server.handle(a_chunk(pair))
    outcome = pair.robot.infer((SOURCE,), strategy=OFFLOAD)
    assert outcome.stats.recovered and outcome.stats.reason.startswith('late')
    assert_equal(outcome.outputs, wanted)
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    before = pair.server.rejections.by_cause()['stale']
    pair.server.handle(a_chunk(pair, inference=2))  # still over
    assert pair.server.rejections.by_cause()['stale'] == before + 1 > 1


def test_old_chunks_are_stale(pair: Pair, wanted: torch.Tensor) -> None:
    """What is played again after its inference is counted on both sides and changes nothing."""
    up, down = [], []
    pair.server_channel.listen(lambda f: (up.append(f), pair.server.handle(f)))
    pair.robot_channel.listen(lambda f: (down.append(f), pair.robot.handle(f)))
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    again = {'up': [f for f in up if isinstance(f, Chunk) and f.inference],
             'down': [f for f in down if isinstance(f, Chunk) and f.inference]}
    wait_for(lambda: any(f.kind is ControlKind.REPORT for f in down if isinstance(f, Control)))
    for frame in again['up']:
        pair.server.handle(frame)
    for frame in again['down']:
        pair.robot.handle(frame)
    assert pair.server.rejections.total == len(again['up']) > 1
    assert pair.robot.rejections.total == len(again['down']) > 1
    outcome = pair.robot.infer((SOURCE,))
    assert outcome.stats.shared
    assert_equal(outcome.outputs, wanted)


@pytest.mark.parametrize('way', ['up', 'down'])
def test_rows_on_their_way_when_the_robot_gives_up_are_no_fault(
        model: SharedModel, wanted: torch.Tensor, way: str) -> None:
    """They come when the robot has finished alone: nothing is rejected, nothing changes."""
    with sharing_pair(model, patience=PatiencePolicy(silence=TIMEOUT, late_slack=0.2)) as pair:
        infer_until_shared(pair.robot, (SOURCE,), wanted)
        channel, side = (pair.server_channel, pair.server) if way == 'up' else (
            pair.robot_channel, pair.robot)
        passed, held = list[Chunk](), list[Chunk]()

        def late(frame: Any) -> None:
            if isinstance(frame, Chunk) and frame.inference:
                (held if passed or way == 'down' else passed).append(frame)
            if frame not in held:
                side.handle(frame)
        channel.listen(late)
        outcome = pair.robot.infer((SOURCE,))
        assert outcome.stats.recovered and outcome.stats.reason.startswith('late')
        wait_for(lambda: held)
        for frame in held:
            side.handle(frame)
        assert not pair.robot.rejections.total and not pair.server.rejections.total
        channel.listen(side.handle)
        infer_until_shared(pair.robot, (SOURCE,), wanted)


ROBOT_FRAMES = [
    (ControlKind.HELLO, {}, 'kind'), (ControlKind.BOOK, {}, 'kind'), (ControlKind.BYE, {}, 'kind'),
    (ControlKind.CANCEL, {}, 'kind'),
    (ControlKind.PONG, {'robot': 1e300, 'server': 1.0, 'known': True}, 'pong'),
    (ControlKind.PONG, {'robot': float('-inf'), 'server': 1.0, 'known': True}, 'pong'),
    (ControlKind.PONG, {'robot': 0.0, 'server': float('inf'), 'known': True}, 'pong'),
    (ControlKind.REPORT, {'events': 5}, 'report'),
    (ControlKind.REPORT, {'events': [['a', 'b', 'c', 0.0]]}, 'report'),
    (ControlKind.REPORT, {'events': [['a', 'b', 'c', 0.0, 10**400]]}, 'report'),
    (ControlKind.REPORT, {'events': [['a', 'b', 'c', 0.0, float('inf')]]}, 'report'),
    (ControlKind.REPORT, {'events': [[1, 'b', 'c', 0.0, 1.0]]}, 'report'),
]


@pytest.mark.parametrize(('kind', 'body', 'cause'), ROBOT_FRAMES)
def test_frames_that_a_robot_does_not_take(
        pair: Pair, wanted: torch.Tensor, kind: ControlKind, body: dict[str, Any], cause: str,
        ) -> None:
    """They are counted; the clock and the next inference are as before."""
    outcome = infer_until_shared(pair.robot, (SOURCE,), wanted)
    connection = pair.robot.connection
    pair.robot.handle(Control(kind, connection.session, inference=outcome.stats.inference,
                              body=body, server=pair.server.number))
    assert pair.robot.rejections.by_cause() == {cause: 1}
    assert abs(connection.clock.offset) < TIMEOUT
    assert pair.robot.infer((SOURCE,)).stats.shared


@pytest.mark.parametrize('kind', [ControlKind.REPORT, ControlKind.FAILED])
def test_news_of_an_inference_that_has_not_begun(pair: Pair, kind: ControlKind) -> None:
    """It is counted; news that come too late are not."""
    session = pair.robot.connection.session
    pair.robot.infer((SOURCE,), strategy=LOCAL)
    pair.robot.handle(Control(kind, session, inference=1, server=pair.server.number))
    assert pair.robot.rejections.total == 0
    pair.robot.handle(Control(kind, session, inference=HUGE, server=pair.server.number))
    assert pair.robot.rejections.by_cause() == {'stale': 1}


@pytest.mark.parametrize(('kind', 'body'), [
    (ControlKind.REFUSE, {'reason': 'go away'}), (ControlKind.PONG, {'known': False}),
    (ControlKind.BOOK_READY, {}), (ControlKind.WELCOME, {})])
def test_false_answers_only_pause_the_sharing(
        pair: Pair, wanted: torch.Tensor, kind: ControlKind, body: dict[str, Any]) -> None:
    """The robot asks again and finds the server as it is."""
    connection = pair.robot.connection
    pair.robot.handle(Control(kind, connection.session, connection.epoch, body=body,
                              server=pair.server.number))
    infer_until_shared(pair.robot, (SOURCE,), wanted)
    assert connection.refusal == ''


def test_a_refused_robot_runs_alone_and_says_why(
        model: SharedModel, other_model: SharedModel, wanted: torch.Tensor) -> None:
    """Other weights on the server: never shared, always answered; a repaired server is found."""
    near, far = memory_pair()
    server = OffloadServer(far, {other_model.digest: other_model}, lambda text: None)
    log: list[str] = []
    robot = RobotClient(model, near, FixedRate(100.0), log.append, patience=ENDLESS)
    with Pair(robot, server, near, far):
        robot.use_book(hand_made_book(model))
        wait_for(lambda: robot.connection.state is State.REFUSED)
        assert model.digest[:12] in robot.connection.refusal
        assert other_model.digest[:12] in robot.connection.refusal
        outcome = robot.infer((SOURCE,))
        assert not outcome.stats.shared and not outcome.stats.recovered
        assert_equal(outcome.outputs, wanted)
        server.models[model.digest] = model
        infer_until_shared(robot, (SOURCE,), wanted)
    assert len([line for line in log if 'refuses' in line]) == 1


def test_a_book_without_a_strategy(model: SharedModel, wanted: torch.Tensor) -> None:
    """What the book does not have runs on the robot; what nobody knows is an error."""
    book = hand_made_book(model)
    only = replace(book, entries=tuple(e for e in book.entries if e.strategy == SHARED))
    with sharing_pair(model, only) as pair:
        assert pair.robot.infer((SOURCE,)).stats.shared
        for strategy in (OFFLOAD, LOCAL):
            outcome = pair.robot.infer((SOURCE,), strategy=strategy)
            assert not outcome.stats.shared
            assert_equal(outcome.outputs, wanted)
        with pytest.raises(ValueError, match='no strategy .magic.; there are local'):
            pair.robot.infer((SOURCE,), strategy='magic')


def test_schedules_of_rivals_run_where_the_book_has_them(model: SharedModel,
                                                         wanted: torch.Tensor) -> None:
    """The laboratory adds them, and tables of before hold them."""
    book = hand_made_book(model)
    rival = replace(next(e for e in book.entries if e.strategy == SHARED), strategy='dsccs')
    read = ScheduleBook.from_json(replace(book, entries=(*book.entries, rival)).to_json())
    with sharing_pair(model, read) as pair:
        outcome = pair.robot.infer((SOURCE,), strategy='dsccs')
        assert outcome.stats.shared
        assert_equal(outcome.outputs, wanted)


def test_a_book_of_another_model_is_refused(pair: Pair, other_model: SharedModel) -> None:
    """The error names both; the book in use stays."""
    book = pair.robot.connection.book
    with pytest.raises(ValueError, match=other_model.digest):
        pair.robot.use_book(hand_made_book(other_model))
    assert pair.robot.connection.book is book
    assert pair.robot.infer((SOURCE,)).stats.shared


def test_the_same_book_again_interrupts_nothing(pair: Pair, model: SharedModel) -> None:
    """As when the planner was restarted; another one is agreed on."""
    book = hand_made_book(model)
    pair.robot.use_book(ScheduleBook.from_json(book.to_json()))
    assert pair.robot.connection.epoch == 1
    assert pair.robot.infer((SOURCE,)).stats.shared
    pair.robot.use_book(hand_made_book(model, predicted=0.02))
    assert pair.robot.infer((SOURCE,)).stats.shared
    assert pair.robot.connection.epoch == 2
