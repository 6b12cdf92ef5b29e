# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who may use an HTTP server, how often, and with how much: checked before a body is parsed.

API keys stand in a file, one on a line, each behind the name of its client
and a blank.  Without keys a server listens on this machine only, and takes no
request that a web page of another site made a browser send.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
import hashlib
import ipaddress
from pathlib import Path
import re
import threading
import time

from intradp_ros.core.plain_file import open_to_read
from intradp_ros.core.private_file import check_private
from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.runtime.transport.connection_limits import group

#: Bytes of the body of a request; seconds in which it must have arrived; bytes of a key.
MAX_BODY, BODY_SECONDS, MIN_KEY, MAX_KEY = 4 << 20, 10.0, 16, 512
#: Keys of a file.
MAX_KEYS = 1024
_LINE = re.compile(rf'([\w.-]{{1,64}})\s+([!-~]{{{MIN_KEY},{MAX_KEY}}})', re.ASCII)

#: Bytes of a message of a web socket.
MAX_MESSAGE = 1 << 20
#: Frames of web sockets that are not messages, of a client, at once and each second.
FRAMES = 500


@dataclass(frozen=True)
class ApiKeys:
    """Names of clients by the SHA-256 of their keys."""

    clients: Mapping[bytes, str]

    @classmethod
    def load(cls, path: Path) -> ApiKeys:
        """
        Read a file of keys.

        :raises ValueError: if others than its owner may read it, or a line is not a name and key.
        :raises OSError: if it cannot be read.
        """
        check_private(path, 'the API keys in')
        clients: dict[bytes, str] = {}
        for number, line in _lines(path):
            match = _LINE.fullmatch(line)
            if match is None:
                raise ValueError(f'{path} line {number}: a name and a key of at least {MIN_KEY} '
                                 'characters are expected, as in "robot1 3f9a...": make one by '
                                 '"openssl rand -hex 24"')
            if (name := clients.setdefault(_hash(match[2]), match[1])) != match[1]:
                raise ValueError(f'{path} line {number}: {match[1]} has the key of {name}')
        if not clients:
            raise ValueError(f'{path} holds no API key')
        return cls(clients)

    def client(self, authorization: str) -> str | None:
        """Return whose key stands in a header ``Authorization: Bearer KEY``, or Api-Key KEY."""
        kind, _, key = authorization.partition(' ')
        known = kind.lower() in ('bearer', 'api-key')
        return self.clients.get(_hash(key.strip())) if known else None


def own_key(path: Path | None) -> str:
    """Return the key of a file that only its owner may read, '' without one; ValueError if not."""
    if path is None:
        return ''
    check_private(path, 'the key in')
    keys = [line.split()[-1] for _, line in _lines(path)]
    if len(keys) != 1 or not re.fullmatch('[!-~]+', keys[0]):
        raise ValueError(f'{path} must hold one API key, with or without its name, as in "robot1 '
                         '3f9a..." (what `intradp key` writes is another kind)')
    return keys[0]


def _lines(path: Path) -> list[tuple[int, str]]:
    """Return the lines of a file of keys, with their numbers; none that is blank or a remark."""
    with open_to_read(path) as file:
        text = file.read(MAX_KEYS * (MAX_KEY + 80)).decode('ascii', 'replace')
    return [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)
            if line.strip() and not line.startswith('#')]


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
    a message of a web socket; `only`: names of the keys that may use it, None for all.
    """

    body: int = MAX_BODY
    seconds: float = BODY_SECONDS
    message: int = MAX_MESSAGE
    only: frozenset[str] | None = None


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
        """Count frames that are not messages; return for how long no more should be read."""
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


def _hash(key: str) -> bytes:
    return hashlib.sha256(key.encode('utf-8', 'replace')).digest()
