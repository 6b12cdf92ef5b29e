# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The page of `intradp view` as an ASGI application: read-only, with nothing from elsewhere.

``/stream`` gives views as lines of JSON, one whenever it has changed, as long as somebody looks.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
import json
from pathlib import Path
import time
from typing import Any, Protocol
from urllib.parse import parse_qsl

from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.web.access import ApiKeys, Clients, GuardLimits, RouteLimits
from intradp_ros.web.connections import Receive, Send
from intradp_ros.web.guard import Guard, Scope
from intradp_ros.web.web_server import WebServer

#: Seconds between two looks, and after which a line says that nothing has changed.
LOOK, SIGN = 0.2, 2.0
#: People who look at once; parameters of a query, and letters of each.
MOST, MOST_PARAMETERS, LONGEST = 8, 16, 200
_PAGES = {'/': ('page.html', 'text/html; charset=utf-8'),
          '/page.css': ('page.css', 'text/css; charset=utf-8'),
          '/page.js': ('page.js', 'text/javascript; charset=utf-8')}
_HEADERS = [
    (b'content-security-policy', b"default-src 'none'; script-src 'self'; style-src 'self'; "
     b"connect-src 'self'; img-src blob:; base-uri 'none'; form-action 'none'; "
     b"frame-ancestors 'none'"),
    (b'x-content-type-options', b'nosniff'), (b'referrer-policy', b'no-referrer'),
    (b'cross-origin-resource-policy', b'same-origin'), (b'cache-control', b'no-store')]

Query = Mapping[str, str]


class Source(Protocol):
    """What is looked at."""

    def look(self, query: Query) -> AbstractContextManager[Callable[[], Mapping[str, Any]]]:
        """Return what gives the view now, for as long as somebody looks."""

    def picture(self, name: str) -> bytes | None:
        """Return a picture that a view names."""


class ViewApp:
    """Serves the page and the views of a source."""

    def __init__(self, source: Source) -> None:
        self._source, self._lookers = source, 0
        self.ending = False
        folder = Path(__file__).with_name('page')
        self._pages = {path: ((folder / name).read_bytes(), kind)
                       for path, (name, kind) in _PAGES.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request."""
        if scope['type'] == 'websocket':
            await send({'type': 'websocket.close'})  # before it is accepted: 403
        if scope['type'] != 'http':
            return
        path, query = scope['path'], _query(scope)
        if scope['method'] not in ('GET', 'HEAD'):
            await _answer(send, 405, b'this page only shows', 'text/plain')
        elif path in self._pages:
            await _answer(send, 200, *self._pages[path])
        elif path == '/stream':
            await self._stream(query, receive, send)
        elif path == '/picture':
            picture = await asyncio.to_thread(self._source.picture, query.get('name', ''))
            await _answer(send, 200 if picture else 404, picture or b'', 'image/png')
        else:
            await _answer(send, 404, b'there are /, /stream and /picture', 'text/plain')

    async def _stream(self, query: Query, receive: Receive, send: Send) -> None:
        if self._lookers >= MOST:
            await _answer(send, 503, b'%d look already' % MOST, 'text/plain')
            return
        self._lookers += 1
        gone = asyncio.ensure_future(_gone(receive))
        try:
            with self._source.look(query) as view:
                await send({'type': 'http.response.start', 'status': 200, 'headers': [
                    (b'content-type', b'application/x-ndjson'), *_HEADERS]})
                await self._send_views(view, gone, send)
        finally:
            self._lookers -= 1
            gone.cancel()
            with suppress(OSError):
                await send({'type': 'http.response.body', 'body': b''})

    async def _send_views(self, view: Callable[[], Mapping[str, Any]],
                          gone: asyncio.Future[None], send: Send) -> None:
        last, said = b'', float('-inf')
        while not (gone.done() or self.ending):
            text = await asyncio.to_thread(lambda: json.dumps(view(), allow_nan=False).encode())
            now = time.monotonic()
            if text != last or now - said >= SIGN:
                body = b'\n' if text == last else text + b'\n'
                last, said = text, now
                await send({'type': 'http.response.body', 'body': body, 'more_body': True})
            await asyncio.wait([gone], timeout=LOOK)


async def _gone(receive: Receive) -> None:
    """Return when the client has gone."""
    while (await receive())['type'] != 'http.disconnect':
        pass


async def _answer(send: Send, status: int, body: bytes, kind: str) -> None:
    await send({'type': 'http.response.start', 'status': status,
                'headers': [(b'content-type', kind.encode()), *_HEADERS]})
    await send({'type': 'http.response.body', 'body': body})


def _query(scope: Scope) -> Query:
    try:
        pairs = parse_qsl(scope['query_string'].decode('latin-1'),
                          max_num_fields=MOST_PARAMETERS)
    except ValueError:
        return {}
    return {name: value for name, value in pairs if len(name) + len(value) <= LONGEST}


class ViewServer(WebServer):
    """
    Serves the page; with keys its frame is open to all, what it shows is not.

    :raises OSError: if the address or port cannot be had.
    """

    def __init__(self, source: Source, address: str, port: int, keys: ApiKeys | None = None,
                 ) -> None:
        self._view = ViewApp(source)
        clients = Clients(keys, ClientRates(50.0, 200), GuardLimits(
            in_flight=2 * MOST, routes={'/': RouteLimits(0)}))
        super().__init__(Guard(self._view, clients, frozenset(_PAGES)), address, port)

    def close(self) -> None:
        """End what is looked at, and free the port."""
        self._view.ending = True
        super().close()
