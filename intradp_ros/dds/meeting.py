# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The handshake of one channel of a fleet: its greetings as frames, and what frames are taken."""
from __future__ import annotations

import math
import threading
from typing import Any

from intradp_ros.wire.frames import Control, ControlKind, MalformedFrameError
from intradp_ros.wire.handshake import (
    connection,
    drawn,
    due,
    greeted,
    Greeting,
    Handshake,
    heard,
    left,
    RECENT,
    SILENT,
)

_MOST = 1 << 64


class Meeting:
    """
    Carries what `wire/handshake.py` decides; safe from any thread.

    `own` is the number that it begins with.  Times are in seconds, of a clock that only goes on.
    """

    def __init__(self, own: int) -> None:
        self._state = Handshake(own)
        self._connection = 0
        self._impostor = self._until = -math.inf
        self._lock = threading.Lock()

    @property
    def connection(self) -> int:
        """The number that all frames carry but greetings; 0 before the other is known."""
        return self._connection

    def due(self, now: float) -> Control | None:
        """Return the greeting to send, if it is time for one."""
        if now < self._until:
            return None
        with self._lock:
            self._state, greeting = due(self._state, now)
            self._connection = connection(self._state)
        return _frame(greeting) if greeting else None

    def rest(self, until: float) -> None:
        """Leave the name to another process: greet nobody until then, and then as a new one."""
        with self._lock:
            self._until = until
            self._state, self._connection = Handshake(drawn()), 0

    def hears(self, now: float) -> bool:
        """Return whether the other is met, and was heard lately."""
        return self._connection != 0 and now - self._state.heard <= SILENT

    def take(self, frame: Control, now: float) -> Control | None:
        """Take a greeting; return what to answer.  MalformedFrameError if it is none."""
        greeting = _greeting(frame)
        if now < self._until:
            return None
        with self._lock:
            self._state, answer = greeted(self._state, greeting, now)
            self._connection = connection(self._state)
        return _frame(answer) if answer else None

    def check(self, kind: str, number: int) -> None:
        """Raise MalformedFrameError unless a frame carries the number of the connection."""
        if not self._connection:
            raise MalformedFrameError(f'a {kind} of a process that has not greeted yet',
                                      'connection')
        if number != self._connection:
            raise MalformedFrameError(f'a {kind} of another run, or for another process',
                                      'replayed')

    def heard(self, kind: int, now: float) -> None:
        """Hear a frame of the connection, of a kind of control frames (0: another)."""
        with self._lock:
            self._state = left(self._state) if kind == ControlKind.BYE else heard(
                self._state, now)

    def impostor(self, now: float) -> None:
        """Hear that another participant speaks as the peer: without a key either may be."""
        self._impostor = now

    def doubted(self, now: float) -> bool:
        """Return whether what came lately may have been another's."""
        return now - self._impostor <= RECENT

    def conflict(self, now: float) -> str:
        """Return what is known of two processes of one name; '' if there are none."""
        if self.doubted(now) or now - self._state.doubled <= RECENT:
            return 'theirs'
        return 'own' if now - self._state.refused <= RECENT else ''


def _frame(greeting: Greeting) -> Control:
    return Control(ControlKind.GREETING, greeting.number, body={
        'challenge': greeting.challenge, 'answer': greeting.answer, 'taken': greeting.taken})


def _greeting(frame: Control) -> Greeting:
    challenge, answer = frame.body.get('challenge'), frame.body.get('answer')
    return Greeting(_number(frame.session), _number(challenge), _number(answer),
                    frame.body.get('taken') is True)


def _number(item: Any) -> int:
    if type(item) is not int or not 0 <= item < _MOST:
        raise MalformedFrameError('a greeting without its numbers', 'number')
    return item
