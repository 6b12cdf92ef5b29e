# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who may hold a connection to a server, and for how long.

A connection is idle until the head of a request has arrived, and again after
each answer.  When an address, or all together, hold as many connections as are
allowed, a new one takes the place of an idle one: of the address that holds
most, one that never sent a head before others, the oldest of them.  So who
sends nothing keeps nobody out.  An idle connection is cut after some seconds,
and so is one whose client takes nothing of what is sent to it.

Connections are counted where they are accepted, before a TLS handshake and
before any byte of a request.
"""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
import fcntl
import ipaddress
import itertools
import os
import resource
import socket
import sys
import termios
from typing import Any

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

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

    def within_files(self) -> ConnectionLimits:
        """Return limits that leave the process files to open: at most half of those left."""
        most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        left = (most - len(os.listdir('/proc/self/fd')) - SPARE_FILES) // 2
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
        self.since, self.sending = now, None

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
            idle = {life.group for life in self.lives.values() if not life.in_flight}
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
    return min((life for life in lives if not life.in_flight),
               key=lambda life: (life.requests > 0, life.since), default=None)


class _Connection(socket.socket):
    """One that was accepted: it counts what is taken, and notes its end."""

    listener: Listener
    life: Life
    ends: Any = None
    sent: int = 0

    def send(self, *given: Any) -> int:
        count = super().send(*given)
        self.sent += count
        return count

    def sendmsg(self, *given: Any) -> int:
        count = super().sendmsg(*given)
        self.sent += count
        return count

    def taken(self) -> int:
        """Return how many bytes the other side has acknowledged."""
        held = bytearray(4)
        fcntl.ioctl(self, termios.TIOCOUTQ, held)  # SIOCOUTQ of sockets
        return self.sent - int.from_bytes(held, sys.byteorder)

    def close(self) -> None:
        self.listener.forget(self)
        super().close()


class Listener(socket.socket):
    """A listening socket of an asyncio server that keeps to limits; used by its loop only."""

    @classmethod
    def at(cls, address: str, port: int, limits: ConnectionLimits) -> Listener:
        """Bind and listen; OSError if the address or port cannot be had."""
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        made = socket.create_server((address, port), family=family, backlog=128)
        return cls._of(made.detach(), family, Connections(limits), {})

    connections: Connections
    _open: dict[Any, _Connection]

    @classmethod
    def _of(cls, file: int, family: int, connections: Connections, known: dict[Any, _Connection],
            ) -> Listener:
        listener = cls(family, socket.SOCK_STREAM, 0, file)
        listener.connections, listener._open = connections, known
        return listener

    def again(self) -> Listener:
        """Return a second file of the same socket, which counts as this one does."""
        return self._of(os.dup(self.fileno()), self.family, self.connections, self._open)

    def now(self) -> float:
        """Return the time of the loop that runs."""
        return asyncio.get_running_loop().time()

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection; one above the limits is closed at once."""
        accepted, address = super().accept()
        made = _Connection(accepted.family, accepted.type, accepted.proto, accepted.detach())
        made.listener = self
        life, leaves = self.connections.open(str(address[0]), self.now())
        if life is None:
            socket.socket.close(made)
            raise ConnectionAbortedError('too many connections')  # asyncio goes on listening
        made.life = life
        if leaves is not None:
            for other in [one for one in self._open.values() if one.life is leaves]:
                _cut(other)
        with suppress(OSError):  # gone already: the loop notices
            made.ends = _ends(made.getpeername()), _ends(made.getsockname())
            self._open[made.ends] = made
        self._look(made)
        return made, address

    def of(self, scope: MutableMapping[str, Any]) -> Life | None:
        """Return the connection of a request."""
        found = self._open.get((scope.get('client'), scope.get('server')))
        return found.life if found else None

    def forget(self, connection: _Connection) -> None:
        """Note that a connection has ended."""
        self.connections.close(connection.life)
        if self._open.get(connection.ends) is connection:
            del self._open[connection.ends]

    def cut_all(self) -> None:
        """End all connections: their loop has."""
        for connection in list(self._open.values()):
            connection.close()

    def _look(self, connection: _Connection) -> None:
        """Cut a connection that is overdue, else look again in time."""
        life = connection.life
        if connection.fileno() < 0 or life.number not in self.connections.lives:
            return
        life.note(connection.taken(), self.now())
        cause, seconds = life.overdue(self.now(), self.connections.limits)
        if cause:
            if cause != 'idle':
                self.connections.rejected[cause] += 1
            self.connections.close(life)
            _cut(connection)
            return
        asyncio.get_running_loop().call_later(seconds, self._look, connection)


def _cut(connection: _Connection) -> None:
    """Let the loop see the end of a connection, at whatever it is."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _ends(address: Any) -> tuple[str, int]:
    return str(address[0]), int(address[1])


def watched(app: App, listener: Listener) -> App:
    """Return an application whose requests are noted at their connections."""
    async def run(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        life = listener.of(scope) if scope['type'] in ('http', 'websocket') else None
        if life is None:
            await app(scope, receive, send)
            return

        async def sent(message: Message) -> None:
            life.sending = listener.now()
            try:
                await send(message)
            finally:
                life.sending = None
        life.begin()
        try:
            await app(scope, receive, sent)
        finally:
            life.end(listener.now())
    return run
