# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The port where Prometheus reads; the library's own gives each connection a thread for ever."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from intradp_ros.runtime.transport.connection_limits import ConnectionLimits
from intradp_ros.web.connections import Listener
from intradp_ros.web.loop_thread import LoopThread

#: Connections, and seconds of their heads.
LIMITS = ConnectionLimits(32, 16, head=5.0, stalled=5.0)


class MetricsPort:
    """
    Answers each request with a text, on a thread of its own, until `close`.

    :raises OSError: if the address or port cannot be had.
    """

    def __init__(self, address: str, port: int, shown: Callable[[], bytes]) -> None:
        self._shown = shown
        self._listener = Listener.at(address, port, LIMITS.within_files())
        self._loop = LoopThread('metrics')
        self._server = self._loop.run(asyncio.start_server(self._answer, sock=self._listener))

    def close(self) -> None:
        """Close the port."""
        self._loop.call(self._server.close)
        self._loop.close()
        self._listener.cut_all()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; the listener ends who sends or takes nothing."""
        with suppress(OSError, EOFError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b'\r\n\r\n')
            if life := self._listener.of_stream(writer):
                life.begin()
                life.sending = self._listener.now()
            status, body = '200 OK', self._shown()
            if head.split(b' ', 1)[0] not in (b'GET', b'HEAD'):
                status, body = '405 Method Not Allowed', b'figures are read by GET\n'
            writer.write(f'HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; '
                         f'charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close'
                         '\r\n\r\n'.encode() + (b'' if head.startswith(b'HEAD') else body))
            await writer.drain()
        writer.close()
