# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Connections of strangers keep nobody out, and take no files; over real sockets, and as rules."""
from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import closing, ExitStack
import http.client
import os
from pathlib import Path
import resource
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
import uvicorn
from waiting import wait_for

from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits, Connections, group
from intradp_ros.web.access import ApiKeys, Clients
from intradp_ros.web.guard import Guard
from intradp_ros.web.web_server import WebServer

KEY, PATIENCE = 'k' * 32, 60.0
SMALL = ConnectionLimits(total=12, of_address=8, head=0.6, idle=1.0, stalled=1.0)
EVENTS = st.lists(st.tuples(
    st.sampled_from(['open', 'begin', 'end', 'close', 'look']), st.integers(0, 30),
    st.floats(0, 0.5)), max_size=120)


@given(EVENTS)
@settings(max_examples=200)
def test_limits_hold_and_only_idle_connections_make_room(events: Any) -> None:
    limits = ConnectionLimits(6, 3, 1.0, 2.0, 3.0)
    all_of = Connections(limits)
    now, known = 0.0, []
    for what, which, passed in events:
        now += passed
        if what == 'open':
            full = list(all_of.lives.values())
            made, leaves = all_of.open(f'10.0.0.{which % 4}', now)
            if leaves is not None:
                assert not leaves.in_flight and leaves.number not in all_of.lives
            if made is None:  # only when none that may leave is idle
                mine = [life for life in full if life.group == f'10.0.0.{which % 4}']
                judged = mine if len(mine) >= limits.of_address else full
                assert all(life.in_flight for life in judged)
            else:
                known.append(made)
        elif known:
            life = known[which % len(known)]
            if life.number not in all_of.lives:
                continue
            if what == 'begin':
                life.begin()
            elif what == 'end' and life.in_flight:
                life.end(now)
            elif what == 'close':
                all_of.close(life)
            elif what == 'look':
                cause, seconds = life.overdue(now, limits)
                assert bool(cause) == (seconds == 0.0)
                if life.in_flight and life.sending is None:
                    assert not cause  # who computes is not cut
                elif not life.in_flight:  # whoever is idle is cut in time
                    assert life.overdue(now + limits.idle, limits)[0]
        assert len(all_of.lives) <= limits.total
        assert max(Counter(life.group for life in all_of.lives.values()).values(),
                   default=0) <= limits.of_address


def test_an_address_that_holds_most_makes_room_for_others() -> None:
    all_of = Connections(ConnectionLimits(total=10, of_address=8))
    kept, _ = all_of.open('10.0.0.1', 0.0)  # the oldest, of another
    strangers = [all_of.open('10.0.0.2', 1.0 + n)[0] for n in range(8)]
    all_of.open('10.0.0.3', 20.0)
    _, leaves = all_of.open('10.0.0.4', 21.0)
    assert leaves is strangers[0] and kept.number in all_of.lives
    kept.begin()
    assert all_of.open('10.0.0.1', 22.0)[1] is strangers[1]


def test_a_network_of_addresses_is_counted_as_one() -> None:
    assert group('2001:db8::1') == group('2001:db8::ffff:2') != group('2001:db8:0:1::1')
    assert group('::ffff:10.0.0.1') == group('10.0.0.1') != group('10.0.0.2')
    assert group('fe80::1%eth0') == group('fe80::2%eth0')
    assert group('local') == 'local'


async def plain(scope: Any, receive: Any, send: Any) -> None:
    size = int(scope['query_string'] or 2)
    await send({'type': 'http.response.start', 'status': 200,
                'headers': [(b'content-length', str(size).encode())]})
    for _ in range(0, size, 1 << 16):
        await send({'type': 'http.response.body', 'body': b'o' * min(size, 1 << 16),
                    'more_body': True})
    await send({'type': 'http.response.body', 'body': b''})


@pytest.fixture
def server(tmp_path: Path) -> Iterator[WebServer]:
    file = tmp_path / 'keys'
    file.write_text(f'robot1 {KEY}\n')
    file.chmod(0o600)
    server = WebServer(Guard(plain, Clients(ApiKeys.load(file), ClientRates(1e4, 10000))),
                       '127.0.0.1', 0, limits=SMALL)
    yield server
    server.close()


def answered(server: WebServer, connection: http.client.HTTPConnection | None = None) -> int:
    asked = connection or http.client.HTTPConnection('127.0.0.1', server.port, timeout=PATIENCE)
    asked.request('GET', '/v1/models', headers={'authorization': f'Bearer {KEY}'})
    response = asked.getresponse()
    response.read()
    return response.status


def ended(stranger: socket.socket) -> bool:
    stranger.settimeout(PATIENCE)
    try:
        return stranger.recv(100) == b''
    except OSError:
        return True


def test_idle_connections_keep_nobody_out_and_are_cut(server: WebServer) -> None:
    with ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(('127.0.0.1', server.port)))
                for _ in range(40)]
        assert answered(server) == 200
        assert all(ended(stranger) for stranger in idle)
    assert server.rejected['displaced'] >= 32 and server.rejected['slow_head'] >= 1


