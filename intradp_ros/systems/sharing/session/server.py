# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The server's side: answers robots that greet it, and gives each a session."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import math
import secrets
import threading
import time
from types import MappingProxyType
from typing import Any

from intradp_ros.core.version import VERSION
from intradp_ros.runtime.execution.processor import Processor
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.sending import common_encodings, SendContext
from intradp_ros.runtime.transport.serial_executor import SerialExecutor
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.schedule.schedule import SERVER
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.book.watch import DriftWatch
from intradp_ros.systems.sharing.session.greeting import (
    ended,
    gives_way,
    LEASE,
    refusal,
    USUAL_SESSIONS,
)
from intradp_ros.systems.sharing.session.server_session import ServerSession
from intradp_ros.systems.sharing.session.split_models import SplitModels
from intradp_ros.wire.frames import (
    Chunk,
    Control,
    ControlKind,
    Frame,
    MalformedFrameError,
    PROTOCOL,
)
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted

Log = Callable[[str], None]
MAX_ECHO = 90_000  # bytes that may wait to be sent when a probe is echoed


class OffloadServer:
    """
    Answers robots on a channel.

    `models` is the catalogue by digest, `names` (if any) what users call them,
    `watches` (if any) look at how long they take.  It answers what is
    addressed to the random number that it drew when it started, and pings.
    Every session has a worker thread; the channel's receive thread only sorts
    frames.  Robots take turns on the `processor`, a stream of several sessions
    as one; they hear from the answers
    to their pings how much longer they compute for it; there are at most
    `max_sessions`.
    """

    def __init__(self, channel: Channel, models: Mapping[str, SharedModel], log: Log,
                 watches: Mapping[str, DriftWatch] = MappingProxyType({}),
                 names: Mapping[str, str] = MappingProxyType({}), *,
                 processor: Processor | None = None, max_sessions: int = USUAL_SESSIONS) -> None:
        self.channel, self.models, self.log = channel, dict(models), log
        self.watches, self.names, self.max_sessions = dict(watches), dict(names), max_sessions
        self.processor = processor or Processor()
        self.number = secrets.randbits(63) | 1
        self.foreign = 0
        self.rejections = Rejections()
        self._compiling = threading.Lock()
        self.sent, self.received = Traffic(), Traffic()
        self._split = SplitModels(self.models, lambda error: self.reject('split', str(error)))
        self.sessions: dict[int, ServerSession] = {}
        channel.listen(self.handle)

    def add(self, model: SharedModel, name: str, watch: DriftWatch | None = None) -> None:
        """Serve another model from now on; sessions of the others go on."""
        self.names[model.digest] = name
        if watch:
            self.watches[model.digest] = watch
        self._split.add(model)
        self.models = {**self.models, model.digest: model}

    def forget(self, digest: str) -> None:
        """Begin no more sessions of a model; those that there are go on."""
        self.models = {key: model for key, model in self.models.items() if key != digest}
        self._split.forget(digest)

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
                self.sessions.pop(frame.session, None)  # a server that ends forgets all
            else:
                self._session(frame.session).control(frame)
        except MalformedFrameError as error:
            self.reject(error.cause, str(error))

    def _is_addressed(self, frame: Frame) -> bool:
        """Return whether a frame is for this server; two may have one name."""
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
        self._split.close()
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
            'robot': sent, 'server': now, 'known': session is not None,
            'load': round(self.processor.factor(
                session.party if session else frame.session), 3)})

    def _hello(self, frame: Control) -> None:
        reason = refusal(frame.body, self.models, self.names, self._split.find)
        if reason:
            self._refuse(frame, 'refused', reason)
            return
        if self._split.find(frame.body['digest'], frame.body['axis']) is None:
            return  # it is being split, and the robot greets again
        encodings = common_encodings(frame.body.get('encodings'))
        self._end_silent(time.monotonic())
        known = self.sessions.get(frame.session)
        if known and not known.agrees(frame.body['digest'], frame.body['axis']):
            self.sessions.pop(frame.session).close()
            known = None
        if known is None and not self._make_room():
            self._refuse(frame, 'full', f'all {self.max_sessions} sessions of this server are in '
                         'use: raise its max_sessions, or start another server')
            return
        if known is None:
            self._open(frame)
        session = self.sessions[frame.session]
        session.begin_anew(frame.inference, encodings)
        self._answer(frame, ControlKind.WELCOME, {
            'protocol': PROTOCOL, 'version': VERSION, 'digest': frame.body['digest'],
            'encodings': sorted(encodings), 'books': session.books})

    def _refuse(self, frame: Control, cause: str, reason: str) -> None:
        self.reject(cause, reason)
        self._answer(frame, ControlKind.REFUSE, {'reason': reason})

    def _heard(self) -> dict[int, float]:
        return {session.id: session.heard for session in self.sessions.values()}

    def _end_silent(self, now: float) -> None:
        for session in ended(self._heard(), now):
            self.sessions.pop(session).close()
            self.log(f'session {session:#x} ends: nothing was heard for {LEASE:g} s')

    def _make_room(self) -> bool:
        """Return whether there is room for a session; only one that is silent gives way."""
        if len(self.sessions) < self.max_sessions:
            return True
        oldest = gives_way(self._heard(), time.monotonic())
        if oldest is None:
            return False
        self.sessions.pop(oldest).close()
        return True

    def _open(self, frame: Control) -> None:
        digest = frame.body['digest']
        model = self._split.find(digest, frame.body['axis'])
        assert model is not None
        watch = self.watches.get(digest) if model is self.models.get(digest) else None
        way = SendContext(self.channel, frame.session,
                          SerialExecutor(f'executor-{frame.session:x}'), self.sent,
                          server=self.number)
        self.sessions[frame.session] = ServerSession(
            way, ProgramCache(model, SERVER, watch, self._compiling), self.received, self.reject,
            self.log, self.processor, _stream(frame.body) or frame.session)
        self.log(f'session {frame.session:#x} opened for model {digest[:12]}')


def _stream(greeting: Mapping[str, Any]) -> int:
    """Return the number that the sessions of a robot's stream share; 0 for one by itself."""
    stream = greeting.get('stream', 0)
    if type(stream) is not int or not 0 <= stream < 1 << 63:
        raise MalformedFrameError(f'the number of a stream is {quoted(stream)}', 'greeting')
    return stream
