# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Lines of text that arrive once and in order, over frames that are lost, repeated or overtaken.

The sender cuts its text into pieces numbered from 1, has at most `WINDOW` of them in flight, and
sends each again until it is acknowledged.  The receiver acknowledges the last piece up to which
it has all.  Both are state machines over pieces and time; who carries the pieces is not known.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from intradp_ros.wire.frames import MalformedFrameError

#: Characters of a piece, and pieces in flight.
PIECE, WINDOW = 6000, 8
#: Seconds after which a piece is sent again; twice as long each time, up to `LONGEST`.
AGAIN, LONGEST = 0.2, 2.0
#: Characters of a line, and of all that may wait to be sent.
MOST_LINE, MOST_WAITING = 1 << 22, 1 << 24


@dataclass
class LineSender:
    """What is to be sent; `due` says which pieces, with their numbers, leave now."""

    _waiting: deque[str] = field(default_factory=deque)
    _in_flight: dict[int, _Piece] = field(default_factory=dict)
    _last: int = 0
    _size: int = 0

    def put(self, line: str) -> None:
        """
        Send a line of ASCII text after those before.

        :raises OverflowError: if too much waits: nobody acknowledges.
        """
        if self._size + len(line) > MOST_WAITING:
            raise OverflowError(f'{self._size} characters wait and are not taken')
        self._waiting.append(line + '\n')
        self._size += len(line) + 1

    def acknowledge(self, number: int) -> None:
        """Take notice that all pieces up to a number have arrived."""
        for sent in [n for n in self._in_flight if n <= number]:
            self._size -= len(self._in_flight.pop(sent).text)

    def due(self, now: float) -> list[tuple[int, str]]:
        """Return the pieces to be sent now, with their numbers."""
        found = []
        for number, piece in self._in_flight.items():
            if now >= piece.again:
                piece.rest = min(LONGEST, 2 * piece.rest)
                piece.again = now + piece.rest
                found.append((number, piece.text))
        while self._waiting and len(self._in_flight) < WINDOW:
            self._last += 1
            text = self._cut()
            self._in_flight[self._last] = _Piece(text, now + AGAIN)
            found.append((self._last, text))
        return found

    @property
    def idle(self) -> bool:
        """Whether all has arrived."""
        return not self._size

    def _cut(self) -> str:
        """Return what leaves next: some lines, or a part of a long one."""
        parts, room = [], PIECE
        while self._waiting and room:
            line = self._waiting.popleft()
            parts.append(line[:room])
            if len(line) > room:
                self._waiting.appendleft(line[room:])
            room -= len(parts[-1])
        return ''.join(parts)


@dataclass
class LineReceiver:
    """What has arrived: `acknowledged` is the last piece up to which nothing is missing."""

    acknowledged: int = 0
    _early: dict[int, str] = field(default_factory=dict)
    _begun: list[str] = field(default_factory=list)
    _size: int = 0

    def take(self, number: int, text: str) -> list[str]:
        """
        Take a piece; return the lines that are whole now, in order.

        :raises MalformedFrameError: if the piece or a line is longer than any, or no sender would
            send it, or not yet.
        """
        if not 0 < len(text) <= PIECE or not text.isascii() or \
                number > self.acknowledged + WINDOW:
            raise MalformedFrameError(f'piece {number} of {len(text)} characters after piece '
                                      f'{self.acknowledged}', 'piece')
        if number > self.acknowledged:
            self._early[number] = text
        lines: list[str] = []
        while (piece := self._early.pop(self.acknowledged + 1, None)) is not None:
            self.acknowledged += 1
            first, *others = piece.split('\n')
            self._begun.append(first)
            self._size += len(first)
            for other in others:
                lines.append(''.join(self._begun))
                self._begun, self._size = [other], len(other)
        if self._size > MOST_LINE:
            self._begun, self._size = [], 0
            raise MalformedFrameError(f'a line of more than {MOST_LINE} characters', 'line')
        return lines


@dataclass
class _Piece:
    """A piece in flight, and when it is sent again."""

    text: str
    again: float
    rest: float = AGAIN
