# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Keys, rates and sizes of requests and web sockets, by real clients."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
import json
import logging
from pathlib import Path
import socket
import threading
import time
from typing import Any
import urllib.error
import urllib.request

from fastapi import FastAPI, Request, WebSocket, WebSocketDisconnect
import pytest
from waiting import wait_for
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin

from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.web.access import ApiKeys, Clients, GuardLimits, RouteLimits
from intradp_ros.web.guard import Guard
from intradp_ros.web.web_server import WebServer, WebSocketLimits

KEY, PATIENCE = 'a-key-of-enough-characters', 60.0
LIMITS = GuardLimits(in_flight=3, held=12000, routes={
    '/images': RouteLimits(body=2000, seconds=1.0, message=500),
    '/images/large': RouteLimits(body=100000), '/': RouteLimits(body=100, message=50)},
    messages=ClientRates(50.0, 20))


class Site:
    """An application that says what it received."""

    def __init__(self, keys: Path | None, pings: float = 20.0) -> None:
        self.hold = threading.Event()
        app = FastAPI()

        @app.post('/{path:path}')
        async def size(path: str, request: Request) -> dict[str, Any]:
            return {'bytes': len(await request.body()), 'client': request.scope['client_name']}

        @app.get('/{path:path}')
        async def wait(path: str) -> dict[str, Any]:
            import asyncio
            while path == 'held' and not self.hold.is_set():
                await asyncio.sleep(0.01)
            return {'path': path}

        @app.websocket('/{path:path}')
        async def echo(path: str, web_socket: WebSocket) -> None:
            await web_socket.accept()
            await web_socket.send_text(web_socket.scope['client_name'])
            try:
                while True:
                    await web_socket.send_bytes(await web_socket.receive_bytes())
            except WebSocketDisconnect:
                pass
        self.guard = Guard(app, Clients(
            ApiKeys.load(keys) if keys else None, ClientRates(1e3, 1000), LIMITS))
        self.server = WebServer(self.guard, '127.0.0.1', 0, web_sockets=WebSocketLimits(
            max_size=4000, ping_interval=pings, ping_timeout=pings))

    def socket(self, path: str, key: str = f'Api-Key {KEY}') -> Any:
        return connect(f'ws://127.0.0.1:{self.server.port}{path}',
                       additional_headers={'authorization': key}, open_timeout=PATIENCE)

    def ask(self, path: str, body: bytes | None = None, key: str = f'Api-Key {KEY}',
            ) -> tuple[int, Any]:
        request = urllib.request.Request(self.server.url + path, body, {'authorization': key})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as response:
                return response.status, json.load(response)
        except urllib.error.HTTPError as error:
            return error.code, json.load(error)['error']['code']


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    file = tmp_path / 'keys'
    file.write_text(f'robot1 {KEY}\n')
    file.chmod(0o600)
    return file


@pytest.fixture
def site(keys: Path) -> Iterator[Site]:
    site = Site(keys)
    yield site
    site.server.close()


def test_a_web_socket_needs_a_key_and_knows_its_client(site: Site) -> None:
    for kind in ('Api-Key', 'bearer'):
        with site.socket('/images', f'{kind} {KEY}') as mine:
            assert mine.recv(PATIENCE) == 'robot1'
            mine.send(b'x' * 500)
            assert mine.recv(PATIENCE) == b'x' * 500
    for path, key in (('/images', ''), ('/images', 'Api-Key guessed'),
                      ('/images', f'Basic {KEY}'), ('/health', '')):
        with pytest.raises(InvalidStatus) as refused, site.socket(path, key):
            pass
        assert refused.value.response.status_code == 401
    assert site.guard.rejected == {'no_key': 4}


