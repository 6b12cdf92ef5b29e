# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An ASGI application served by uvicorn on a thread of its own."""
from __future__ import annotations

from pathlib import Path
import socket
import threading
from typing import Any

try:
    import uvicorn
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError('the HTTP endpoint needs uvicorn and fastapi: pip install '
                              "'intradp-ros[web]', or pip install uvicorn fastapi",
                              name='uvicorn') from error

#: Connections at once; one more is answered 503.  Seconds that an idle one is kept, and that open
#: answers have when the server closes.
MAX_CONNECTIONS, IDLE, GRACE = 256, 15, 3


class WebServer:
    """Listens from when it is made until `close`."""

    def __init__(self, app: Any, address: str, port: int, certificate: Path | None = None,
                 certificate_key: Path | None = None) -> None:
        """
        Bind and serve; port 0 takes a free one (`port` says which).

        Raises
        ------
        OSError
            If the address or port cannot be had.

        """
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        self._socket = socket.create_server((address, port), family=family, backlog=128)
        self.port: int = self._socket.getsockname()[1]
        self.url = (f'http{"s" if certificate else ""}://'
                    f'{f"[{address}]" if ":" in address else address}:{self.port}')
        self._server = uvicorn.Server(uvicorn.Config(
            app, log_level='warning', access_log=False, limit_concurrency=MAX_CONNECTIONS,
            timeout_keep_alive=IDLE, timeout_graceful_shutdown=GRACE, server_header=False,
            ssl_certfile=certificate, ssl_keyfile=certificate_key, lifespan='off'))
        self._thread = threading.Thread(target=self._run, name='web', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End open connections and free the port."""
        self._server.should_exit = True
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        self._server.run(sockets=[self._socket])
