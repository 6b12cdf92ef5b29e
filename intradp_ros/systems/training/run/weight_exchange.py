# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Weights between the trainer and its workers: the trainer listens, workers fetch and bring.

What is offered is made when it is fetched, and only what is expected is taken, so that nothing
that others send stays in memory.  What arrives counts only with the digest that came another way,
in an order or a report.
"""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
import hashlib
import struct
import threading

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.runtime.transport.sealed_stream import connect, SealedListener, SealedStream

_SIZE = struct.Struct('<Q')
#: Seconds without a byte after which a transfer is given up; transfers of a key at once.
STALLED, MOST_AT_ONCE = 30.0, 2


def given_key(tag: int, layer: int) -> str:
    """Return the key of a layer of the trainer's checkpoint."""
    return f'given/{tag}/{layer}'


def stream_key(key: SharedKey | None, training: int) -> bytes:
    """Return the key of a training's streams; b'' without one."""
    return key.derived('training', training) if key else b''


@dataclass
class _Expected:
    """A body that is to come: how large it may be, what has come, and bytes of all attempts."""

    most: int
    bodies: list[bytes] = field(default_factory=list)
    arrived: int = 0
    coming: int = 0


class Exchange:
    """
    The trainer's end, at an address of this machine; `key` is that of its streams.

    :raises ValueError: if the address is none of this machine.
    """

    def __init__(self, address: str, key: bytes = b'') -> None:
        self._offered: dict[str, Callable[[], bytes]] = {}
        self._expected: dict[str, _Expected] = {}
        self._lock = threading.Lock()
        try:
            self._listener = SealedListener(address, key, self._wanted, self._take, 'exchange')
        except OSError as error:
            raise ValueError(f'nothing can listen at {address} ({error}): name an address of this '
                             'machine that the devices can reach') from None
        self.place = self._listener.place

    def offer(self, key: str, body: Callable[[], bytes]) -> None:
        """Let workers fetch what `body` returns."""
        with self._lock:
            self._offered[key] = body

    def withdraw(self) -> None:
        """Offer nothing any more."""
        with self._lock:
            self._offered.clear()

    def expect(self, key: str, most: int) -> None:
        """Take a body of at most so many bytes."""
        with self._lock:
            self._expected[key] = _Expected(most)

    def arrived(self, key: str) -> int:
        """Return how many bytes of an expected body came so far, with each attempt."""
        with self._lock:
            return self._expected[key].arrived

    def taken(self, key: str, digest: str) -> bytes | None:
        """Return the body that has this digest, once; None if it is not there."""
        with self._lock:
            bodies = self._expected[key].bodies
            while bodies:
                body = bodies.pop()
                if hashlib.sha256(body).hexdigest() == digest:
                    del self._expected[key]
                    return body
        return None

    def forget(self, key: str) -> None:
        """Expect a body no more."""
        with self._lock:
            self._expected.pop(key, None)

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def _wanted(self, purpose: str) -> bool:
        what, _, key = purpose.partition(' ')
        with self._lock:
            expected = self._expected.get(key)
            return key in self._offered if what == 'fetch' else what == 'bring' and \
                expected is not None and expected.coming < MOST_AT_ONCE

    def _take(self, purpose: str, stream: SealedStream) -> None:
        """Serve one worker."""
        stream.settimeout(STALLED)
        what, _, key = purpose.partition(' ')
        with self._lock:
            body, expected = self._offered.get(key), self._expected.get(key)
        if what == 'fetch':
            if body is not None:
                data = body()
                stream.send(_SIZE.pack(len(data)))
                stream.send(data)
            return
        if expected is None or expected.coming >= MOST_AT_ONCE:
            return
        with self._lock:
            expected.coming += 1
        try:
            size, = _SIZE.unpack(stream.receive())
            if size <= expected.most:
                body_ = bytearray()
                for part in stream.receive_all(size):
                    body_ += part
                    expected.arrived += len(part)
                with self._lock:
                    del expected.bodies[:-1]  # where anybody may bring some, two are kept
                    expected.bodies.append(bytes(body_))
                stream.send(b'taken')
        finally:
            with self._lock:
                expected.coming -= 1


def fetch(place: tuple[str, int], key: bytes, name: str, most: int, digest: str) -> bytes:
    """
    Return what the trainer offers by a name.

    :raises OSError: if it does not come.
    :raises ValueError: if it has more bytes, or another digest.
    """
    stream = connect(place, key, f'fetch {name}')
    try:
        stream.settimeout(STALLED)
        size, = _SIZE.unpack(stream.receive())
        if size > most:
            raise ValueError(f'{name} has {size} bytes, at most {most} are taken')
        body = bytearray()
        for part in stream.receive_all(size):
            body += part
    except struct.error:
        raise ValueError(f'{name} comes without its size') from None
    finally:
        stream.close()
    if hashlib.sha256(body).hexdigest() != digest:
        raise ValueError(f'{name} is not what the trainer has: its digest does not fit')
    return bytes(body)


def bring(place: tuple[str, int], key: bytes, name: str, body: bytes) -> str:
    """Give the trainer what it expects by a name; return its digest.  OSError if it is not had."""
    stream = connect(place, key, f'bring {name}')
    try:
        stream.settimeout(STALLED)
        stream.send(_SIZE.pack(len(body)))
        stream.send(body)
        stream.receive()
    finally:
        stream.close()
    return hashlib.sha256(body).hexdigest()
