# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The robot's side of a session: greeting, book, heartbeat, clock, and probes of the link."""
from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
import secrets
import threading
import time

from intradp_ros.core.steady import Steady
from intradp_ros.core.version import VERSION
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.sending import common_encodings
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.book_versions import BookVersion, BookVersions
from intradp_ros.systems.sharing.book.watch import DelayWatch
from intradp_ros.systems.sharing.policy.sharing_pause import LONGEST_PAUSE, SharingPause
from intradp_ros.systems.sharing.session.awake_clock import Hearing, ServerClock
from intradp_ros.systems.sharing.session.followed_server import (
    FollowedServer,
    validated_digests,
    validated_load,
)
from intradp_ros.systems.sharing.session.probe import Probe, probe_chunks
from intradp_ros.wire.codecs.registry import available
from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError, PROTOCOL
from intradp_ros.wire.sanitise import quoted

Log = Callable[[str], None]
HEARTBEAT = 0.1   # seconds between pings
RETRY = 0.5       # seconds between greetings, and between offers of a book
LIVELY = 1.0      # seconds that a server may be silent and still count as connected
SILENCE = 0.25    # seconds without any frame, pings included, that only a dead link explains
ASLEEP = 0.15     # seconds between two looks at the clock above which this process was stopped


class State(Enum):
    """How far a session has come."""

    ALONE = 'no server'
    GREETED = 'server agreed, no common schedule table yet'
    READY = 'sharing'
    REFUSED = 'refused by the server'


class _Asking:
    """When the server is asked next, by a thread that waits for it until it is `stopped`."""

    def __init__(self) -> None:
        self.at, self.stopped, self.wake = float('-inf'), False, threading.Event()

    def soon(self) -> None:
        """Ask at once."""
        self.at = float('-inf')
        self.wake.set()


