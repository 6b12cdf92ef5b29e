# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who may use an HTTP server, how often, and with how much: checked before a body is parsed.

API keys stand in a file, one on a line, each behind the name of its client
and a blank.  Without keys a server listens on this machine only, and takes no
request that a web page of another site made a browser send.
"""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
import hashlib
import ipaddress
import json
from pathlib import Path
import re
import stat
import threading
import time
from typing import Any
from urllib.parse import urlsplit

from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.runtime.transport.connection_limits import group
from intradp_ros.web.connections import App, Message, Receive, Send

#: Bytes of the body of a request; seconds in which it must have arrived; bytes of a key.
MAX_BODY, BODY_SECONDS, MIN_KEY, MAX_KEY = 4 << 20, 10.0, 16, 512
#: Keys of a file.
MAX_KEYS = 1024
_LINE = re.compile(rf'([\w.-]{{1,64}})\s+([!-~]{{{MIN_KEY},{MAX_KEY}}})', re.ASCII)

#: Bytes of a message of a web socket; why one is closed: by rule, for a message that is too large.
MAX_MESSAGE, POLICY, TOO_LARGE = 1 << 20, 1008, 1009
#: Frames of web sockets that are no messages, of a client, at once and each second.
FRAMES = 500
#: Bytes and seconds of the body of a request that is refused.
MOST_DISCARDED, DISCARDING = 1 << 20, 1.0

Scope = MutableMapping[str, Any]


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
            If others than its owner may read it, or a line is not a name and key.
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
        """Return whose key stands in a header ``Authorization: Bearer KEY``, or Api-Key KEY."""
        kind, _, key = authorization.partition(' ')
        known = kind.lower() in ('bearer', 'api-key')
        return self.clients.get(_hash(key.strip())) if known else None


def check_address(address: str, keys: ApiKeys | None) -> str:
    """Return an address to listen on; ValueError if others reach it and there are no keys."""
    local = address == 'localhost' or ipaddress.ip_address(address).is_loopback
    if not local and keys is None:
        raise ValueError(f'address {address} is reached by other machines: name a file of API '
                         'keys, or listen on 127.0.0.1')
    return address


@dataclass(frozen=True)
class RouteLimits:
    """
    What a request of a route may bring.

    `body`: bytes, which must have arrived after `seconds`; `message`: bytes of
    a message of a web socket.
    """

    body: int = MAX_BODY
    seconds: float = BODY_SECONDS
    message: int = MAX_MESSAGE


@dataclass(frozen=True)
class GuardLimits:
    """
    What clients may have at once, and what the requests of each route may bring.

    `in_flight`: requests and open web sockets of a client; `held`: bytes of all
    bodies and messages that are not answered yet, of which a client may have as many as it
    leaves free; `routes`: by the beginning of
    the path, whole parts of it, the longest counts.  `messages`: messages of
    web sockets that a client may send; more of them wait, and harm only it.
    """

    in_flight: int = 64
    held: int = 256 << 20
    routes: Mapping[str, RouteLimits] = field(default_factory=dict)
    messages: ClientRates | None = None

    def of(self, path: str) -> RouteLimits:
        """Return the limits of a path."""
        parts = path.rstrip('/').split('/')
        for count in range(len(parts), 0, -1):
            if found := self.routes.get('/'.join(parts[:count])):
                return found
        return self.routes.get('/', _ANY)


_ANY = RouteLimits()


@dataclass(frozen=True)
class Refusal:
    """Why a request is not taken: a status of HTTP, the cause, a text, seconds to wait."""

    status: int
    cause: str
    text: str
    wait: float = 0.0


class Held:
    """Bytes of clients that wait: one may hold as many as are still free with them."""

    def __init__(self, most: int) -> None:
        self._most, self._of = most, Counter[str]()

    def take(self, client: str, count: int) -> bool:
        """Count bytes as a client's, or give them back; False if too few are left for others."""
        mine = self._of[client] + count
        if count > 0 and mine > self._most - self._of.total() - count:
            return False
        self._of[client] = mine
        if not mine:
            del self._of[client]
        return True


