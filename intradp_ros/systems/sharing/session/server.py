# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The server's side: sessions with robots, and the inferences it takes part in."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
import math
import queue
import secrets
import threading
import time
from types import MappingProxyType
from typing import Any

from intradp_ros import __version__
from intradp_ros.core.limits import MAX_BOOK_TEXT
from intradp_ros.runtime.arrivals import Arrivals
from intradp_ros.runtime.channel import Channel
from intradp_ros.runtime.interpreter import Execution
from intradp_ros.runtime.mailbox import InferenceAbandonedError, Mailbox
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.sending import (
    common_encodings,
    describe_transfers,
    expected_transfer,
    PROTOCOL,
    SendContext,
    Sender,
)
from intradp_ros.runtime.serial_executor import SerialExecutor
from intradp_ros.runtime.timeline import Recorder
from intradp_ros.runtime.traffic import Traffic
from intradp_ros.runtime.worker_thread import Worker
from intradp_ros.schedule.schedule import SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.book_versions import BookVersion
from intradp_ros.systems.sharing.book.program_cache import Compiled, ProgramCache
from intradp_ros.systems.sharing.session.watch import DriftWatch
from intradp_ros.wire.chunking import check_chunk, ExpectedTransfer, Reassembler, TAMPERED
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame, MalformedFrameError
from intradp_ros.wire.quoting import quoted
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.texts import unpacked

Log = Callable[[str], None]
MAX_SESSIONS = 16
LEASE = 30.0  # seconds of silence after which a session ends
EVICT_AFTER = 2.0  # and after which it makes room for another
MAX_ECHO = 90_000  # bytes that may wait to be sent when a probe is echoed
MAX_OFFERS = 1  # books of a session that may wait to be compiled: the newest
ROBOT_SILENCE = 5.0  # seconds without a chunk after which an inference is given up


@dataclass
class _Inference:
    """One inference that the server takes part in."""

    id: int
    compiled: Compiled
    arrivals: Arrivals
    sender: Sender