def test_idle_connections_before_a_tls_handshake_count_too(tmp_path: Path) -> None:
    if not shutil.which('openssl'):
        pytest.skip('openssl makes the certificate')
    subprocess.run(['openssl', 'req', '-x509', '-newkey', 'rsa:2048', '-nodes', '-subj',
                    '/CN=localhost', '-keyout', tmp_path / 'key', '-out', tmp_path / 'cert'],
                   check=True, capture_output=True)
    server = WebServer(plain, '127.0.0.1', 0, tmp_path / 'cert', tmp_path / 'key', limits=SMALL)
    context = ssl.create_default_context(cafile=str(tmp_path / 'cert'))
    context.check_hostname = False
    with closing(server), ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(('127.0.0.1', server.port)))
                for _ in range(40)]
        assert answered(server, http.client.HTTPSConnection(
            '127.0.0.1', server.port, timeout=PATIENCE, context=context)) == 200
        assert all(ended(stranger) for stranger in idle)


@pytest.mark.parametrize('first', [b'', b'GET /v1/models HTTP/1.1\r\nhost: x\r\n\r\n'])
def test_a_head_that_comes_letter_by_letter_is_cut(server: WebServer, first: bytes) -> None:
    with socket.create_connection(('127.0.0.1', server.port)) as stranger:
        head = b'GET /health HTTP/1.1\r\nx: ' + b'y' * 10000
        stranger.sendall(first)
        began = time.monotonic()
        with pytest.raises(OSError):
            for letter in head:
                stranger.sendall(bytes([letter]))
                time.sleep(0.05)
        assert time.monotonic() - began < PATIENCE


def test_who_is_answered_stays_while_strangers_come_and_go(server: WebServer) -> None:
    mine = http.client.HTTPConnection('127.0.0.1', server.port, timeout=PATIENCE)
    with ExitStack() as stack:
        for _ in range(5):
            assert answered(server, mine) == 200  # on one connection
            for _ in range(6):
                stack.enter_context(socket.create_connection(('127.0.0.1', server.port)))
    mine.close()


def test_an_answer_that_nobody_takes_is_cut(server: WebServer) -> None:
    with socket.create_connection(('127.0.0.1', server.port)) as stalled:
        stalled.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        stalled.sendall(b'GET /v1?%d HTTP/1.1\r\nhost: x\r\nauthorization: Api-Key %s\r\n\r\n'
                        % (64 << 20, KEY.encode()))
        wait_for(lambda: server.rejected.get('stalled'))
        assert server.rejected.get('stalled') == 1 and answered(server) == 200


def test_a_slow_reader_is_not_cut(server: WebServer) -> None:
    size = 8 << 20
    with socket.create_connection(('127.0.0.1', server.port), PATIENCE) as slow:
        slow.sendall(b'GET /v1?%d HTTP/1.1\r\nhost: x\r\nconnection: close\r\n'
                     b'authorization: Bearer %s\r\n\r\n' % (size, KEY.encode()))
        read, began = 0, time.monotonic()
        while part := slow.recv(20000):  # 400 kB/s: what the kernel holds lasts for seconds
            read += len(part)
            if time.monotonic() - began < 4 * SMALL.stalled:
                time.sleep(0.05)
    assert read > size and not server.rejected


def test_an_error_of_the_server_itself_ends_nothing(server: WebServer,
                                                    monkeypatch: pytest.MonkeyPatch) -> None:
    assert answered(server) == 200
    failures = [ValueError('odd'), OSError(24, 'Too many open files')]
    serves = threading.Event()  # what fails cuts its connections: it is asked when it goes on
    usual: Any = uvicorn.Server.on_tick

    async def on_tick(self: Any, counter: int) -> bool:
        if self.config is server._config:  # others may run in this process
            if failures:
                raise failures.pop()
            serves.set()
        return bool(await usual(self, counter))
    monkeypatch.setattr('intradp_ros.web.web_server.AGAIN', 0.1)
    monkeypatch.setattr('uvicorn.Server.on_tick', on_tick)
    assert serves.wait(PATIENCE) and not failures
    assert answered(server) == 200


FEW_FILES = """
import socket, sys, time
import http.client
from intradp_ros.web.web_server import WebServer
async def app(scope, receive, send):
    await send({'type': 'http.response.start', 'status': 200, 'headers': []})
    await send({'type': 'http.response.body', 'body': b'ok'})
server = WebServer(app, '127.0.0.1', 0)
print(server.port, flush=True)
for line in sys.stdin:
    with open('/proc/self/status') as file, socket.socket():
        pass
    print('opened', flush=True)
"""


def test_many_connections_leave_the_process_its_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    child = subprocess.Popen(
        ['prlimit', '--nofile=256', sys.executable, '-c', FEW_FILES], stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    try:
        port = int(child.stdout.readline())
        with ExitStack() as stack:
            for number in range(600):
                stack.enter_context(socket.create_connection(('127.0.0.1', port)))
                if number % 50 == 49:
                    print('open', file=child.stdin, flush=True)
                    assert child.stdout.readline() == 'opened\n'
            asked = http.client.HTTPConnection('127.0.0.1', port, timeout=PATIENCE)
            asked.request('GET', '/')
            assert asked.getresponse().status == 200
    finally:
        child.kill()
        child.wait()
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
