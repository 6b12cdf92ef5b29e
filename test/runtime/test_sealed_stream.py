# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Sealed streams: what is sent arrives, whatever strangers do; nothing else does."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
import os
from pathlib import Path
import queue
import resource
import socket
import threading
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from waiting import wait_for

from intradp_ros.runtime.transport import sealed_stream
from intradp_ros.runtime.transport.sealed_stream import (
    connect,
    RECORD,
    SealedListener,
    SealedStream,
    StreamError,
)

KEY, PATIENCE = bytes(range(32)), 60.0


class Echo:
    """Sends back what comes; keeps what it took."""

    def __init__(self, key: bytes = KEY) -> None:
        self.taken: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self.purposes: list[str] = []
        self.listener = SealedListener('127.0.0.1', key, lambda purpose: purpose != 'no',
                                       self._take, 'echo')

    def _take(self, purpose: str, stream: SealedStream) -> None:
        self.purposes.append(purpose)
        while True:
            part = bytes(stream.receive())
            self.taken.put(part)
            stream.send(part)


@pytest.fixture
def echo() -> Iterator[Echo]:
    made = Echo()
    yield made
    made.listener.close()


class Between:
    """Carries bytes between two ends; `alter` sees each chunk, and which way and number it has."""

    def __init__(self, place: tuple[str, int], alter: Callable[[str, int, bytes], bytes] =
                 lambda way, number, data: data) -> None:
        self._alter, self._to = alter, place
        self._listening = socket.create_server(('127.0.0.1', 0))
        self.place = self._listening.getsockname()
        self.seen: dict[str, bytearray] = {'to': bytearray(), 'from': bytearray()}
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                one, _ = self._listening.accept()
            except OSError:
                return
            other = socket.create_connection(self._to)
            for way, a, b in (('to', one, other), ('from', other, one)):
                threading.Thread(target=self._pump, args=(way, a, b), daemon=True).start()

    def _pump(self, way: str, a: socket.socket, b: socket.socket) -> None:
        number = 0
        try:
            while data := a.recv(1 << 20):
                self.seen[way] += data
                b.sendall(self._alter(way, number, data))
                number += 1
        except OSError:
            pass
        finally:
            for end in (a, b):
                with suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def exchanged(stream: SealedStream, body: bytes) -> bytes:
    stream.send(body)
    return b''.join(bytes(part) for part in stream.receive_all(len(body)))


@pytest.mark.parametrize('key', [KEY, b''])
def test_what_is_sent_arrives(key: bytes) -> None:
    echo = Echo(key)
    stream = connect(echo.listener.place, key, 'für b')
    for size in (1, 15, RECORD - 1, RECORD, RECORD + 1, 5 * RECORD + 7):
        body = os.urandom(size)
        assert exchanged(stream, body) == body
    stream.close()
    echo.listener.close()
    assert echo.purposes == ['für b']


@pytest.mark.parametrize('key, purpose', [
    (bytes(32), 'x'), (b'', 'x'), (KEY[:-1] + b'!', 'x'), (KEY, 'no')])
def test_who_has_another_key_or_purpose_gets_no_stream(echo: Echo, key: bytes, purpose: str,
                                                       ) -> None:
    with pytest.raises(OSError):
        connect(echo.listener.place, key, purpose)
    assert not echo.purposes and exchanged(connect(echo.listener.place, KEY, 'x'), b'1') == b'1'


def test_a_listener_without_the_key_is_not_believed() -> None:
    """A stranger at the address answers with numbers of its own, or with what it was sent."""
    for answer in (lambda said: os.urandom(32), lambda said: said[8:24] + said[-16:]):
        with socket.create_server(('127.0.0.1', 0)) as listening:
            def serve(answer: Any = answer, listening: socket.socket = listening) -> None:
                one, _ = listening.accept()
                with one:
                    said = one.recv(1000)
                    one.sendall(answer(said)[:16])
                    said += one.recv(1000)
                    one.sendall(answer(said)[16:32])
                    one.recv(1000)
            threading.Thread(target=serve, daemon=True).start()
            with pytest.raises(StreamError, match='has not our key'):
                connect(listening.getsockname(), KEY, 'x')


