# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An ASGI application served by uvicorn on a thread of its own."""
from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
import logging
import math
from pathlib import Path
import threading
from typing import Any

from intradp_ros.core.extras import pip_install
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits
from intradp_ros.web.connections import App, Listener, Message, Receive, Send, watched

try:
    from h11 import LocalProtocolError
    import uvicorn

    from intradp_ros.web.web_socket import WebSocket
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError('the HTTP endpoint needs uvicorn and fastapi: '
                              + pip_install('web'), name='uvicorn') from error

_LOG = logging.getLogger(__name__)
# of web sockets that are refused: strangers would fill the log
logging.getLogger('uvicorn.error').addFilter(
    lambda record: 'without completing handshake' not in record.getMessage())
#: Seconds that open answers have when the server closes.
GRACE = 3
#: Seconds after an error of the server itself until it begins anew.
AGAIN = 1.0


@dataclass(frozen=True)
class WebSocketLimits:
    """
    What a web socket may bring, and how one that is lost is noticed.

    `max_size`: bytes of a message; a ping every `ping_interval` seconds must be
    answered after `ping_timeout`.  The answer stands behind messages that the
    application has not read yet, so it must read within these times.
    """

    max_size: int = 1 << 20
    ping_interval: float = 20.0
    ping_timeout: float = 20.0


class WebServer:
    """Listens from when it is made until `close`; an error inside does not end it."""

    def __init__(self, app: App, address: str, port: int, certificate: Path | None = None,
                 certificate_key: Path | None = None, *,
                 limits: ConnectionLimits | None = None,
                 web_sockets: WebSocketLimits | None = None) -> None:
        """
        Bind and serve; port 0 takes a free one (`port` says which).

        `limits` are lowered to what the process's files allow.

        :raises OSError: if the address or port cannot be had.
        """
        limits = (limits or ConnectionLimits()).within_files()
        self._listener = Listener.at(address, port, limits)
        self.port: int = self._listener.getsockname()[1]
        self.url = (f'http{"s" if certificate else ""}://'
                    f'{f"[{address}]" if ":" in address else address}:{self.port}')
        sockets = web_sockets or WebSocketLimits()
        # h11 bounds heads, and asyncio's own loop accepts by the listener; an address that a
        # client claims to forward for counts nothing
        self._config = uvicorn.Config(
            watched(_unless_answered(app), self._listener), log_level='error', access_log=False,
            http='h11', loop='asyncio', backlog=64, proxy_headers=False,
            timeout_keep_alive=math.ceil(limits.idle), timeout_graceful_shutdown=GRACE,
            ws=WebSocket, ws_max_size=sockets.max_size,
            ws_ping_interval=sockets.ping_interval, ws_ping_timeout=sockets.ping_timeout,
            ws_per_message_deflate=False, server_header=False, ssl_certfile=certificate,
            ssl_keyfile=certificate_key, lifespan='off')
        self._server = uvicorn.Server(self._config)
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name='web', daemon=True)
        self._thread.start()

    @property
    def rejected(self) -> Mapping[str, int]:
        """Return how many connections were refused, displaced or cut, by cause."""
        return dict(self._listener.connections.rejected)

    def close(self) -> None:
        """End open connections and free the port."""
        self._closing.set()
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                # uvicorn closes what it is given
                self._server.run(sockets=[self._listener.again()])
            except Exception as error:  # noqa: BLE001 - the endpoint goes on
                _LOG.error('the server of %s failed and begins anew: %s: %s', self.url,
                           type(error).__name__, error)
                self._closing.wait(AGAIN)
            self._listener.cut_all()
            self._server = uvicorn.Server(self._config)


def _unless_answered(app: App) -> App:
    """Return an application that is silent where uvicorn has answered: what follows is no HTTP."""
    async def run(scope: MutableMapping[str, Any], receive: Receive, send: Send) -> None:
        async def sent(message: Message) -> None:
            try:
                await send(message)
            except LocalProtocolError:  # uvicorn would log it, and that nothing was sent
                while (await receive())['type'] != 'http.disconnect':
                    pass
        await app(scope, receive, sent)
    return run