class OffloadServer:
    """
    Answers robots on a channel.

    `models` is the catalogue by digest, `names` (if any) what users call them,
    `watches` (if any) look at how long they take.  It answers what is
    addressed to the random number that it drew when it started, and pings.
    Every session has a worker thread; the channel's receive thread only sorts
    frames.
    """

    def __init__(self, channel: Channel, models: Mapping[str, SharedModel], log: Log,
                 watches: Mapping[str, DriftWatch] = MappingProxyType({}),
                 names: Mapping[str, str] = MappingProxyType({})) -> None:
        self.channel, self.models, self.log = channel, dict(models), log
        self.watches, self.names = watches, names
        self.number = secrets.randbits(63) | 1
        self.foreign = 0
        self.rejections = Rejections()
        self._compiling = threading.Lock()
        self.sent, self.received = Traffic(), Traffic()
        self._split: dict[tuple[str, int], SharedModel] = {}
        self.sessions: dict[int, ServerSession] = {}
        channel.listen(self.handle)

    def handle(self, frame: Frame) -> None:
        """Sort one frame; what is malformed is counted and dropped."""
        try:
            if not self._is_addressed(frame):
                self.foreign += 1
            elif isinstance(frame, Chunk):
                self._chunk(frame)
            elif frame.kind is ControlKind.HELLO:
                self._hello(frame)
            elif frame.kind is ControlKind.PING:
                self._ping(frame)
            elif frame.kind is ControlKind.BYE:
                self._session(frame.session).close()
                del self.sessions[frame.session]
            else:
                self._session(frame.session).control(frame)
        except MalformedFrameError as error:
            self.reject(error.cause, str(error))

    def _is_addressed(self, frame: Frame) -> bool:
        """Tell whether a frame is for this server; two may have one name."""
        if not frame.server:
            if isinstance(frame, Control) and frame.kind is ControlKind.PING:
                return True
            raise MalformedFrameError('a frame that is addressed to no server', 'server')
        return frame.server == self.number

    def reject(self, cause: str, text: str) -> None:
        """Count what is rejected; log each cause at most once per second."""
        if self.rejections.count(cause, time.monotonic()):
            self.log(f'rejected ({cause}): {quoted(text)}')

    def close(self) -> None:
        """End all sessions."""
        for session in list(self.sessions.values()):
            session.close()
        self.sessions.clear()
        self.channel.close()

    def _chunk(self, chunk: Chunk) -> None:
        session = self._session(chunk.session)
        if chunk.inference:
            session.chunk(chunk)
        elif self.channel.waiting < MAX_ECHO:
            # a probe: the channel has measured the way up, the echo measures the way down
            self.channel.send(chunk)

    def _session(self, session: int) -> ServerSession:
        if session not in self.sessions:
            raise MalformedFrameError(f'session {session:#x} is unknown', 'session')
        return self.sessions[session]

    def _answer(self, frame: Control, kind: ControlKind, body: Mapping[str, Any]) -> None:
        self.channel.send(Control(kind, frame.session, frame.epoch, frame.inference, body,
                                  self.number))

    def _ping(self, frame: Control) -> None:
        sent = frame.body.get('robot')
        if not isinstance(sent, float) or not math.isfinite(sent):
            raise MalformedFrameError('a ping without its time', 'ping')
        session = self.sessions.get(frame.session)
        now = time.monotonic()
        if session:
            session.heard = now
        self._end_silent(now)
        self._answer(frame, ControlKind.PONG, {
            'robot': sent, 'server': now, 'known': session is not None})

    def _hello(self, frame: Control) -> None:
        reason = self._refusal(frame)
        if reason:
            self.reject('refused', reason)
            self._answer(frame, ControlKind.REFUSE, {'reason': reason})
            return
        encodings = common_encodings(frame.body.get('encodings'))
        self._end_silent(time.monotonic())
        known = self.sessions.get(frame.session)
        if known and not known.agrees(frame.body['digest'], frame.body['axis']):
            self.sessions.pop(frame.session).close()
            known = None
        if known is None and not self._make_room():
            reason = f'all {MAX_SESSIONS} sessions of this server are in use'
            self.reject('full', reason)
            self._answer(frame, ControlKind.REFUSE, {'reason': reason})
            return
        if known is None:
            self._open(frame)
        session = self.sessions[frame.session]
        session.begin_anew(frame.inference, encodings)
        self._answer(frame, ControlKind.WELCOME, {
            'protocol': PROTOCOL, 'version': __version__, 'digest': frame.body['digest'],
            'encodings': sorted(encodings), 'books': session.books})

    def _refusal(self, frame: Control) -> str | None:
        """Say why a robot is refused, naming what both sides have."""
        protocol, wanted = frame.body.get('protocol'), frame.body.get('digest')
        if protocol != PROTOCOL:
            return f'the robot speaks protocol {quoted(protocol)}, this server {PROTOCOL}'
        if not isinstance(wanted, str) or wanted not in self.models:
            have = ', '.join(f'{self.names.get(digest, "a model")} ({digest[:12]})'
                             for digest in self.models) or 'none'
            return (f'the robot has a model of digest {quoted(wanted)[:12]}, this server has '
                    f'{have}: load the same model, weights and input shape on both')
        axis = frame.body.get('axis')
        if not isinstance(axis, int):
            return f'the split axis is {quoted(axis)}, wanted a number'
        try:
            self._model(wanted, axis)
        except ValueError as error:
            return f'the model cannot be split along this axis: {error}'
        return None

    def _model(self, digest: str, axis: int) -> SharedModel:
        """Return a model split along an axis; there are no more of them than dimensions."""
        if (digest, axis) not in self._split:
            self._split[digest, axis] = self.models[digest].with_axis(axis)
        return self._split[digest, axis]

    def _end_silent(self, now: float) -> None:
        """End the sessions of robots that were switched off, say."""
        for session in [s for s in self.sessions.values() if now - s.heard > LEASE]:
            self.sessions.pop(session.id).close()
            self.log(f'session {session.id:#x} ends: nothing was heard for {LEASE:g} s')

    def _make_room(self) -> bool:
        """Return whether there is room for a session; only one that is silent gives way."""
        if len(self.sessions) < MAX_SESSIONS:
            return True
        oldest = min(self.sessions.values(), key=lambda s: s.heard)
        if time.monotonic() - oldest.heard < EVICT_AFTER:
            return False
        self.sessions.pop(oldest.id).close()
        return True

    def _open(self, frame: Control) -> None:
        digest = frame.body['digest']
        model = self._model(digest, frame.body['axis'])
        watch = self.watches.get(digest) if model is self.models[digest] else None
        way = SendContext(self.channel, frame.session,
                          SerialExecutor(f'executor-{frame.session:x}'), self.sent,
                          server=self.number)
        self.sessions[frame.session] = ServerSession(
            way, ProgramCache(model, SERVER, watch, self._compiling), self.received, self.reject,
            self.log)
        self.log(f'session {frame.session:#x} opened for model {digest[:12]}')