@given(st.integers(0, 1), st.integers(0, 2000), st.integers(0, 7))
@settings(max_examples=150)
def test_no_bit_is_altered_on_the_way_unnoticed(back: int, place: int, bit: int) -> None:
    """Whatever bit of whatever message is flipped: an error, or all that arrives is true."""
    echo, left = Echo(), [place]

    def alter(way: str, number: int, data: bytes) -> bytes:
        if way != ('to', 'from')[back] or left[0] < 0:
            return data
        changed, left[0] = bytearray(data), left[0] - len(data)
        if left[0] < 0:
            changed[left[0] + len(data)] ^= 1 << bit
        return bytes(changed)
    between, sent = Between(echo.listener.place, alter), os.urandom(900)
    try:
        stream = connect(between.place, KEY, 'x', 1.0)
        stream.settimeout(0.3)
        assert exchanged(stream, sent) == sent
        assert left[0] >= 0, 'it was altered, and not noticed'
    except OSError:
        assert left[0] < 0, 'nothing was altered'
    between.close()
    echo.listener.close()
    taken = b''
    while not echo.taken.empty():
        taken += echo.taken.get()
    assert sent.startswith(taken)


def test_a_recording_is_worth_nothing(echo: Echo) -> None:
    """What one end said is said again: as a whole, in pieces, and to the other end."""
    between = Between(echo.listener.place)
    stream = connect(between.place, KEY, 'x')
    assert exchanged(stream, b'weights') == b'weights'
    assert echo.taken.get() == b'weights'
    stream.close()
    said, heard = bytes(between.seen['to']), bytes(between.seen['from'])
    between.close()
    for body in (said, said * 2, heard, said[:26] + heard):
        for size in (1, 26, len(body)):
            with socket.create_connection(echo.listener.place, PATIENCE) as one:
                one.settimeout(0.5)
                try:
                    for begin in range(0, len(body), size):
                        one.sendall(body[begin:begin + size])
                    while one.recv(1000):
                        pass
                except OSError:
                    pass
    assert echo.taken.empty() and echo.purposes == ['x']


@pytest.mark.parametrize('change', ['repeat', 'drop', 'swap'])
def test_records_come_once_and_in_order(echo: Echo, change: str) -> None:
    kept: list[bytes] = []

    def alter(way: str, number: int, data: bytes) -> bytes:
        if way == 'from' or number < 2:
            return data
        kept.append(data)
        if change == 'repeat':
            return data + kept[0]
        if change == 'drop':
            return b'' if len(kept) == 1 else data
        return b'' if len(kept) == 1 else data + kept[0] if len(kept) == 2 else data
    between = Between(echo.listener.place, alter)
    stream = connect(between.place, KEY, 'x')
    stream.settimeout(1.0)
    for body in (b'first', b'second', b'third'):
        try:
            stream.send(body)
        except OSError:
            break
        time.sleep(0.1)  # so that each is a chunk
    with pytest.raises(OSError):
        for body in (b'first', b'second', b'third'):
            assert bytes(stream.receive()) == body
    between.close()


def test_strangers_keep_nobody_out_and_take_no_memory(echo: Echo) -> None:
    """They connect and are silent, or speak nonsense, from the address of who has the key."""
    def memory() -> int:
        return int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize()
    kept, rng, begun = connect(echo.listener.place, KEY, 'x'), os.urandom, None
    with ExitStack() as stack:
        for number in range(1500):
            one = stack.enter_context(socket.create_connection(echo.listener.place, PATIENCE))
            with suppress(OSError):
                one.sendall((b'', b'intradp1' + rng(16) + b'\0\4', rng(3000))[number % 3])
            if number % 100 == 99:
                assert exchanged(connect(echo.listener.place, KEY, 'y'), b'new') == b'new'
                assert exchanged(kept, b'old') == b'old'
            if number == 499:
                begun = memory()
        assert memory() - begun < 8 << 20
        assert threading.active_count() < 2 * sealed_stream.PENDING.total


def test_a_listener_outlives_errors(echo: Echo, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files and threads are used up for a while, at each place."""
    failures = [OSError(24, 'Too many open files'), RuntimeError("can't start new thread"),
                MemoryError()]

    def fail(true: Callable[..., Any]) -> Callable[..., Any]:
        def run(*given: Any, **named: Any) -> Any:
            if failures:
                raise failures.pop()
            return true(*given, **named)
        return run
    monkeypatch.setattr(threading.Thread, 'start', fail(threading.Thread.start))
    for _ in range(3):
        with socket.create_connection(echo.listener.place):
            pass
    wait_for(lambda: not failures)
    assert exchanged(connect(echo.listener.place, KEY, 'x'), b'1') == b'1'


def test_who_waits_learns_of_the_end(echo: Echo) -> None:
    stream = connect(echo.listener.place, KEY, 'x')
    threading.Timer(0.2, stream.stop).start()
    with pytest.raises(StreamError, match='gone'):
        stream.receive()
    other = connect(echo.listener.place, KEY, 'x')
    echo.listener.close()
    with pytest.raises(OSError):
        other.receive()
    with pytest.raises(OSError):
        connect(echo.listener.place, KEY, 'x')
