# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Connections of an HTTP server, counted where they are accepted.

That is before a TLS handshake and before any byte of a request; which of them
stay, `runtime/transport/connection_limits.py` says.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from contextlib import suppress
import fcntl
import os
import socket
import sys
import termios
from typing import Any

from intradp_ros.core.version import VERSION
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits, Connections, Life

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[MutableMapping[str, Any], Receive, Send], Awaitable[None]]

#: The header in which a gateway, another one and a robot on its dock say what they speak: a
#: number, which grows when messages between them change, and the release.
PEERS, NUMBER = 'intradp-peers', '1'
SPEAKS = f'{NUMBER} {VERSION}'
#: Bytes that are read at once, before the first head and after it.
FIRST_PART, PART = 1 << 10, 1 << 13


def header(scope: Mapping[str, Any], name: bytes) -> bytes:
    """Return a header of a request, b'' if there is none."""
    return next((value for key, value in scope['headers'] if key.lower() == name), b'')


def peer_headers(key: str) -> dict[str, str]:
    """Return the headers with which a gateway or robot asks another gateway."""
    return {PEERS: SPEAKS} | ({'Authorization': f'Bearer {key}'} if key else {})


def accept_peer(scope: Mapping[str, Any]) -> tuple[Message, str]:
    """Return the message that accepts a web socket, and why its client is not understood."""
    return {'type': 'websocket.accept', 'headers': [(PEERS.encode(), SPEAKS.encode())]}, \
        _other_release(header(scope, PEERS.encode()).decode('latin-1'))


def check_peer(response: Any) -> None:
    """See that the server that accepted a web socket is understood; ValueError if it is not."""
    if why := _other_release(response.headers.get(PEERS, '') if response else ''):
        raise ValueError(why)


def _other_release(said: str) -> str:
    """Return why the other side of `PEERS` is not understood, '' if it is."""
    number, _, release = said.partition(' ')
    return '' if number == NUMBER else (
        f'it has another release of intradp_ros, {release[:20]!a}, than {VERSION} here: install '
        'one on all sites and docked robots')


def closed(code: int, reason: str) -> dict[str, Any]:
    """Return the message that closes a web socket: its frame has room for 123 bytes of reason."""
    return {'type': 'websocket.close', 'code': code,
            'reason': reason.encode('utf-8', 'replace')[:120].decode('utf-8', 'ignore')}


class _Connection(socket.socket):
    """One that was accepted: it counts what is taken, and notes its end."""

    listener: Listener
    life: Life
    ends: Any = None
    sent: int = 0

    def recv(self, size: int, /, flags: int = 0) -> bytes:
        """Read little at once, so that parsing it holds up nobody."""
        return super().recv(min(size, self._part), flags)

    def recv_into(self, buffer: Any, nbytes: int = 0, flags: int = 0) -> int:
        """Read little at once."""
        most = min(nbytes or self._part, self._part)
        return super().recv_into(memoryview(buffer)[:most], 0, flags)

    @property
    def _part(self) -> int:
        return PART if self.life.requests else FIRST_PART

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
            self.cut(leaves)
        with suppress(OSError):  # gone already: the loop notices
            made.ends = _ends(made.getpeername()), _ends(made.getsockname())
            self._open[made.ends] = made
        self._look(made)
        return made, address

    def of(self, scope: MutableMapping[str, Any]) -> Life | None:
        """Return the connection of a request."""
        found = self._open.get((scope.get('client'), scope.get('server')))
        return found.life if found else None

    def of_stream(self, writer: asyncio.StreamWriter) -> Life | None:
        """Return the connection that a stream writes to; None if it has gone."""
        client, server = (writer.get_extra_info(f'{side}name') for side in ('peer', 'sock'))
        return self.of({'client': client[:2], 'server': server[:2]}) if client else None

    def forget(self, connection: _Connection) -> None:
        """Note that a connection has ended."""
        self.connections.close(connection.life)
        if self._open.get(connection.ends) is connection:
            del self._open[connection.ends]

    def cut(self, life: Life, cause: str = '') -> None:
        """End a connection, for a cause that is counted."""
        if cause:
            self.connections.rejected[cause] += 1
        for one in [one for one in self._open.values() if one.life is life]:
            _cut(one)

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
    """
    Return an application whose requests are noted at their connections.

    One calls ``scope['refuse']`` when it only waits for the rest of what it will not take.
    """
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

        def refuse() -> None:
            life.refused = True
        life.begin()
        try:
            await app({**scope, 'refuse': refuse}, receive, sent)
        finally:
            life.end(listener.now())
    return run