class ServerSession:
    """
    One robot's session: its books, its programs, and the inference at hand.

    A book is compiled by a thread of its own, while inferences go on by the
    one that the robot says is in use.
    """

    def __init__(self, way: SendContext, cache: ProgramCache, received: Traffic,
                 reject: Callable[[str, str], None], log: Log) -> None:
        self.id, self.way, self.received = way.session, way, received
        self.cache, self.model = cache, cache.model
        self.reject, self.log = reject, log
        self.heard = time.monotonic()
        self.reassembler = Reassembler(self._expected)
        self._versions: tuple[BookVersion, ...] = ()  # the newest last
        self._offered: tuple[int, object] | None = None  # epoch and text, unless refused
        self._current: _Inference | None = None
        self._newest = 0
        self._books = Worker(self._take_book, self._note, MAX_OFFERS, f'books-{self.id:x}')
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._loop, name=f'session-{self.id:x}', daemon=True).start()

    @property
    def epochs(self) -> list[int]:
        """Epochs of the books that are compiled, the newest last."""
        return [version.epoch for version in self._versions]

    @property
    def books(self) -> list[list[object]]:
        """Epochs and digests of the books that are compiled, the newest last."""
        return [[version.epoch, version.digest] for version in self._versions]

    def agrees(self, digest: str, axis: int) -> bool:
        """Tell whether the session was opened for this model and split axis."""
        return (digest, axis) == (self.model.digest, self.model.split.axis)

    def begin_anew(self, newest: int, encodings: frozenset[str]) -> None:
        """
        Take the robot's word for which inferences are over: it has greeted again.

        `encodings` are those that both sides have.
        """
        self._abandon('the robot greeted again')
        self._newest = newest
        self.way = replace(self.way, encodings=encodings)

    def close(self) -> None:
        """Stop the session's inference and its worker."""
        self._abandon('session closed')
        self.cache.stop()
        self._work.put(None)
        self._books.stop()
        self.way.executor.close()

    def control(self, frame: Control) -> None:
        """Take a control frame of this session."""
        self.heard = time.monotonic()
        if frame.kind is ControlKind.BOOK:
            self._offer(frame)
        elif frame.kind is ControlKind.CANCEL:
            self._cancel(frame)
        else:
            raise MalformedFrameError(f'a server takes no {frame.kind.name}', 'kind')

    def _offer(self, frame: Control) -> None:
        """Let a book be compiled; it is offered again and again until that is done."""
        offered = frame.epoch, frame.body.get('book')
        compiled = next((v for v in self._versions if v.epoch == frame.epoch), None)
        if compiled and compiled.text != offered[1]:
            self._refuse_book(frame, 'another book has this epoch', taken=True)
        elif compiled:
            self._ready(compiled)
        elif offered != self._offered:
            self._offered = offered
            self._books.put(frame)

    def _cancel(self, frame: Control) -> None:
        if frame.inference > self._newest:
            raise MalformedFrameError(f'inference {frame.inference} has not begun', 'stale')
        if self._current and self._current.id == frame.inference:
            self._abandon('cancelled by the robot')

    def chunk(self, chunk: Chunk) -> None:
        """Take a chunk; the first one of an inference starts it."""
        self.heard = time.monotonic()
        current = self._current
        if current is None or current.id != chunk.inference:
            book = self._book(chunk.epoch)
            if chunk.inference > self._newest:
                self._start(chunk, book)
            current = self._current
        if current is None or current.id != chunk.inference:
            raise MalformedFrameError(f'inference {chunk.inference} is over', 'stale')
        try:
            current.arrivals.add(chunk)
        except MalformedFrameError as error:
            if error.cause == TAMPERED:
                self._tampered(current)
            raise

    def _tampered(self, inference: _Inference) -> None:
        """Give up an inference whose rows came in two versions, and say so."""
        self._abandon('rows came in two versions')
        self._reply(ControlKind.FAILED, inference.sender.epoch, inference.id, {
            'reason': 'rows came in two versions: somebody speaks as the robot',
            'tampered': True})

    def _book(self, epoch: int) -> ScheduleBook:
        for version in self._versions:
            if version.epoch == epoch:
                return version.book
        have = ', '.join(map(str, self.epochs)) or 'no book'
        raise MalformedFrameError(f'epoch {epoch}, this session has {have}', 'epoch')

    def _expected(self, chunk: Chunk) -> ExpectedTransfer | None:
        current = self._current
        if current is None:
            return None
        sender = current.sender
        if (chunk.inference, chunk.epoch, chunk.schedule) != \
                (current.id, sender.epoch, sender.schedule_id):
            return None
        return expected_transfer(self.model.split, current.compiled.schedule, chunk.transfer,
                                 SERVER)

    def _start(self, chunk: Chunk, book: ScheduleBook) -> None:
        entries = book.entries
        if chunk.schedule >= len(entries):
            raise MalformedFrameError(
                f'schedule {chunk.schedule}, the book has {len(entries)}', 'schedule')
        compiled = self.cache.get(entries[chunk.schedule].partition)
        expected = expected_transfer(self.model.split, compiled.schedule, chunk.transfer, SERVER)
        if expected is None:
            raise MalformedFrameError(
                f'schedule {chunk.schedule} has no transfer {chunk.transfer} to the server',
                'unexpected')
        check_chunk(chunk, expected)  # before it ends the inference at hand
        self._abandon('a newer inference began')
        names = describe_transfers(self.model.split, compiled.schedule)
        arrivals = Arrivals(Mailbox(_robot_patience), self.reassembler, 'uplink', names,
                            self.received)
        sender = Sender(self.way, compiled.schedule, chunk.epoch, chunk.inference,
                        chunk.schedule, chunk.stamp, 'downlink', names, arrivals.mailbox.fail)
        inference = _Inference(chunk.inference, compiled, arrivals, sender)
        self._newest, self._current = chunk.inference, inference
        self._work.put(lambda: self._infer(inference))

    def _abandon(self, reason: str) -> None:
        current, self._current = self._current, None
        if current:
            current.arrivals.mailbox.fail(reason)
            current.sender.stop()
            self.reassembler.drop(current.id)

    def _loop(self) -> None:
        while (work := self._work.get()) is not None:
            try:
                work()
            except Exception as error:  # noqa: B902 - one bad inference must not end the session
                self._note(error)

    def _note(self, error: Exception) -> None:
        self.log(f'session {self.id:#x}: {type(error).__name__}: {error}')

    def _take_book(self, frame: Control) -> None:
        """Compile all schedules of a book, then say that they can be named."""
        kept = tuple(e for e in self._versions
                     if e.epoch == frame.body.get('used') and e.epoch != frame.epoch)
        try:
            version = self._compiled(frame, kept)
        except Exception as error:  # noqa: B902 - the book's fault, or out of memory: say so
            self._offered = None
            self._refuse_book(frame, str(error))
            return
        self._versions = (*kept, version)
        self._ready(version)

    def _ready(self, version: BookVersion) -> None:
        self._reply(ControlKind.BOOK_READY, version.epoch, 0, {'digest': version.digest})

    def _refuse_book(self, frame: Control, reason: str, *, taken: bool = False) -> None:
        self.reject('book', reason)
        self._reply(ControlKind.REFUSE, frame.epoch, 0, {
            'reason': f'bad book: {quoted(reason)}', 'book': True, 'taken': taken})

    def _compiled(self, frame: Control, kept: tuple[BookVersion, ...]) -> BookVersion:
        """Return the book of a frame, compiled beside those that are kept; raise if it is bad."""
        text = frame.body['book']
        book = ScheduleBook.from_json(unpacked(text, MAX_BOOK_TEXT))
        wanted = (self.model.digest, self.model.split.axis)
        if (book.digest, book.axis) != wanted:
            raise ValueError(f'the book is for model {book.digest} split along axis '
                             f'{book.axis}, not {wanted[0]} along {wanted[1]}')
        self.cache.prepare(*(e.book for e in kept), book, gently=bool(kept))
        fingerprint = self.cache.fingerprint(book)
        if frame.body.get('fingerprint') != fingerprint:
            raise ValueError('robot and server make different schedules of it: install the '
                             f'same release of intradp_ros on both (here {__version__})')
        return BookVersion(frame.epoch, book, fingerprint, text)

    def _infer(self, inference: _Inference) -> None:
        """Run the server's program; report times, or why it failed."""
        recorder = Recorder('server')
        execution = Execution(inference.compiled.program, recorder,
                              inference.arrivals.mailbox, inference.sender)
        try:
            execution.run({})
        except InferenceAbandonedError:
            self.cache.ran(inference.compiled, recorder.events, complete=False)
            return
        except Exception as error:  # noqa: B902 - out of memory, a kernel's error: the robot goes on
            reason = f'{type(error).__name__}: {error}'
            self.log(f'inference {inference.id} failed: {reason}')
            self._reply(ControlKind.FAILED, inference.sender.epoch, inference.id,
                        {'reason': reason[:500]})
            return
        finally:
            self._done(inference)
        self.cache.ran(inference.compiled, recorder.events)
        events = [*recorder.events, *inference.arrivals.events, *inference.sender.events]
        self._reply(ControlKind.REPORT, inference.sender.epoch, inference.id, {
            'events': [e.to_list() for e in events]})

    def _done(self, inference: _Inference) -> None:
        """Let go of an inference that has ended; what still comes for it is stale."""
        if self._current is inference:
            self._current = None
        self.reassembler.drop(inference.id)

    def _reply(self, kind: ControlKind, epoch: int, inference: int, body: Mapping[str, Any],
               ) -> None:
        self.way.channel.send(Control(kind, self.id, epoch, inference, body, self.way.server))


def _robot_patience(waited: float) -> str | None:
    return 'the robot is silent' if waited > ROBOT_SILENCE else None

