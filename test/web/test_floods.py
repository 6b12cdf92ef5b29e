# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a client sends without end, in pieces or for nothing, costs itself only."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, ExitStack, suppress
import http.client
from pathlib import Path
import socket
import struct
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import msgpack
from policy_site import Lane, SERVICE, valid
import pytest
from waiting import wait_for
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import connect

from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web import web_socket
from intradp_ros.web.access import (
    ApiKeys,
    Clients,
    FRAMES,
    GuardLimits,
    Held,
    RouteLimits,
)
from intradp_ros.web.connections import PART
from intradp_ros.web.guard import Guard
from intradp_ros.web.serving_app import ServingApp
from intradp_ros.web.web_server import WebServer, WebSocketLimits
from intradp_ros.web.web_socket import MOST_PIECES

KEYS, PATIENCE = {'robot1': 'k' * 32, 'robot2': 'm' * 32}, 60.0
HELD, MESSAGE = 1 << 20, 200_000
TEXT, BINARY, PING, MORE = 1, 2, 9, 0


def frame(kind: int, body: bytes = b'', ends: bool = True) -> bytes:
    """Return a frame of a client, masked with zeros."""
    size = len(body)
    length = bytes([0x80 | size]) if size < 126 else b'\xfe' + struct.pack('>H', size) \
        if size < 1 << 16 else b'\xff' + struct.pack('>Q', size)
    return bytes([0x80 * ends | kind]) + length + bytes(4) + body


class Site:
    """A gateway in model time, whose executor ends what it has when it is told to."""

    def __init__(self, keys: Path) -> None:
        gateway = Gateway('a', (SERVICE,), [(0,)], clock=lambda: 100.0, compiled=False,
                          threaded=False)
        self.lane = Lane(gateway)
        self.clients = Clients(ApiKeys.load(keys), ClientRates(1e4, 1000), GuardLimits(
            in_flight=64, held=HELD, routes={'/': RouteLimits(MESSAGE, message=MESSAGE)}))
        self.guard = Guard(ServingApp(gateway), self.clients)
        self.server = WebServer(self.guard, '127.0.0.1', 0,
                                web_sockets=WebSocketLimits(max_size=MESSAGE))

    def opened(self, path: str = '/pi0', client: str = 'robot1') -> socket.socket:
        """Return a web socket as bytes."""
        one = socket.create_connection(('127.0.0.1', self.server.port), PATIENCE)
        one.sendall(b'GET %s HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n'
                    b'sec-websocket-version: 13\r\nsec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n'
                    b'authorization: Api-Key %s\r\n\r\n' % (path.encode(), KEYS[client].encode()))
        assert one.recv(12).endswith(b'101')
        return one

    def ask(self, body: bytes = b'', client: str = 'robot2', **more: str) -> int:
        """Return the status that a request gets."""
        asked = http.client.HTTPConnection('127.0.0.1', self.server.port, timeout=PATIENCE)
        with closing(asked):
            asked.request('POST' if body else 'GET', '/v2/models/pi0/infer' if body else '/status',
                          body or None, {'authorization': f'Bearer {KEYS[client]}', **more})
            return asked.getresponse().status

    def held(self) -> dict[str, int]:
        """Return the bytes that are held, when nothing is left or after a while."""
        end = time.monotonic() + PATIENCE
        while self.clients._held._of and time.monotonic() < end:
            time.sleep(0.01)
        return dict(self.clients._held._of)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    file = tmp_path / 'keys'
    file.write_text(''.join(f'{name} {key}\n' for name, key in KEYS.items()))
    file.chmod(0o600)
    site = Site(file)
    yield site
    site.server.close()


def last(one: socket.socket) -> bytes:
    """Return what comes until the other end closes."""
    found = b''
    with suppress(ConnectionResetError):
        while part := one.recv(1 << 16):
            found += part
    return found


