# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How far terms may rise: nobody takes the fleet to where no higher one is left.

A term is a round, and 32 bits of who claimed it.  Rounds up to `FREE` are believed as
they come: a fleet that elects a coordinator every second needs 17 years to get there.
Above it terms may rise by `BURST` rounds in all, and by `RATE` more for each second that a process
runs, however many claims there are: claims without end need years.  A process that was started
later believes less, so after false claims restart all of a fleet.

Who cannot coordinate claims nothing, and only tells of terms that others claimed.  That happens
seldom, so a coordinator does not step down for it again and again.
"""
from __future__ import annotations

from intradp_ros.cluster.fleet_messages import (
    Abort,
    Claim,
    Commit,
    Committed,
    Heartbeat,
    Prepare,
    Ready,
    Refused,
    Resign,
)
from intradp_ros.wire.frames import MalformedFrameError

#: Bits of a term that say who claimed it.
OWN_BITS = 32
#: No term is as high; above it the next number would not fit into a frame.
MAX_TERM = 1 << 62
FREE, BURST, RATE = 1 << 29, 4096, 8.0
#: How often devices may tell of a term that nobody claimed here, at once and each second.
TOLD, TOLD_RATE = 16.0, 0.1


def highest_believed(term: int, seconds: float, spent: int = 0) -> int:
    """
    Return the highest term that is believed by one that knows `term`.

    It runs for some seconds; in these terms rose by the rounds `spent`.
    """
    left = BURST + RATE * min(max(0.0, seconds), 1e9) - spent
    rounds = max(term >> OWN_BITS, FREE) + max(0.0, left)
    return min(MAX_TERM, int(rounds) + 1 << OWN_BITS) - 1


class TermLimit:
    """What one process believes of terms: checks those that arrive."""

    def __init__(self, now: float) -> None:
        self._began, self._term, self._spent = now, 0, 0
        self._told, self._at = TOLD, now

    def check(self, message: object, known: int, now: float, claims: bool = True) -> None:
        """
        Check the terms of a message, as one that knows one; its sender may claim terms, or not.

        :raises MalformedFrameError: if they are too high, or not its sender's to state.
        """
        if not claims and isinstance(message, Claim | Resign):
            raise MalformedFrameError(f'a {type(message).__name__} of a device that is none of '
                                      'the candidates', 'candidate')
        if known > self._term:
            self._spent += max(0, (known >> OWN_BITS) - max(self._term >> OWN_BITS, FREE))
            self._term = known
        stated = stated_term(message)
        if stated > highest_believed(self._term, now - self._began, self._spent):
            raise MalformedFrameError(
                f'a {type(message).__name__} of term {stated:#x}: no fleet gets from '
                f'{self._term:#x} to there', 'term')
        if not claims and stated > self._term:
            self._told, self._at = min(TOLD, self._told + TOLD_RATE * (now - self._at)), now
            if self._told < 1:
                raise MalformedFrameError('devices tell of higher terms again and again', 'term')
            self._told -= 1


def stated_term(message: object) -> int:
    """Return the highest term that a message names."""
    if isinstance(message, Heartbeat):
        return max((message.term, message.committed.term, *(id_.term for id_ in message.held)))
    if isinstance(message, Claim | Resign):
        return message.term
    if isinstance(message, Refused):
        return max(message.term, message.id.term)
    if isinstance(message, Prepare | Commit | Abort | Ready | Committed):
        return message.id.term
    return 0
