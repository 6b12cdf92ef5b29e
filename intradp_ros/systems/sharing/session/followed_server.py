# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which server a robot follows, where several answer to one name, and what it may report."""
from __future__ import annotations

from intradp_ros.wire.frames import MalformedFrameError
from intradp_ros.wire.sanitise import quoted

#: Seconds after which a server that says nothing may be left for another.
SILENT = 0.3
#: Seconds for which a server must say that it does not know the session before it is believed.
UNKNOWN_FOR = 0.3
#: Seconds for which a server counts as there.
THERE = 2.0
MAX_SERVERS = 8
MOST_LOAD = 1000.0  # that a server may report


class FollowedServer:
    """
    The servers that answered lately, by the random number that each drew when it started.

    The robot follows the one that welcomed it, until that one is silent and
    another answers.  Times are seconds.
    """

    def __init__(self) -> None:
        self.number = 0  # of the server that is followed
        self._heard: dict[int, float] = {}
        self._unknown_since: float | None = None

    def heard(self, server: int, now: float) -> bool:
        """Take note of a frame; return whether nothing was heard of this server before."""
        new = server not in self._heard
        self._heard[server] = now
        while len(self._heard) > MAX_SERVERS:
            others = (s for s in self._heard if s != self.number)
            del self._heard[min(others, key=lambda s: self._heard[s])]
        return new

    def there(self, now: float) -> tuple[int, ...]:
        """Return the servers that answered lately."""
        return tuple(s for s, heard in self._heard.items() if now - heard < THERE)

    def asked(self, now: float) -> tuple[int, ...]:
        """Return whom to greet: the one that is followed, or all that are there."""
        return (self.number,) if self.number else self.there(now)

    def follow(self, server: int) -> None:
        """Follow a server that welcomed the robot; 0: none."""
        self.number, self._unknown_since = server, None

    def replaced(self, server: int, now: float) -> bool:
        """Return whether the server that is followed is silent while this other one answers."""
        return server != self.number and now - self._heard.get(self.number, now) > SILENT

    def knows_us(self, known: bool, now: float) -> bool:
        """Take what the server says of the session; return False if it is not to be shared."""
        if known:
            self._unknown_since = None
            return True
        if self._unknown_since is None:
            self._unknown_since = now
        return now - self._unknown_since < UNKNOWN_FOR


def validated_load(reported: object) -> float:
    """
    Return how many times as long the server says that it computes, for its other sessions.

    :raises MalformedFrameError: if it cannot be such a number.
    """
    if not isinstance(reported, (int, float)) or not 1.0 <= reported <= MOST_LOAD:
        raise MalformedFrameError(f'a load of {quoted(reported)}, not 1..{MOST_LOAD:g}', 'pong')
    return float(reported)


def validated_digests(books: object) -> dict[int, str]:
    """Return the digests by epoch that a server reported, as far as they are well-formed."""
    reported = books if isinstance(books, list) else []
    return {pair[0]: pair[1] for pair in reported if isinstance(pair, list) and len(pair) == 2
            and type(pair[0]) is int and type(pair[1]) is str}
