# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The server of `intradp view`: what it gives to whom, and that looking begins and ends."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
import http.client
import json
from pathlib import Path
from typing import Any

import pytest
from waiting import wait_for
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from intradp_ros.web.access import ApiKeys
from intradp_ros.web.view_app import MOST, ViewServer

KEY, PATIENCE = 'a-key-of-enough-characters', 60.0


class Counted:
    """A source whose view counts, and who looks."""

    def __init__(self) -> None:
        self.lookers, self.queries, self.number = 0, [], 0

    @contextmanager
    def look(self, query: Mapping[str, str]) -> Iterator[Callable[[], Mapping[str, Any]]]:
        self.lookers += 1
        self.queries.append(query)
        try:
            yield lambda: {'number': self.number}
        finally:
            self.lookers -= 1

    def picture(self, name: str) -> bytes | None:
        return b'PNG' if name == 'a.png' else None


class Served:
    def __init__(self, keys: ApiKeys | None = None) -> None:
        self.source = Counted()
        self.server = ViewServer(self.source, '127.0.0.1', 0, keys)

    def ask(self, path: str, method: str = 'GET', **headers: str) -> Any:
        connection = http.client.HTTPConnection('127.0.0.1', self.server.port, timeout=PATIENCE)
        connection.request(method, path, headers=headers)
        return connection.getresponse()


@pytest.fixture
def served() -> Iterator[Served]:
    found = Served()
    yield found
    found.server.close()


def test_the_page_takes_nothing_from_elsewhere(served: Served) -> None:
    for path, kind in (('/', 'html'), ('/page.css', 'css'), ('/page.js', 'javascript')):
        answer = served.ask(path)
        policy = answer.headers['content-security-policy']
        assert answer.status == 200 and kind in answer.headers['content-type']
        assert "default-src 'none'" in policy and 'unsafe' not in policy and '*' not in policy
        text = answer.read().decode()
        assert not any(each in text for each in ('https://', 'innerHTML', 'eval('))


def test_it_only_shows(served: Served) -> None:
    statuses = {(method, path): served.ask(path, method).status for method in (
        'POST', 'PUT', 'DELETE') for path in ('/', '/stream')}
    assert set(statuses.values()) == {405}
    assert served.ask('/nothing').status == 404
    with pytest.raises(InvalidStatus, match='403'):
        connect(f'ws://127.0.0.1:{served.server.port}/stream')
    assert served.ask('/picture?name=a.png').read() == b'PNG'
    assert served.ask('/picture?name=../b.png').status == 404
    assert served.ask('/', Host='site.example').status == 403


def test_views_come_when_they_change_as_long_as_somebody_looks(served: Served) -> None:
    answer = served.ask('/stream?at=3&x=' + 'y' * 500)
    assert json.loads(answer.readline()) == {'number': 0}
    served.source.number = 7
    lines = [answer.readline().strip()]
    while not lines[-1]:
        lines.append(answer.readline().strip())
    assert json.loads(lines[-1]) == {'number': 7}
    assert served.source.lookers == 1 and served.source.queries == [{'at': '3'}]
    answer.close()
    wait_for(lambda: served.source.lookers == 0)


def test_few_look_at_once(served: Served) -> None:
    looking = [served.ask('/stream') for _ in range(MOST)]
    assert {each.status for each in looking} == {200}
    assert served.ask('/stream').status == 503
    looking[0].close()
    wait_for(lambda: served.source.lookers == MOST - 1)
    assert served.ask('/stream').status == 200


def test_with_keys_the_frame_is_open_and_views_are_not(tmp_path: Path) -> None:
    file = tmp_path / 'keys'
    file.write_text(f'someone {KEY}\n')
    file.chmod(0o600)
    served = Served(ApiKeys.load(file))
    try:
        assert served.ask('/').status == served.ask('/page.js').status == 200
        for path in ('/stream', '/picture?name=a.png'):
            assert served.ask(path).status == 401
            assert served.ask(path, Authorization=f'Bearer {KEY}').status == 200
    finally:
        served.server.close()