def test_what_is_refused_writes_no_log(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger('uvicorn.error').addHandler(caplog.handler)
    try:
        for _ in range(3):
            with pytest.raises(InvalidStatus), site.socket('/images', ''):
                pass
            for key in (KEY, 'guessed'):  # the second part is none, and comes with the head
                with closing(socket.create_connection(('127.0.0.1', site.server.port))) as raw:
                    raw.sendall(b'POST /images HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked'
                                b'\r\nAuthorization: Bearer %b\r\n\r\nzz\r\n' % key.encode())
                    raw.settimeout(PATIENCE)
                    assert b' 400 ' in raw.recv(100)
        time.sleep(0.1)
    finally:
        logging.getLogger('uvicorn.error').removeHandler(caplog.handler)
    assert not caplog.records


def test_messages_have_a_size_by_route(site: Site) -> None:
    for path, size in (('/images', 501), ('/other', 51), ('/images', 5000)):
        with site.socket(path) as mine:
            mine.recv(PATIENCE)
            mine.send(b'x' * size)
            with pytest.raises(ConnectionClosed) as closed:
                mine.recv(PATIENCE)
            assert closed.value.rcvd.code == 1009
    assert site.guard.rejected == {'size': 2}  # the third is refused by the server


def test_messages_above_the_rate_wait(site: Site) -> None:
    with site.socket('/images') as mine:
        mine.recv(PATIENCE)
        began = time.monotonic()
        for _ in range(70):
            mine.send(b'x')
        for _ in range(70):
            assert mine.recv(PATIENCE) == b'x'
        assert time.monotonic() - began > 0.9  # 20 at once, then 50 a second


def test_a_client_has_so_many_requests_and_sockets_at_once(site: Site) -> None:
    with site.socket('/a'), site.socket('/b'), site.socket('/c'):
        with pytest.raises(InvalidStatus) as refused, site.socket('/d'):
            pass
        assert refused.value.response.status_code == 429
        assert site.ask('/e') == (429, 'in_flight')
    wait_for(lambda: site.ask('/e')[0] == 200)
    assert site.ask('/e')[0] == 200


def test_a_web_socket_whose_client_is_lost_is_closed(keys: Path) -> None:
    site = Site(keys, pings=0.2)
    address = '127.0.0.1', site.server.port
    with closing(site.server), socket.create_connection(address, PATIENCE) as lost:
        lost.sendall(b'GET /a HTTP/1.1\r\nhost: x\r\nupgrade: websocket\r\nconnection: upgrade\r\n'
                     b'sec-websocket-version: 13\r\n'
                     b'sec-websocket-key: MDEyMzQ1Njc4OWFiY2RlZg==\r\n'
                     b'authorization: Api-Key %s\r\n\r\n' % KEY.encode())
        began = time.monotonic()
        while lost.recv(4096):  # answers no ping
            assert time.monotonic() - began < PATIENCE


@pytest.mark.parametrize('path, most', [
    ('/images', 2000), ('/images/x', 2000), ('/images/large/x', 100000), ('/imagesx', 100)])
def test_bodies_have_a_size_by_route(site: Site, path: str, most: int) -> None:
    most = min(most, LIMITS.held // 2)  # a client leaves as much as it has
    assert site.ask(path, b'x' * most) == (200, {'bytes': most, 'client': 'robot1'})
    assert site.ask(path, b'x' * (most + 1))[0] == (503 if most == LIMITS.held // 2 else 413)
    assert site.ask(path, b'x' * most)[0] == 200


def test_a_refusal_is_read_though_the_body_comes_late(site: Site) -> None:
    for _ in range(20):
        with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as client:
            client.sendall(b'POST /images HTTP/1.1\r\nhost: x\r\ncontent-length: 9000\r\n\r\n')
            time.sleep(0.01)
            client.sendall(b'x' * 9000)
            answer = b''
            while part := client.recv(1000):
                answer += part
            assert b' 401 ' in answer and b'no_key' in answer


def test_open_paths_take_no_body_and_no_place_of_a_client(site: Site) -> None:
    assert site.ask('/health', key='')[0] == 200
    assert site.ask('/health', b'x', key='') == (413, 'size')
    with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as stranger:
        stranger.sendall(b'GET /health HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n')
        assert b' 413 ' in stranger.recv(100)


def test_slow_bodies_are_refused_by_route(site: Site) -> None:
    with socket.create_connection(('127.0.0.1', site.server.port), PATIENCE) as slow:
        slow.sendall(b'POST /images HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n'
                     b'authorization: Api-Key %s\r\n\r\n' % KEY.encode())
        assert b' 413 ' in slow.recv(100)


def test_without_keys_web_sockets_are_open_to_this_machine() -> None:
    site = Site(None)
    with closing(site.server), site.socket('/a', '') as mine:
        assert mine.recv(PATIENCE) == '127.0.0.1'


def test_without_keys_only_this_machine_is_answered() -> None:
    """A page of a stranger leads a browser of this machine here: by its own name, or openly."""
    site = Site(None)
    here = [{}, {'Host': 'localhost'}, {'Host': 'LOCALHOST:80'}, {'Host': '[::1]:80'},
            {'Host': '127.1.2.3'}, {'Origin': 'http://localhost:3000'},
            {'Origin': 'https://127.0.0.1'}]
    elsewhere = [{'Host': 'rebound.example'}, {'Host': '127.0.0.1.example'}, {'Host': '10.0.0.1'},
                 {'Host': 'a@localhost.example'}, {'Host': '[::1'}, {'Origin': 'null'},
                 {'Origin': 'http://site.example'}, {'Origin': 'http://localhost.example'}]
    with closing(site.server):
        for headers in (*here, *elsewhere):
            for method, path in (('GET', '/health'), ('POST', '/images')):
                request = urllib.request.Request(site.server.url + path, method=method,
                                                 headers=headers)
                try:
                    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                        found = answer.status
                except urllib.error.HTTPError as error:
                    found = error.code
                assert found == (200 if headers in here else 403), headers
        assert site.guard.rejected == {'foreign': 2 * len(elsewhere)}


def test_with_a_key_any_name_is_answered(site: Site) -> None:
    request = urllib.request.Request(site.server.url + '/x', headers={
        'Host': 'robot.local', 'Origin': 'http://fleet.example', 'Authorization': f'Bearer {KEY}'})
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        assert answer.status == 200


def test_a_web_socket_that_a_foreign_page_opens_is_refused() -> None:
    site = Site(None)
    with closing(site.server):
        address = f'ws://127.0.0.1:{site.server.port}/images'
        with connect(address, origin=Origin('http://127.0.0.1:3000'), open_timeout=PATIENCE,
                     ) as mine:
            assert mine.recv(PATIENCE)
        with pytest.raises(InvalidStatus) as refused, connect(
                address, origin=Origin('http://site.example'), open_timeout=PATIENCE):
            pass
        assert refused.value.response.status_code == 403
