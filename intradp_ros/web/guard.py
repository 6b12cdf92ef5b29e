# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What stands between an HTTP server and its application, and asks `access` about each request."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass
import ipaddress
import json
import time
from typing import Any
from urllib.parse import urlsplit

from intradp_ros.web.access import Clients, ClientShare, Refusal
from intradp_ros.web.connections import App, header, Message, Receive, Send

#: Why a web socket is closed: by rule, for a message that is too large.
POLICY, TOO_LARGE = 1008, 1009
#: Bytes and seconds of the body of a request that is refused.
MOST_DISCARDED, DISCARDING = 1 << 20, 1.0

Scope = MutableMapping[str, Any]


class Guard:
    """
    An ASGI application around another one, for HTTP and web sockets: keys, rates, sizes.

    The inner one finds the client's name in ``scope['client_name']``, and in ``scope['came']``
    when the request came, by time.monotonic().  `open_paths`
    need no key, and take no body.  Servers may share `clients`.
    """

    def __init__(self, app: App, clients: Clients,
                 open_paths: frozenset[str] = frozenset({'/health'})) -> None:
        self._app, self.clients, self._open = app, clients, open_paths
        self._limits = clients.limits

    @property
    def rejected(self) -> Mapping[str, int]:
        """Return how many requests were not taken, by cause."""
        return self.clients.rejected

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope['type'] not in ('http', 'websocket'):
            await self._app(scope, receive, send)
            return
        came = time.monotonic()
        is_open = scope['type'] == 'http' and scope['path'] in self._open
        client, refused = self.clients.enter(
            str((scope.get('client') or ('local', 0))[0]),
            header(scope, b'authorization').decode('latin-1'), is_open)
        entered = refused is None
        try:
            if entered and is_open and (header(scope, b'content-length') not in (b'', b'0')
                                        or header(scope, b'transfer-encoding')):
                refused = Refusal(413, 'size', f'{scope["path"]} takes no body')
            if entered and not self.clients.keyed and (foreign := _foreign(scope)):
                refused = Refusal(403, 'foreign', 'without API keys only this machine is '
                                  f'answered, by its own name: {foreign}')
            only = self._limits.of(scope['path']).only
            if entered and self.clients.keyed and only is not None and client not in only:
                refused = Refusal(403, 'role', f'{client} may not use {scope["path"]}: the key '
                                  f'has to be that of {" or ".join(sorted(only)) or "nobody"}')
            if refused is not None:
                await _discard(scope, receive)
                await self._reject(scope, send, refused)
                return
            scope = {**scope, 'client_name': client, 'came': came}
            if scope['type'] == 'websocket':
                await self._serve_socket(scope, receive, send)
            else:
                await self._pass_on(scope, receive, send)
        finally:
            if entered:
                self.clients.leave(client)

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        limits = self._limits.of(scope['path'])
        if header(scope, b'transfer-encoding'):  # pieces of a byte cost a thousand times more
            await self._reject(scope, send, Refusal(
                411, 'no_length', 'a body is taken with its content-length only'))
            return
        try:
            length = int(header(scope, b'content-length') or b'0')
        except ValueError:
            length = limits.body + 1
        body = bytearray()
        try:
            client = scope['client_name']
            refused: Refusal | None = Refusal(
                413, 'size', f'a body of at most {limits.body} bytes, sent within '
                f'{limits.seconds:g} s, is taken')
            if length <= limits.body:
                with suppress(asyncio.TimeoutError):  # not the built-in one before Python 3.11
                    refused = await asyncio.wait_for(
                        self._read(client, receive, body, limits.body, refused),
                        limits.seconds)
            if refused is not None:
                await _discard(scope, receive)
                await self._reject(scope, send, refused)
                return
            given = False

            async def again() -> Message:
                nonlocal given
                if given:
                    return await receive()
                given = True
                return {'type': 'http.request', 'body': bytes(body), 'more_body': False}
            await self._app(scope, again, send)
        finally:
            self.clients.hold(scope['client_name'], -len(body))

    async def _read(self, client: str, receive: Receive, body: bytearray, most: int,
                    too_large: Refusal | None) -> Refusal | None:
        """Read a body; return why it is not taken, such as a client that has gone."""
        while True:
            message = await receive()
            if message['type'] == 'http.disconnect':
                return Refusal(400, 'gone', 'the client has gone')
            part = message.get('body', b'')
            if len(body) + len(part) > most:
                return too_large
            if refused := self.clients.hold(client, len(part)):
                return refused
            body += part
            if not message.get('more_body'):
                return None

    async def _serve_socket(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Let the inner application receive and send.

        What a message holds of the client's share it holds until the application asks for the
        next one, or, where it takes ``message['release']`` out of it, until it calls that.
        """
        most, rates = self._limits.of(scope['path']).message, self._limits.messages
        share = ClientShare(scope['client_name'], self.clients)
        scope.setdefault('state', {})['share'] = share
        closed, last, kept = False, dict[str, Any](), set[_Kept]()

        async def received() -> Message:
            nonlocal last
            if 'release' in last:
                last.pop('release')()
            message = await receive()
            if message['type'] != 'websocket.receive':
                return message
            kept.add(release := _Kept(share, message.get('held', 0), kept))
            text, data = message.get('text'), message.get('bytes') or b''
            if len(text.encode('utf-8', 'replace') if text else data) > most:
                self.clients.reject('size')
                await sent({'type': 'websocket.close', 'code': TOO_LARGE,
                            'reason': f'messages of at most {most} bytes are taken'})
                return {'type': 'websocket.disconnect', 'code': TOO_LARGE}
            while rates and (wait := rates.wait(share.client, time.monotonic())):
                await asyncio.sleep(wait)
            last = {**message, 'release': release}
            return last

        async def sent(message: Message) -> None:
            nonlocal closed
            if not closed:  # what the application still says after that is heard by nobody
                closed = message['type'] == 'websocket.close'
                await send(message)
        try:
            await self._app(scope, received, sent)
        finally:
            for release in tuple(kept):
                release()

    async def _reject(self, scope: Scope, send: Send, refused: Refusal) -> None:
        self.clients.reject(refused.cause)
        kind = 'http.response'
        if scope['type'] == 'websocket':
            kind = 'websocket.http.response'
            if kind not in (scope.get('extensions') or {}):
                await send({'type': 'websocket.close', 'code': POLICY, 'reason': refused.text})
                return
        headers = [(b'content-type', b'application/json'), (b'connection', b'close')]
        if refused.wait:
            headers.append((b'retry-after', str(int(refused.wait) + 1).encode()))
        await send({'type': f'{kind}.start', 'status': refused.status, 'headers': headers})
        await send({'type': f'{kind}.body', 'body': json.dumps(
            {'error': {'message': refused.text, 'type': 'invalid_request_error', 'param': None,
                       'code': refused.cause}}).encode()})


@dataclass(frozen=True, eq=False)
class _Kept:
    """A message that counts as its client's until this is called."""

    share: ClientShare
    size: int
    among: set[_Kept]

    def __call__(self) -> None:
        if self in self.among:
            self.among.remove(self)
            self.share.give(self.size)


async def _discard(scope: Scope, receive: Receive) -> None:
    """
    Let the body of a refused request come for a moment, and keep nothing of it.

    A client that sends its body after the answer would see a reset connection instead.
    """
    async def read() -> None:
        count, message = 0, dict[str, Any](more_body=True)
        while message.get('more_body') and count < MOST_DISCARDED:
            message = dict(await receive())
            count += len(message.get('body', b''))
    if scope['type'] == 'http':
        if refuse := scope.get('refuse'):
            refuse()
        if header(scope, b'transfer-encoding'):
            return
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(read(), DISCARDING)


def _foreign(scope: Scope) -> str:
    """
    Return which header shows that a request was not made for this machine, '' if none does.

    A page of a stranger may lead a browser here: by a name of its own for 127.0.0.1
    (``Host``), or openly (``Origin``).
    """
    for name in (b'host', b'origin'):
        text = header(scope, name).decode('latin-1')
        if text and not _is_local(text if name == b'origin' else f'//{text}'):
            return f'{name.decode().title()}: {text:.100}'
    return ''


def _is_local(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ''
        return host == 'localhost' or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