class Connection:
    """
    Keeps a session with the server alive from a thread of its own.

    Greets until a server answers, offers the newest book until the server has
    it (inferences go on by the one before), pings, and probes the link while
    nothing else measures it.  A server that was restarted no longer knows the
    session, and everything begins anew.  `newest` is the last inference begun:
    a greeting says that all up to it are over.  `encodings` are those that
    both sides have, `clock` is what the server reports of its clock and load.

    After a failure the server is left alone for as long as `SharingPause`
    says.  Silence is counted while this process runs: `quiet` grows by no
    stop of its own.
    """

    def __init__(self, model: SharedModel, channel: Channel, log: Log,
                 delay_watch: DelayWatch | None = None, stream: int = 0) -> None:
        self.model, self.channel, self.log = model, channel, log
        self.delay_watch, self._stream = delay_watch, stream
        self.session = secrets.randbits(63) | 1
        self.state = State.ALONE
        self.refusal = ''
        self.clock = ServerClock()
        self.followed = FollowedServer()
        self.versions = BookVersions()
        self.newest = 0
        self.encodings: frozenset[str] = frozenset()
        self._complained = float('-inf')
        self._asking = _Asking()
        self._pause, self._probe = SharingPause(), Probe()
        self._hearing = Hearing(time.monotonic(), ASLEEP, SILENCE)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._keep, name='connection', daemon=True)

    def start(self) -> None:
        """Begin to look for the server."""
        self._thread.start()

    def close(self) -> None:
        """Say good-bye and stop."""
        self._asking.stopped = True
        self._asking.wake.set()
        if self.followed.number:
            self.channel.send(Control(ControlKind.BYE, self.session, self.epoch, 0, {},
                                      self.followed.number))
        if self._thread.is_alive():
            self._thread.join(timeout=1.0)

    def offer(self, book: ScheduleBook, fingerprint: str) -> None:
        """
        Use another book from now on, as soon as the server has it too and makes the same of it.

        :raises ValueError: if the book is for another model.
        """
        if book.digest != self.model.digest:
            raise ValueError(f'the book is for model {book.digest}, '
                             f'this robot has {self.model.digest}')
        if self.versions.add(book, fingerprint):
            self._asking.soon()

    def wait_ready(self, timeout: float) -> bool:
        """Wait until inferences can be shared by the newest book; return whether they can."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self.state is State.READY and not self.versions.offer, timeout)

    def handle(self, frame: Control) -> None:
        """
        Take a control frame of this session.

        :raises MalformedFrameError: if only a robot sends such a frame, or its times are
            impossible.
        """
        if frame.kind not in (ControlKind.PONG, ControlKind.WELCOME, ControlKind.REFUSE,
                              ControlKind.BOOK_READY):
            raise MalformedFrameError(f'a robot takes no {frame.kind.name}', 'kind')
        if not self._is_followed(frame):
            return
        self.hear()
        if frame.kind is ControlKind.PONG:
            self._pong(frame)
        elif frame.kind is ControlKind.WELCOME and self.state in (State.ALONE, State.REFUSED):
            self._welcomed(frame)
        elif frame.kind is ControlKind.REFUSE:
            self._refused(frame)
        elif frame.kind is ControlKind.BOOK_READY and self._greeted and \
                self.versions.confirm(frame.epoch, frame.body.get('digest')):
            self.refusal = ''
            self._enter(State.READY)

    def _is_followed(self, frame: Control) -> bool:
        """Return whether a frame comes from the server that is followed, or may be."""
        server, now = frame.server, time.monotonic()
        if not server:
            raise MalformedFrameError(f'a {frame.kind.name} of no server', 'server')
        if self.followed.heard(server, now):
            self._inform_servers(now)
            self._asking.soon()
        if self.followed.number and self.followed.replaced(server, now):
            self._left()
        return self.followed.number in (0, server)

    def _left(self) -> None:
        """Greet the server that is there now: the one that was followed is gone."""
        if self._greeted:
            self.log(f'session {self.session:#x}: the server was restarted')
        self.followed.follow(0)
        self._enter(State.ALONE)
        self._asking.soon()

    def _inform_servers(self, now: float) -> None:
        there = self.followed.there(now)
        if len(there) > 1:
            self.log(f'{len(there)} servers answer to this name: give each a name of its own')

    def hear(self) -> None:
        """Take note that a frame came from the server."""
        self._hearing.hear(time.monotonic())

    @property
    def heard(self) -> float:
        """When a frame came last, seconds of the steady clock; -inf before the first."""
        return self._hearing.heard

    @property
    def awake(self) -> float:
        """Seconds for which this process has run: a steady clock but for its own stops."""
        return self._hearing.awake(time.monotonic())

    @property
    def quiet(self) -> float:
        """Seconds awake in which nothing was heard of the server."""
        return self._hearing.quiet(time.monotonic())

    @property
    def silent(self) -> bool:
        """Whether nothing was heard for half of a silence."""
        return self.quiet > SILENCE / 2

    @property
    def servers(self) -> tuple[int, ...]:
        """Numbers of the servers that answered to the name lately; more than one is a mistake."""
        return self.followed.there(time.monotonic())

    @property
    def epoch(self) -> int:
        """Epoch of the newest book, which the server may not have yet; 0 if there is none."""
        return self.versions.epoch

    @property
    def book(self) -> ScheduleBook | None:
        """The book in use, or one that shall be, if there is any."""
        version = self.versions.used or self.versions.newest
        return version.book if version else None

    @property
    def agreement(self) -> BookVersion | None:
        """The book that both sides have, None while inferences cannot be shared."""
        return self.versions.used if self.state is State.READY else None

    @property
    def alive(self) -> bool:
        """Whether inferences can be shared and the server answered lately."""
        return self.agreement is not None and self.answers

    @property
    def answers(self) -> bool:
        """Whether something was heard of the server lately."""
        return time.monotonic() - self.heard < LIVELY

    def lost(self, reason: str, *, overtaken: bool = False) -> None:
        """
        Take note that the server failed; each time in a row it is left alone for longer.

        One that was `overtaken`, because the robot had the result first while
        it was heard, was busy for a moment, as one that was silent; it goes on.
        """
        if not self._greeted:
            return
        now, pause = time.monotonic(), self._pause.length
        self._hearing.broken = overtaken or self.quiet > SILENCE
        returns = self._pause.failed(self._hearing.broken, now)
        if overtaken and returns:
            self._pause.answered(True)
            return
        until = 'until the server answers' if returns else f'for {pause:.1f} s'
        self.log(f'sharing paused {until}: {reason}')
        self._asking.at = self._pause.until
        self._enter(State.ALONE)

    def succeeded(self) -> None:
        """Take note that an inference was shared."""
        self._pause.succeeded()

    def _enter(self, state: State) -> None:
        with self._changed:
            if state is not self.state and state is not State.ALONE:  # which `lost` has reported
                self.log(f'session {self.session:#x}: {state.value}')
            self.state = state
            self._changed.notify_all()

    def _welcomed(self, frame: Control) -> None:
        body = frame.body
        if self.followed.number != frame.server:
            self.clock = ServerClock()
        self.followed.follow(frame.server)
        self.refusal = ''
        self.encodings = common_encodings(body.get('encodings'))
        kept = self.versions.resume(validated_digests(body.get('books')))
        self._enter(State.READY if kept else State.GREETED)
        self._asking.soon()

    @property
    def _greeted(self) -> bool:
        """Whether the server has agreed to the session."""
        return self.state in (State.GREETED, State.READY)

    def _refused(self, frame: Control) -> None:
        now, reason = time.monotonic(), quoted(frame.body.get('reason', ''))
        if reason != self.refusal and now - self._complained > 1.0:
            self.log(f'the server refuses: {reason}')
            self._complained = now
        self.refusal = reason
        if frame.body.get('taken'):
            self.versions.renumber(frame.epoch)
        if not frame.body.get('book'):
            self._enter(State.REFUSED)
        elif self._greeted and frame.epoch == self.epoch:  # rather wait for another one
            self._asking.at = now + LONGEST_PAUSE

    def _pong(self, frame: Control) -> None:
        sent, server = frame.body.get('robot'), frame.body.get('server')
        if isinstance(sent, float) and isinstance(server, float):
            round_trip = self.clock.update(sent, server, self.heard)
            self.clock.load = validated_load(frame.body.get('load', 1.0))
            if self.delay_watch:
                self.delay_watch.answered(round_trip)
        if self.state is State.ALONE and self._pause.answered(self._hearing.broken):
            self._asking.soon()
        if not self.followed.knows_us(frame.body.get('known') is True or not self._greeted,
                                      time.monotonic()):
            self.lost('the server no longer knows this session')

    def _keep(self) -> None:
        pinged, steady = float('-inf'), Steady(f'session {self.session:#x}', self.log)
        while not self._asking.stopped:
            now = time.monotonic()
            steady.do(partial(self._hearing.awake, now), None)
            if now - pinged >= HEARTBEAT:
                pinged = now
                steady.do(partial(self._ping, now), None)
            steady.do(partial(self._tend, now), None)
            self._asking.wake.wait(max(0.0, pinged + HEARTBEAT - time.monotonic()))
            self._asking.wake.clear()

    def _ping(self, now: float) -> None:
        """Ask the one that has the server's name."""
        self.channel.send(Control(ControlKind.PING, self.session, self.epoch, 0, {'robot': now}))

    def _tend(self, now: float) -> None:
        if now >= self._asking.at:
            self._ask(now)
        if self.state is State.READY:
            self._probe_if_stale(now)

    def _ask(self, now: float) -> None:
        self._asking.at = now + RETRY
        if self.state in (State.ALONE, State.REFUSED):
            for server in self.followed.asked(now):
                self._greet(server)
        elif self._greeted and (offer := self.versions.offer):
            version, used = offer
            self.channel.send(Control(ControlKind.BOOK, self.session, version.epoch, 0, {
                'book': version.text, 'fingerprint': version.fingerprint, 'used': used},
                self.followed.number))

    def _greet(self, server: int) -> None:
        self.channel.send(Control(ControlKind.HELLO, self.session, self.epoch, self.newest, {
            'protocol': PROTOCOL, 'version': VERSION, 'digest': self.model.digest,
            'axis': self.model.split.axis, 'encodings': sorted(available()),
            'stream': self._stream}, server))

    def _probe_if_stale(self, now: float) -> None:
        """Send a few chunks that carry nothing, so that the link's rate stays known."""
        report = self.channel.report()
        if self._probe.due(report.age, now):
            for chunk in probe_chunks(report.send_rate, self.channel.chunk_bytes, self.session,
                                      self.epoch, self.followed.number):
                self.channel.send(chunk)