@settings(max_examples=50)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-400, 400)), max_size=60))
def test_greedy_clients_leave_room_for_one_more(takes: list[tuple[int, int]]) -> None:
    held, mine = Held(1000), Counter[str]()
    for which, count in takes:
        name = str(which)
        if count >= 0 and held.take(name, count):
            mine[name] += count
        elif 0 < -count <= mine[name]:
            held.take(name, count)
            mine[name] += count
    assert held._of == +mine
    others = sum(n > 0 for n in mine.values())
    assert held.take('new', 1000 // (2 ** (others + 1)) - 1)
    assert mine.total() <= 1000


def test_messages_that_never_end_leave_others_their_room(
        site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_socket, 'LONGEST', 0.3)
    with ExitStack() as stack:
        begun = frame(BINARY, b'x' * MESSAGE)[:-1]
        for _ in range(10):
            with suppress(OSError):
                stack.enter_context(site.opened()).sendall(begun)
        wait_for(lambda: sum(site.clients._held._of.values()) >= HELD // 4)
        time.sleep(0.2)
        assert sum(site.clients._held._of.values()) <= HELD // 2
        assert site.ask(b'x' * MESSAGE) == 400  # taken, and not JSON
    assert site.held() == {}


def test_bodies_that_never_end_leave_others_their_room(site: Site) -> None:
    with ExitStack() as stack:
        for _ in range(8):
            one = stack.enter_context(socket.create_connection(('127.0.0.1', site.server.port)))
            one.sendall(b'POST /v2/models/pi0/infer HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n'
                        b'authorization: Api-Key %s\r\n\r\n' % (
                            MESSAGE, KEYS['robot1'].encode()) + b'x' * (MESSAGE - 1))
        wait_for(lambda: site.guard.rejected.get('held'))
        assert site.guard.rejected['held'] and site.ask(b'x' * MESSAGE) == 400
    assert site.held() == {}


def test_a_message_in_too_many_pieces_is_refused(site: Site) -> None:
    with site.opened() as one:
        with suppress(OSError):
            one.sendall(frame(BINARY, b'x', False) + frame(MORE, b'', False) * MOST_PIECES * 2)
        last(one)  # it is closed; who sends on may not see why
    with site.opened() as one:  # as many as a client may have reason to send
        body = msgpack.packb(valid())
        one.sendall(frame(BINARY, b'', False) + b''.join(
            frame(MORE, body[k:k + 1], k + 1 == len(body)) for k in range(len(body))))
        wait_for(lambda: site.lane.batches)
        assert site.lane.batches
    assert site.held() == {}


@pytest.mark.parametrize('parts', [(b'\xff\xfe',), (b'ab\xc3', b'(')])
def test_a_text_that_is_none_ends_its_connection_without_a_trace(
        site: Site, caplog, parts: tuple[bytes, ...]) -> None:
    with site.opened() as one:
        one.sendall(b''.join(frame(MORE if k else TEXT, part, k + 1 == len(parts))
                             for k, part in enumerate(parts)))
        assert b'not UTF-8' in last(one)
    assert site.ask() == 200 and not caplog.records
    assert site.held() == {}


def test_pings_are_answered_so_often_and_cost_others_nothing(site: Site) -> None:
    with ExitStack() as stack:
        flood = [stack.enter_context(site.opened()) for _ in range(20)]
        for one in flood:
            one.sendall(frame(PING) * 5000)
        assert site.ask() == 200
        time.sleep(0.5)
        pongs = 0
        for one in flood:
            one.setblocking(False)
            with suppress(BlockingIOError):
                pongs += one.recv(1 << 20).count(b'\x8a\0')
        assert 0 < pongs < len(flood) * PART // 6 // 2 + PATIENCE * FRAMES
        assert pongs < len(flood) * 5000 // 4
        honest = connect(f'ws://127.0.0.1:{site.server.port}/pi0', additional_headers={
            'authorization': f'Bearer {KEYS["robot2"]}'}, open_timeout=PATIENCE)
        with honest:
            assert honest.ping().wait(PATIENCE)
    assert site.held() == {}


def test_who_asks_as_a_site_and_reads_nothing_gets_few_rows(site: Site) -> None:
    with site.opened('/sites') as one:
        for _ in range(20):
            one.sendall(frame(BINARY, msgpack.packb(['ping', 1.0])) * 500)
        assert site.ask() == 200
    assert site.held() == {}


@pytest.mark.parametrize('key, status', [(KEYS['robot1'], b' 411 '), ('x' * 32, b' 401 ')])
def test_a_body_without_its_length_is_refused_and_not_read(site: Site, key: str, status: bytes,
                                                           ) -> None:
    with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as one:
        one.sendall(b'POST /v2/models/pi0/infer HTTP/1.1\r\nhost: x\r\n'
                    b'transfer-encoding: chunked\r\nauthorization: Api-Key %s\r\n\r\n'
                    % key.encode())
        began = time.monotonic()
        assert status in last(one)
        assert time.monotonic() - began < PATIENCE / 2


@pytest.mark.parametrize('key', [KEYS['robot1'], 'x' * 32])
def test_a_body_that_is_no_http_writes_no_line_of_the_log(
        site: Site, key: str, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as one:
        one.sendall(b'POST /v2/models/pi0/infer HTTP/1.1\r\nhost: x\r\n'
                    b'transfer-encoding: chunked\r\nauthorization: Api-Key %s\r\n\r\nzz\r\n'
                    % key.encode())
        assert b' 400 ' in last(one)
    assert site.ask() == 200
    assert not caplog.records


def test_what_is_answered_is_held_no_more(site: Site) -> None:
    honest = connect(f'ws://127.0.0.1:{site.server.port}/pi0', additional_headers={
        'authorization': f'Bearer {KEYS["robot1"]}'}, open_timeout=PATIENCE)
    with honest:
        honest.recv(PATIENCE)
        for number in range(8):
            honest.send(msgpack.packb(valid(number)))
            wait_for(lambda: site.lane.batches)
            assert site.clients._held._of['robot1'] > 0
            site.lane.finish()
            assert b'actions' in honest.recv(PATIENCE)
            assert site.held() == {}
        with pytest.raises(ConnectionClosed):
            honest.send(b'x' * (MESSAGE + 1))
            honest.recv(PATIENCE)
