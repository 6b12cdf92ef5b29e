# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Who may speak as a site: a key with the name of another one, which cannot forge where it was."""
from __future__ import annotations

from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
import threading
import time

import numpy as np
import pytest
from waiting import wait_for

websockets = pytest.importorskip('websockets.sync.client')
pytest.importorskip('msgpack')

from websockets.exceptions import ConnectionClosed, InvalidStatus  # noqa: E402

from intradp_ros.core.patience import Patience  # noqa: E402
from intradp_ros.runtime.requests.infer_requests import InferRequest  # noqa: E402
from intradp_ros.systems.serving.gateway import Gateway  # noqa: E402
from intradp_ros.systems.serving.service import parse_services  # noqa: E402
from intradp_ros.systems.serving.state_row import StateRow  # noqa: E402
from intradp_ros.web import connections, site_link  # noqa: E402
from intradp_ros.web.access import ApiKeys  # noqa: E402
from intradp_ros.web.connections import PEERS, SPEAKS  # noqa: E402
from intradp_ros.web.serving_app import serve  # noqa: E402
from intradp_ros.web.site_link import ask_message  # noqa: E402
from intradp_ros.web.site_server import SiteAccess, SiteServer  # noqa: E402

SERVICES = parse_services("""
services:
  policy:
    model: emulated
    deadline: 100 s
    inputs: {state: float32 4}
    outputs: {actions: float32 3}
    seconds: {1: 20 ms}
""")
SITES = ('dock', 'hall', 'yard')
CLIENTS = ('dock', 'hall', 'robot1', 'hall2', 'Hall')
REQUEST = InferRequest('policy', {'state': np.zeros(4, np.float32)}, 60.0)


class Away:
    """A link to another site, which keeps what it is sent and answers nothing."""

    def __init__(self) -> None:
        self.paths: list[tuple[str, ...]] = []
        self.came = threading.Event()

    def send(self, request, path, heard):
        self.paths.append(tuple(path))
        self.came.set()
        return lambda: None


@pytest.fixture
def keys(tmp_path: Path) -> Path:
    path = tmp_path / 'keys.txt'
    path.write_text(''.join(f'{name} {key_of(name)}\n' for name in CLIENTS))
    path.chmod(0o600)
    return path


@pytest.fixture
def dock(keys: Path) -> Iterator[tuple[Gateway, int]]:
    """Return a site without executors, which forwards what it takes, and its port."""
    gateway = Gateway('dock', SERVICES, [()], SITES, compiled=False)
    server = serve(gateway, '127.0.0.1', 0, ApiKeys.load(keys))
    try:
        yield gateway, server.port
    finally:
        server.close()
        gateway.close()


def key_of(name: str) -> str:
    return f'{name:k>24}'


def connected(port: int, name: str, path: str = '/sites', speaks: str = SPEAKS):
    return websockets.connect(
        f'ws://127.0.0.1:{port}{path}', compression=None,
        additional_headers={'Authorization': f'Bearer {key_of(name)}', PEERS: speaks})


def ends(socket) -> None:
    """See that a connection is ended."""
    patience = Patience(20)
    with pytest.raises(ConnectionClosed):
        while not patience.over:
            socket.recv(60)


@pytest.mark.parametrize('name', CLIENTS)
def test_only_a_key_with_the_name_of_another_site_speaks_as_one(dock, name: str) -> None:
    _, port = dock
    with connected(port, name, '/policy'):  # all may ask
        pass
    if name == 'hall':
        with connected(port, name) as socket:
            assert socket.recv(60)
    else:
        with pytest.raises(InvalidStatus) as refused:
            connected(port, name)
        assert refused.value.response.status_code == 403
        assert b'the key has to be that of hall or yard' in refused.value.response.body
    asking = HTTPConnection('127.0.0.1', port, timeout=60)
    asking.request('GET', '/sites', headers={'Authorization': f'Bearer {key_of(name)}'})
    assert asking.getresponse().status == (404 if name == 'hall' else 403)
    asking.close()