class Clients:
    """
    Who is there, and how much of each client: one of them for the servers of all protocols.

    Called from any thread.  What is not taken is counted by cause, in `rejected`.
    """

    def __init__(self, keys: ApiKeys | None, rates: ClientRates,
                 limits: GuardLimits | None = None) -> None:
        self._keys, self._rates = keys, rates
        self.limits = limits or GuardLimits()
        self._lock = threading.Lock()
        self._in_flight: Counter[str] = Counter()
        self._held = Held(self.limits.held)
        self._frames = ClientRates(FRAMES, FRAMES)
        self.rejected: dict[str, int] = {}

    @property
    def keyed(self) -> bool:
        """Return whether clients need a key."""
        return self._keys is not None

    def enter(self, address: str, authorization: str, is_open: bool = False,
              ) -> tuple[str, Refusal | None]:
        """Return who asks, and why that is not taken; else it is in flight until `leave`."""
        with self._lock:
            client, refused = self._judged(group(address), authorization, is_open)
            self._in_flight[client] += refused is None
        return client, refused

    def leave(self, client: str) -> None:
        """Note that a request is over."""
        with self._lock:
            self._in_flight[client] -= 1
            if not self._in_flight[client]:
                del self._in_flight[client]

    def hold(self, client: str, count: int) -> Refusal | None:
        """Hold bytes of a client, until they are held no more by a negative count."""
        with self._lock:
            if self._held.take(client, count):
                return None
        return Refusal(503, 'held', f'{client} holds as many bytes as are left to others, of '
                       f'{self.limits.held}', 1.0)

    def frames(self, client: str, count: int) -> float:
        """Count frames that are no messages; return for how long no more should be read."""
        with self._lock:
            return self._frames.spend(client, count, time.monotonic())

    def reject(self, cause: str) -> None:
        """Count what is not taken."""
        with self._lock:
            self.rejected[cause] = self.rejected.get(cause, 0) + 1

    def _judged(self, client: str, authorization: str, is_open: bool,
                ) -> tuple[str, Refusal | None]:
        if self._keys is not None and not is_open:
            known = self._keys.client(authorization)
            if known is None:
                # strangers share the buckets of their addresses: guessing keys is slow
                wait = self._rates.wait(f'stranger {client}', time.monotonic())
                return client, Refusal(
                    429 if wait else 401, 'no_key',
                    'a valid API key is needed: Authorization: Bearer KEY', wait)
            client = known
        elif self._keys is not None:
            client = f'stranger {client}'
        if wait := self._rates.wait(client, time.monotonic()):
            return client, Refusal(429, 'rate', f'too many requests of {client}', wait)
        if self._in_flight[client] >= self.limits.in_flight:
            return client, Refusal(429, 'in_flight', f'{self.limits.in_flight} requests of '
                                   f'{client} are in flight', 1.0)
        return client, None


@dataclass(frozen=True)
class ClientShare:
    """What a client holds with all its web sockets; see `web/web_socket.py: Share`."""

    client: str
    clients: Clients

    def take(self, count: int) -> bool:
        """Count bytes that wait as the client's; False if they are too many."""
        return self.clients.hold(self.client, count) is None

    def give(self, count: int) -> None:
        """Count them no more."""
        self.clients.hold(self.client, -count)

    def frames(self, count: int) -> float:
        """Count frames; return for how many seconds nothing more should be read."""
        return self.clients.frames(self.client, count)


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
        is_open = scope['path'] in self._open
        client, refused = self.clients.enter(
            str((scope.get('client') or ('local', 0))[0]),
            _header(scope, b'authorization').decode('latin-1'), is_open)
        entered = refused is None
        try:
            if entered and is_open and (_header(scope, b'content-length') not in (b'', b'0')
                                        or _header(scope, b'transfer-encoding')):
                refused = Refusal(413, 'size', f'{scope["path"]} takes no body')
            if entered and not self.clients.keyed and (foreign := _foreign(scope)):
                refused = Refusal(403, 'foreign', 'without API keys only this machine is '
                                  f'answered, by its own name: {foreign}')
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
        if _header(scope, b'transfer-encoding'):  # pieces of a byte cost a thousand times more
            await self._reject(scope, send, Refusal(
                411, 'no_length', 'a body is taken with its content-length only'))
            return
        try:
            length = int(_header(scope, b'content-length') or b'0')
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

    A client that sends its body after the answer would be told of a reset connection instead.
    """
    async def read() -> None:
        count, message = 0, dict[str, Any](more_body=True)
        while message.get('more_body') and count < MOST_DISCARDED:
            message = dict(await receive())
            count += len(message.get('body', b''))
    if scope['type'] == 'http':
        if refuse := scope.get('refuse'):
            refuse()
        if _header(scope, b'transfer-encoding'):
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
        text = _header(scope, name).decode('latin-1')
        if text and not _is_local(text if name == b'origin' else f'//{text}'):
            return f'{name.decode().title()}: {text:.100}'
    return ''


def _is_local(url: str) -> bool:
    try:
        host = urlsplit(url).hostname or ''
        return host == 'localhost' or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _header(scope: Scope, name: bytes) -> bytes:
    return next((value for key, value in scope['headers'] if key.lower() == name), b'')


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode('utf-8', 'replace')).digest()
