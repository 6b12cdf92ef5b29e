# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Streams of bytes over TCP that nobody without the key can begin, alter, repeat or cut short.

Both ends draw a number, and prove over both that they have the key, and what the stream is for.
Each record then has a MAC under a key of this stream and way, over its place in the stream: what
was recorded elsewhere is worth nothing.  What is sent can be read by all; a stream hides nothing.
Without a key (b'') the ends speak the same, and any may be a stranger.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
import contextlib
import hashlib
import hmac
import secrets
import socket
import struct
import threading
import time
from typing import Any

from intradp_ros.runtime.transport.connection_limits import ConnectionLimits, Connections, Life

#: Bytes of the payload of a record, of a purpose, and of numbers and MACs.
RECORD, MOST_PURPOSE = 1 << 16, 1024
NUMBER, MAC = 16, 16
#: Seconds in which two ends must have met; connections that have not, and streams, at once.
MEETING = 5.0
PENDING = ConnectionLimits(total=48, of_address=32, head=MEETING)
MOST_STREAMS = 256
_MAGIC = b'intradp1'
_HELLO, _LENGTH, _PLACE = struct.Struct('<8s16sH'), struct.Struct('<I'), struct.Struct('<QI')


class StreamError(OSError):
    """A stream that has ended, or whose other end has not the key."""


class SealedStream:
    """One end; sending and receiving each belong to one thread."""

    def __init__(self, connection: socket.socket, sending: bytes, receiving: bytes) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connection
        self._sending, self._receiving = (
            hmac.new(key, digestmod=hashlib.sha256) for key in (sending, receiving))
        self._sent = self._received = 0
        self._out, self._in = (memoryview(bytearray(_LENGTH.size + RECORD + MAC))
                               for _ in range(2))

    def settimeout(self, seconds: float | None) -> None:
        """Let every wait end with TimeoutError after so long."""
        self._socket.settimeout(seconds)

    def send(self, data: Any) -> None:
        """Send bytes, as records; OSError if the stream has ended."""
        view = memoryview(data).cast('B')
        for begin in range(0, len(view), RECORD):
            part = view[begin:begin + RECORD]
            self._out[_LENGTH.size:_LENGTH.size + len(part)] = part
            self._seal(len(part))

    def forward(self, source: socket.socket) -> bool:
        """Send what a socket has next; return whether there was any."""
        count = source.recv_into(self._out[_LENGTH.size:_LENGTH.size + RECORD])
        if count:
            self._seal(count)
        return count > 0

    def receive(self) -> memoryview:
        """
        Return the payload of the next record, good until the next call.

        :raises StreamError: if the other end is gone, or a record is not from it.
        """
        head = self._in[:_LENGTH.size]
        _exactly(self._socket, head)
        length, = _LENGTH.unpack(head)
        if not 0 < length <= RECORD:
            raise StreamError(f'a record of {length} bytes')
        body = self._in[_LENGTH.size:_LENGTH.size + length + MAC]
        _exactly(self._socket, body)
        wanted = _mac(self._receiving, self._received, body[:length])
        if not hmac.compare_digest(wanted, body[length:]):
            raise StreamError('a record that is not sealed with our key')
        self._received += 1
        return body[:length]

    def receive_all(self, count: int) -> Iterator[memoryview]:
        """Yield parts of so many bytes; StreamError if more come."""
        while count > 0:
            part = self.receive()
            count -= len(part)
            if count < 0:
                raise StreamError('more bytes than were announced')
            yield part

    def stop(self) -> None:
        """End the stream, from any thread; who waits at either end learns it."""
        _stop(self._socket)

    def close(self) -> None:
        """Let go of the stream, from the last thread that uses it."""
        _end(self._socket)

    def _seal(self, length: int) -> None:
        end = _LENGTH.size + length
        _LENGTH.pack_into(self._out, 0, length)
        self._out[end:end + MAC] = _mac(self._sending, self._sent, self._out[_LENGTH.size:end])
        self._sent += 1
        self._socket.sendall(self._out[:end + MAC])


def connect(place: tuple[str, int], key: bytes, purpose: str, patience: float = MEETING,
            ) -> SealedStream:
    """
    Return a stream with who listens at a place.

    :raises OSError: if nobody answers in time, or who answers has not the key, or does not want
        this.
    """
    about, end = purpose.encode(), time.monotonic() + patience
    if len(about) > MOST_PURPOSE:
        raise ValueError(f'a purpose of {len(about)} bytes')
    connection = socket.create_connection(place, patience)
    try:
        own = secrets.token_bytes(NUMBER)
        connection.sendall(_HELLO.pack(_MAGIC, own, len(about)))
        met = _common(key, own, _read(connection, NUMBER, end))
        connection.sendall(about + _proof(met, b'first', about))
        if not hmac.compare_digest(_proof(met, b'second', about), _read(connection, MAC, end)):
            raise StreamError('who listens there has not our key')
        connection.settimeout(None)
        return SealedStream(connection, _key(met, b'to', about), _key(met, b'from', about))
    except BaseException:
        _end(connection)
        raise


