# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who may use an HTTP server, how often, and with how much: checked before a body is parsed.

API keys stand in a file, one on a line, each behind the name of its client
and a blank.  Without keys a server listens on this machine only.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass
import hashlib
import ipaddress
import json
from pathlib import Path
import re
import stat
import time
from typing import Any

from intradp_ros.runtime.admission import ClientRates

#: Bytes of the body of a request; seconds in which it must have arrived; bytes of a key.
MAX_BODY, BODY_SECONDS, MIN_KEY, MAX_KEY = 4 << 20, 10.0, 16, 512
#: Keys of a file.
MAX_KEYS = 1024
_LINE = re.compile(rf'([\w.-]{{1,64}})\s+([!-~]{{{MIN_KEY},{MAX_KEY}}})', re.ASCII)

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True)
class ApiKeys:
    """Names of clients by the SHA-256 of their keys."""

    clients: Mapping[bytes, str]

    @classmethod
    def load(cls, path: Path) -> ApiKeys:
        """
        Read a file of keys.

        Raises
        ------
        ValueError
            If others than its owner may read it, or a line is no name and key.
        OSError
            If it cannot be read.

        """
        if path.stat().st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise ValueError(f'others may read the API keys in {path}: chmod 600 {path}')
        with path.open('rb') as file:
            text = file.read(MAX_KEYS * (MAX_KEY + 80)).decode('ascii', 'replace')
        clients: dict[bytes, str] = {}
        for number, line in enumerate(text.splitlines(), 1):
            if not line.strip() or line.startswith('#'):
                continue
            match = _LINE.fullmatch(line.strip())
            if match is None:
                raise ValueError(f'{path} line {number}: a name and a key of at least {MIN_KEY} '
                                 'characters are expected, as in "robot1 3f9a...": make one by '
                                 '"openssl rand -hex 24"')
            clients[_hash(match[2])] = match[1]
        if not clients:
            raise ValueError(f'{path} holds no API key')
        return cls(clients)

    def client(self, authorization: str) -> str | None:
        """Return whose key stands in an ``Authorization: Bearer KEY`` header."""
        kind, _, key = authorization.partition(' ')
        return self.clients.get(_hash(key.strip())) if kind.lower() == 'bearer' else None


def check_address(address: str, keys: ApiKeys | None) -> str:
    """Return an address to listen on; ValueError if others reach it and there are no keys."""
    local = address == 'localhost' or ipaddress.ip_address(address).is_loopback
    if not local and keys is None:
        raise ValueError(f'address {address} is reached by other machines: name a file of API '
                         'keys, or listen on 127.0.0.1')
    return address


class Guard:
    """
    An ASGI application around another one: keys, rates, sizes.

    The inner one finds the client's name in ``scope['client_name']``.  `open_paths`
    need no key.  Requests that are not taken are counted by cause.
    """

    def __init__(self, app: App, keys: ApiKeys | None, rates: ClientRates,
                 open_paths: frozenset[str] = frozenset({'/health'})) -> None:
        self._app, self._keys, self._rates, self._open = app, keys, rates, open_paths
        self.rejected: dict[str, int] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer why not."""
        if scope['type'] == 'lifespan':
            await self._app(scope, receive, send)
            return
        if scope['type'] != 'http':  # web sockets: nothing here speaks them
            return
        headers = {key.lower(): value for key, value in scope['headers']}
        client = str((scope.get('client') or ('local', 0))[0])
        if self._keys is not None and scope['path'] not in self._open:
            known = self._keys.client(headers.get(b'authorization', b'').decode('latin-1'))
            if known is None:
                # strangers share the buckets of their addresses: guessing keys is slow
                wait = self._rates.wait(f'stranger {client}', time.monotonic())
                await self._reject(send, 429 if wait else 401, 'no_key', 'a valid API key is '
                                   'needed: Authorization: Bearer KEY', wait)
                return
            client = known
        if wait := self._rates.wait(client, time.monotonic()):
            await self._reject(send, 429, 'rate', f'too many requests of {client}', wait)
            return
        try:
            length = int(headers.get(b'content-length', b'0'))
        except ValueError:
            length = MAX_BODY + 1
        body = None if length > MAX_BODY else await _body(receive)
        if body is None:
            await self._reject(send, 413, 'size', f'a body of at most {MAX_BODY} bytes, sent '
                               f'within {BODY_SECONDS:.0f} s, is taken')
            return
        given = False

        async def again() -> MutableMapping[str, Any]:
            nonlocal given
            if given:
                return await receive()
            given = True
            return {'type': 'http.request', 'body': body, 'more_body': False}
        await self._app({**scope, 'client_name': client}, again, send)

    async def _reject(self, send: Send, status: int, cause: str, text: str, wait: float = 0.0,
                      ) -> None:
        self.rejected[cause] = self.rejected.get(cause, 0) + 1
        headers = [(b'content-type', b'application/json'), (b'connection', b'close')]
        if wait:
            headers.append((b'retry-after', str(int(wait) + 1).encode()))
        await send({'type': 'http.response.start', 'status': status, 'headers': headers})
        await send({'type': 'http.response.body', 'body': json.dumps(
            {'error': {'message': text, 'type': 'invalid_request_error', 'param': None,
                       'code': cause}}).encode()})


async def _body(receive: Receive) -> bytes | None:
    """Return the whole body; None if it is too large, too slow, or the client has gone."""
    async def read() -> bytes | None:
        parts, size = [], 0
        while True:
            message = await receive()
            if message['type'] == 'http.disconnect':
                return None
            parts.append(message.get('body', b''))
            size += len(parts[-1])
            if size > MAX_BODY:
                return None
            if not message.get('more_body'):
                return b''.join(parts)
    try:
        return await asyncio.wait_for(read(), BODY_SECONDS)
    except asyncio.TimeoutError:  # another class than the built-in one before Python 3.11
        return None


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode('utf-8', 'replace')).digest()
