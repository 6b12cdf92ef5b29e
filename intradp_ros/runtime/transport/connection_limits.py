# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who may hold a connection to a server, and for how long.

A connection is idle until a request has arrived, and again after each answer.
When an address, or all together, hold as many connections as are allowed, a
new one takes the place of an idle one: of the address that holds most, one
that never sent a request before others, the oldest of them.  So who sends
nothing keeps nobody out.  An idle connection is cut after some seconds, and so
is one whose client takes nothing of what is sent to it.
"""
from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
import ipaddress
import itertools
import os
import resource

#: Files that the rest of the process may still open, and connections that any server has.
SPARE_FILES, FEWEST = 64, 8


@dataclass(frozen=True)
class ConnectionLimits:
    """
    How many connections there may be, of one address too, and their times in seconds.

    `head` from the beginning to the end of the first head, `idle` from an answer
    to the end of the next head, `stalled` without a byte taken of what is sent.
    """

    total: int = 256
    of_address: int = 128
    head: float = 10.0
    idle: float = 15.0
    stalled: float = 30.0

    def within_files(self, each: int = 1) -> ConnectionLimits:
        """Return limits that leave half of the process's files; a connection takes `each`."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = (most - len(os.listdir('/proc/self/fd')) - SPARE_FILES) // 2 // each
        total = max(FEWEST, min(self.total, left))
        return ConnectionLimits(total, min(self.of_address, max(FEWEST // 2, total // 2)),
                                self.head, self.idle, self.stalled)


def group(address: str) -> str:
    """Return whom an address is counted as: an IPv6 network of 64 bits is one."""
    try:
        known = ipaddress.ip_address(address.partition('%')[0])
    except ValueError:
        return address
    if known.version == 6:
        if known.ipv4_mapped:
            return str(known.ipv4_mapped)
        return str(ipaddress.ip_network((int(known) >> 64 << 64, 64)))
    return str(known)


@dataclass
class Life:
    """One connection; times are seconds of the caller's own clock."""

    number: int
    group: str
    since: float
    requests: int = 0
    in_flight: int = 0
    #: Whether its request is refused: only what its client has sent is awaited still.
    refused: bool = False
    #: Since when a part of an answer waits to be taken, if one does.
    sending: float | None = None
    #: Bytes that its client has taken, and when that was last seen to grow.
    taken: int = 0
    moved: float = 0.0

    def begin(self) -> None:
        """Note that a head has arrived."""
        self.requests += 1
        self.in_flight += 1

    def end(self, now: float) -> None:
        """Note that a request is answered."""
        self.in_flight -= 1
        self.since, self.sending, self.refused = now, None, False

    def note(self, taken: int, now: float) -> None:
        """Note how many bytes its client has taken so far."""
        if taken > self.taken:
            self.taken, self.moved = taken, now

    def overdue(self, now: float, limits: ConnectionLimits) -> tuple[str, float]:
        """Return why it is cut, or '' and after how many seconds to look again."""
        if not self.in_flight and not self.requests:
            cause, end = 'slow_head', self.since + limits.head
        elif not self.in_flight:  # what was sent at last may still be on its way
            cause, end = 'idle', max(self.since, self.moved) + limits.idle
        elif self.sending is not None:
            cause, end = 'stalled', max(self.sending, self.moved) + limits.stalled
        else:
            return '', limits.stalled / 2
        return (cause, 0.0) if now >= end else ('', end - now)


@dataclass
class Connections:
    """A state machine over (event, time): which connections there are, and which make room."""

    limits: ConnectionLimits
    lives: dict[int, Life] = field(default_factory=dict)
    #: How many were refused, displaced, cut: by cause.
    rejected: Counter[str] = field(default_factory=Counter)
    _numbers: itertools.count[int] = field(default_factory=itertools.count)

    def open(self, address: str, now: float) -> tuple[Life | None, Life | None]:
        """Return the new connection, or None if it is refused, and the one that makes room."""
        whose = group(address)
        mine = [life for life in self.lives.values() if life.group == whose]
        leaves: Life | None = None
        if len(mine) >= self.limits.of_address:
            leaves = _first_to_leave(mine)
        elif len(self.lives) >= self.limits.total:
            held = Counter(life.group for life in self.lives.values())
            held[whose] += 1
            idle = {life.group for life in self.lives.values()
                    if not life.in_flight or life.refused}
            most = max(idle, key=lambda name: held[name], default='')
            leaves = _first_to_leave([life for life in self.lives.values()
                                      if life.group == most])
        else:
            return self._made(whose, now), None
        if leaves is None:
            self.rejected['connections'] += 1
            return None, None
        self.rejected['displaced'] += 1
        del self.lives[leaves.number]
        return self._made(whose, now), leaves

    def close(self, life: Life) -> None:
        """Note that a connection has ended."""
        self.lives.pop(life.number, None)

    def _made(self, whose: str, now: float) -> Life:
        life = Life(next(self._numbers), whose, now)
        self.lives[life.number] = life
        return life


def _first_to_leave(lives: list[Life]) -> Life | None:
    return min((life for life in lives if not life.in_flight or life.refused),
               key=lambda life: (life.requests > 0, life.since), default=None)