@pytest.mark.parametrize('path', [(), ('yard',), ('hall',), ('nowhere', 'hall')])
def test_a_site_that_forwards_was_there_whatever_it_says(dock, path: tuple[str, ...]) -> None:
    gateway, port = dock
    away = {name: Away() for name in ('hall', 'yard')}
    for name, link in away.items():
        gateway.linked(name, link)
        gateway.heard_row(name, StateRow({'policy': (0.02, 0.01, 0.02)}), 0.001)
    with connected(port, 'hall') as socket:
        socket.send(ask_message(1, REQUEST, path))
        if 'yard' not in path:
            assert away['yard'].came.wait(60)
        else:  # nobody is left
            patience = Patience(60)
            while b'end' not in socket.recv(60)[:6]:
                assert not patience.over
    assert not away['hall'].paths
    assert all({'hall', 'dock'} <= {*found} for found in away['yard'].paths)


def test_what_was_here_before_is_not_taken_again(dock) -> None:
    with connected(dock[1], 'hall') as socket:
        socket.send(ask_message(1, REQUEST, ('dock', 'hall')))
        ends(socket)


def test_connections_of_a_site_share_what_it_may_have_in_flight(dock, monkeypatch) -> None:
    monkeypatch.setattr(site_link, 'IN_FLIGHT', 3)
    gateway, port = dock
    gateway.linked('yard', away := Away())
    gateway.heard_row('yard', StateRow({'policy': (0.02, 0.01, 0.02)}), 0.001)
    with connected(port, 'hall') as first, connected(port, 'hall') as second:
        for number, socket in enumerate((first, second, first)):
            away.came.clear()
            socket.send(ask_message(number, REQUEST, ('hall',)))
            assert away.came.wait(60)
        second.send(ask_message(9, REQUEST, ('hall',)))
        ends(second)
        away.came.clear()
        first.send(ask_message(10, REQUEST, ('hall',)))  # what the other had is withdrawn
        assert away.came.wait(60)
    assert len(away.paths) == 4


def test_a_site_says_whose_key_is_missing_and_why_it_is_not_let_in(
        dock, keys: Path, tmp_path: Path, caplog) -> None:
    caplog.set_level('WARNING')
    gateway = Gateway('hall', SERVICES, [()], SITES, compiled=False)
    server = SiteServer(gateway, 0, {'dock': f'127.0.0.1:{dock[1]}', 'yard': '127.0.0.1:9'},
                        SiteAccess(keys=ApiKeys.load(keys), key=key_of('robot1')))
    try:
        assert 'no key has the name yard' in caplog.text
        wait_for(lambda: 'has to be that of hall or yard' in caplog.text)
    finally:
        server.close()
        gateway.close()


@pytest.mark.parametrize('speaks, named', [('', "''"), ('99 9.0.0', "'9.0.0'"), ('x' * 99, "''")])
def test_a_site_of_another_release_hears_why_it_is_not_let_in(
        dock, speaks: str, named: str, caplog) -> None:
    for _ in range(3):
        with connected(dock[1], 'hall', speaks=speaks) as socket:
            ends(socket)
            assert f'to dock: it has another release of intradp_ros, {named}' in \
                socket.protocol.close_reason
    assert caplog.text.count('which asks here: it has another release') == 1


def test_a_site_says_once_that_another_has_another_release(
        dock, keys: Path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(connections, 'SPEAKS', '99 9.0.0')
    monkeypatch.setattr(site_link, 'ATTEMPT', 0.01)
    gateway = Gateway('hall', SERVICES, [()], SITES, compiled=False)
    links = site_link.SiteLinks(gateway, {'dock': f'127.0.0.1:{dock[1]}'}, key_of('hall'))
    try:
        wait_for(lambda: 'site dock at' in caplog.text)
        time.sleep(0.5)
    finally:
        links.close()
        gateway.close()
    assert caplog.text.count("it has another release of intradp_ros, '9.0.0', than ") == 2
    assert not gateway.described()['links']