class SealedListener:
    """
    Listens at an address of this machine until `close`.

    Each stream whose purpose `wants` accepts goes to `take`, on a thread of its own; when that
    returns the stream is closed.  Who connects and does not prove to have the key is closed after
    `MEETING` seconds, or sooner for others.

    :raises OSError: if it cannot listen there.
    """

    def __init__(self, address: str, key: bytes, wants: Callable[[str], bool],
                 take: Callable[[str, SealedStream], None], name: str) -> None:
        family = socket.AF_INET6 if ':' in address else socket.AF_INET
        self._socket = socket.create_server((address, 0), backlog=128, family=family)
        self.place = address, int(self._socket.getsockname()[1])
        self._key, self._wants, self._take, self._name = key, wants, take, name
        self._lock, self._closed = threading.Lock(), False
        self._pending = Connections(PENDING.within_files())
        self._sockets: dict[int, socket.socket] = {}
        self._streams: set[SealedStream] = set()
        threading.Thread(target=self._accept, name=name, daemon=True).start()

    @property
    def streams(self) -> int:
        """Return how many streams there are."""
        return len(self._streams)

    def close(self) -> None:
        """Listen no more, and end all streams."""
        with self._lock:
            self._closed = True
            streams = list(self._streams)
        _stop(self._socket)  # wakes the thread
        for stream in streams:
            stream.stop()

    def _accept(self) -> None:
        while not self._closed:
            try:
                connection, address = self._socket.accept()
                with self._lock:
                    life, leaves = self._pending.open(str(address[0]), time.monotonic())
                    if leaves is not None:
                        _stop(self._sockets.pop(leaves.number))
                    if life is not None:
                        self._sockets[life.number] = connection
                if life is None:
                    _end(connection)
                else:
                    threading.Thread(target=self._serve, args=(connection, life),
                                     name=self._name, daemon=True).start()
            except Exception:  # noqa: BLE001 - files or threads are used up: later there are some
                time.sleep(0.05)
        self._socket.close()

    def _serve(self, connection: socket.socket, life: Life) -> None:
        stream = None
        try:
            purpose, stream = self._meet(connection)
            with self._lock:
                if self._closed or len(self._streams) >= MOST_STREAMS:
                    return
                self._streams.add(stream)
                self._forget(life)
            self._take(purpose, stream)
        except (OSError, UnicodeDecodeError):
            pass
        finally:
            with self._lock:
                self._forget(life)
                self._streams.discard(stream)
            _end(connection)

    def _forget(self, life: Life) -> None:
        self._pending.close(life)
        self._sockets.pop(life.number, None)

    def _meet(self, connection: socket.socket) -> tuple[str, SealedStream]:
        end = time.monotonic() + MEETING
        magic, other, length = _HELLO.unpack(_read(connection, _HELLO.size, end))
        if magic != _MAGIC or length > MOST_PURPOSE:
            raise StreamError('no stream of ours')
        own = secrets.token_bytes(NUMBER)
        connection.sendall(own)
        met = _common(self._key, other, own)
        said = _read(connection, length + MAC, end)
        about = said[:length]
        if not hmac.compare_digest(_proof(met, b'first', about), said[length:]):
            raise StreamError('who connects has not our key')
        if not self._wants(about.decode()):
            raise StreamError(f'nobody wants {about.decode()!r:.100}')
        connection.settimeout(MEETING)
        connection.sendall(_proof(met, b'second', about))
        connection.settimeout(None)
        return about.decode(), SealedStream(connection, _key(met, b'from', about),
                                            _key(met, b'to', about))


def _common(key: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(key, b'intradp_ros stream' + first + second, 'sha256')


def _key(met: bytes, way: bytes, about: bytes) -> bytes:
    return hmac.digest(met, b'key ' + way + b' ' + about, 'sha256')


def _proof(met: bytes, way: bytes, about: bytes) -> bytes:
    return hmac.digest(met, b'proof ' + way + b' ' + about, 'sha256')[:MAC]


def _mac(key: Any, place: int, payload: memoryview) -> bytes:
    content = key.copy()
    content.update(_PLACE.pack(place, len(payload)))
    content.update(payload)
    return bytes(content.digest()[:MAC])


def _read(connection: socket.socket, count: int, end: float) -> bytes:
    """Return so many bytes; StreamError if they have not come when the time is over."""
    body = bytearray()
    while len(body) < count:
        if (left := end - time.monotonic()) <= 0:
            raise StreamError('the other end is too slow')
        connection.settimeout(left)
        if not (part := connection.recv(count - len(body))):
            raise StreamError('the other end is gone')
        body += part
    return bytes(body)


def _exactly(connection: socket.socket, view: memoryview) -> None:
    while view:
        if not (count := connection.recv_into(view)):
            raise StreamError('the other end is gone')
        view = view[count:]


def _stop(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _end(connection: socket.socket) -> None:
    _stop(connection)
    connection.close()
