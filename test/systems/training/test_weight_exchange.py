# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Weights between trainer and workers, and how devices meet: only what was ordered counts."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
import hashlib
import os
from pathlib import Path
import resource
import socket
import threading
import time
from typing import Any

import pytest
import torch

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.runtime.transport.sealed_stream import connect
from intradp_ros.systems.training.run.meeting import Meeting, MeetingError, MeetingStore
from intradp_ros.systems.training.run.round_groups import GroupError, join_group
from intradp_ros.systems.training.run.tunnels import (
    listening_port,
    loopback_of,
    TunnelError,
    Tunnels,
)
from intradp_ros.systems.training.run.ways import WorkerWays
from intradp_ros.systems.training.run.weight_exchange import bring, Exchange, fetch, stream_key

KEYS = [b'', stream_key(SharedKey(bytes(range(32))), 7)]


@pytest.fixture(params=KEYS, ids=['open', 'sealed'])
def exchange(request: pytest.FixtureRequest) -> Iterator[tuple[Exchange, bytes]]:
    made = Exchange('127.0.0.1', request.param)
    yield made, request.param
    made.close()


def digest(body: bytes) -> str:
    return hashlib.sha256(body).hexdigest()


def test_what_is_offered_and_expected_crosses_whole(exchange: tuple[Exchange, bytes]) -> None:
    one, key = exchange
    for size in (0, 1, 300_000):
        body = os.urandom(size)
        one.offer('given', lambda body=body: body)
        assert fetch(one.place, key, 'given', size, digest(body)) == body
        one.expect('wanted', size)
        assert bring(one.place, key, 'wanted', body) == digest(body)
        assert one.arrived('wanted') == size
        assert one.taken('wanted', digest(body)) == body
    with pytest.raises(OSError):
        bring(one.place, key, 'wanted', b'')  # it came
    one.withdraw()
    with pytest.raises(OSError):
        fetch(one.place, key, 'given', 1, '')


def test_what_is_too_large_or_other_than_ordered_is_not_taken(exchange: tuple[Exchange, bytes],
                                                              ) -> None:
    one, key = exchange
    one.offer('given', lambda: b'other weights')
    with pytest.raises(ValueError, match='its digest does not fit'):
        fetch(one.place, key, 'given', 100, digest(b'the weights'))
    with pytest.raises(ValueError, match='at most 5 are taken'):
        fetch(one.place, key, 'given', 5, digest(b'other weights'))
    one.expect('wanted', 5)
    with pytest.raises(OSError):
        bring(one.place, key, 'wanted', b'123456')
    with pytest.raises(OSError):
        bring(one.place, key, 'unasked', b'1')
    assert bring(one.place, key, 'wanted', b'false') == digest(b'false')
    assert one.taken('wanted', digest(b'right')) is None
    bring(one.place, key, 'wanted', b'right')
    bring(one.place, key, 'wanted', b'wrong')
    assert one.taken('wanted', digest(b'right')) == b'right'


def test_nothing_of_a_strangers_stays(exchange: tuple[Exchange, bytes]) -> None:
    """300 bodies of 0.9 MB, whole and in halves, under keys that are and are not expected."""
    one, key = exchange
    one.expect('wanted', 1 << 20)
    body, begun = os.urandom(900_000), 0
    for number in range(300):
        with suppress(OSError):
            stream = connect(one.place, b'', f'bring {("wanted", "other")[number % 2]}')
            stream.send((len(body)).to_bytes(8, 'little'))
            stream.send(body[:len(body) // (1 + number % 3)])
            if number % 3 == 0:
                stream.receive()
            stream.close()
        if number == 100:
            begun = int(Path('/proc/self/statm').read_text().split()[1])
    grown = int(Path('/proc/self/statm').read_text().split()[1]) - begun
    assert grown * resource.getpagesize() < 16 << 20
    right = b'right'
    for _ in range(100):  # those of strangers may be under way still
        with suppress(OSError):
            bring(one.place, key, 'wanted', right)
            break
        time.sleep(0.05)
    assert one.taken('wanted', digest(right)) == right


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(ValueError, match='name an address of this machine'):
        Exchange('192.0.2.1')
    with pytest.raises(TunnelError, match='name an address of its own'):
        Tunnels('a', '192.0.2.1', b'')


def test_a_meeting_knows_what_came_by_orders_and_nothing_else() -> None:
    said: list[dict[str, Any]] = []
    a = Meeting(said.append, ('127.0.0.1', 1))
    reached: list[Any] = []
    plan = PlanId(2, 5)
    store = MeetingStore(a, plan, 'rounds', 0.2, lambda: 77, lambda *given: reached.append(given))
    store.set('0', b'mine')
    assert store.get('0') == b'mine' and said[0]['port'] == 77
    assert not store.check(['1'])
    with pytest.raises(MeetingError, match='not all devices came'):
        store.wait(['0', '1'], timedelta(seconds=0.05))
    order = {**said[0], 'order': 'meet', 'device': 'b', 'key': '1', 'place': ['127.0.0.1', 2]}
    for other in ({'plan': PlanId(2, 6)}, {'label': 'copies'}, {'plan': PlanId(1, 5)}):
        a.take({**order, **other})
    assert not store.check(['1'])  # that plan is over
    a = Meeting(said.append, ('127.0.0.1', 1))
    store = MeetingStore(a, plan, 'rounds', 5.0, lambda: 77, lambda *given: reached.append(given))
    threading.Timer(0.1, a.take, ({**order, 'plan': list(plan)},)).start()
    assert store.get('1') == b'mine' and reached == [('b', ('127.0.0.1', 2), 77)]
    assert a.places(plan) == {'b': ('127.0.0.1', 2)}
    for number in range(10000):
        a.take({**order, 'key': str(number), 'plan': plan})
    assert len(a._said[plan]) <= 1 << 12


def ways_of(names: str, key: bytes) -> dict[str, WorkerWays]:
    """Return devices whose reports reach the others, as a trainer has them."""
    made: dict[str, WorkerWays] = {}

    def report(name: str, body: dict[str, Any]) -> None:
        for other, ways in made.items():
            if other != name:
                ways.take({**body, 'order': 'meet', 'device': name})
    for name in names:
        made[name] = WorkerWays(name, ('127.0.0.1', 9), '127.0.0.1', key,
                                lambda body, name=name: report(name, body))
    return made


@pytest.mark.parametrize('key', KEYS, ids=['open', 'sealed'])
def test_groups_meet_without_a_store_and_listen_where_they_should(key: bytes) -> None:
    ways, found, plan = ways_of('abc', key), dict[str, Any](), PlanId(1, 1)

    def member(name: str) -> None:
        group = join_group(ways[name], plan, 'abc', name, 'ab' if name != 'c' else 'c', 10.0)
        if key:
            listening_port(loopback_of(key, plan, 'all', name))
        x = torch.tensor([float('abc'.index(name) + 1)])
        group.total(x)
        y = x.clone()
        group.total(y, replicas=True)
        found[name] = float(x), float(y), ways[name].unreached(plan)
        group.close()
    threads = [threading.Thread(target=member, args=(name,)) for name in 'abc']
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert found == {'a': (6.0, 12.0, []), 'b': (6.0, 12.0, []), 'c': (6.0, 6.0, [])}
    ways['b'].close()
    assert ways['a'].unreached(plan) == []  # the machine is there
    ways['a'].take({'plan': plan, 'label': '', 'key': '', 'device': 'd', 'value': '', 'port': 1,
                    'place': ['nonsense.invalid', 9]})
    assert ways['a'].unreached(plan) == ['d']


@pytest.mark.parametrize('first, second', ['ab', 'ba'])
def test_who_comes_to_gloo_in_the_name_of_a_device_gets_nothing(first: str, second: str) -> None:
    """Another user of the machine is there first; then there is an error, or the right sum."""
    ways, found, plan = ways_of('ab', KEYS[1]), dict[str, Any](), PlanId(1, 1)

    def member(name: str) -> None:
        try:
            group = join_group(ways[name], plan, 'ab', name, name, 1.0)
        except GroupError as error:
            found[name] = str(error)
            return
        x = torch.full((64,), 2.0)
        group.total(x)
        found[name] = float(x.mean())
        group.close()
    threads = [threading.Thread(target=member, args=(name,)) for name in (first, second)]
    threads[0].start()
    address, end, port = loopback_of(KEYS[1], plan, 'all', first), time.monotonic() + 10.0, 0
    while not port and time.monotonic() < end:
        with suppress(TunnelError):
            port = listening_port(address)
    strangers = [socket.create_connection((address, port)) for _ in range(4)]
    for number, stranger in enumerate(strangers):
        stranger.sendall(number.to_bytes(8, 'little'))  # by which gloo knows whom it is to be
    threads[1].start()
    for thread in threads:
        thread.join(30)
    read = 0
    for stranger in strangers:
        stranger.settimeout(0.1)
        with suppress(OSError):
            while part := stranger.recv(1000):
                read += len(part)
        stranger.close()
    assert read < 64 * 4
    assert found == {'a': 4.0, 'b': 4.0} or all('our key' in str(v) for v in found.values()), found
    assert any('our key' in str(value) for value in found.values()) == (first == 'a')


def test_when_all_devices_are_connected_nobody_else_is_let_in() -> None:
    ways, plan, made = ways_of('ab', KEYS[1]), PlanId(1, 1), dict[str, Any]()

    def member(name: str) -> None:
        made[name] = join_group(ways[name], plan, 'ab', name, name, 10.0)
    threads = [threading.Thread(target=member, args=(name,)) for name in 'ab']
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    for name in 'ab':
        address = loopback_of(KEYS[1], plan, 'all', name)
        with pytest.raises(TimeoutError):
            socket.create_connection((address, listening_port(address)), 0.3)
    for group in made.values():
        group.send(torch.ones(3), 'b' if group.name == 'a' else 'a', 5)
    for group in made.values():
        tensor, work = group.receive((3,), torch.float32, 'b' if group.name == 'a' else 'a', 5)
        group.wait(work, '')
        assert tensor.tolist() == [1.0] * 3
    for group in made.values():
        group.close()


def test_a_device_that_does_not_come_is_an_error_in_time() -> None:
    ways = ways_of('ab', KEYS[1])
    with pytest.raises(GroupError, match='not all devices came within 0 s'):
        join_group(ways['a'], PlanId(1, 1), 'ab', 'a', 'a', 0.3)
    with pytest.raises(TunnelError, match='0 ports'):
        listening_port('127.1.2.3')


def test_tunnels_carry_only_what_is_admitted() -> None:
    """Through the listener of a device, to what listens on its loopback, with the key alone."""
    key, address = KEYS[1], loopback_of(KEYS[1], PlanId(1, 1), 'all', 'b')
    tunnels = Tunnels('b', '127.0.0.1', key)
    with socket.create_server((address, 0)) as gloo:
        port = gloo.getsockname()[1]
        end = tunnels.admit(address, port)

        def answer() -> None:
            with suppress(OSError):
                while True:
                    one, _ = gloo.accept()
                    with one:
                        one.sendall(one.recv(100).upper())
        threading.Thread(target=answer, daemon=True).start()
        stream = connect(tunnels.place, key, f'gloo b {address} {port}')
        stream.send(b'gradients')
        assert bytes(stream.receive()) == b'GRADIENTS'
        for other in (f'gloo b {address} {port + 1}', f'gloo c {address} {port}',
                      f'gloo b 127.0.0.1 {port}', f'fetch b {address} {port}', ''):
            with pytest.raises(OSError):
                connect(tunnels.place, key, other)
        with pytest.raises(OSError):
            connect(tunnels.place, b'', f'gloo b {address} {port}')
        end()
        with pytest.raises(OSError):
            connect(tunnels.place, key, f'gloo b {address} {port}')
        with pytest.raises(TunnelError, match='cannot stand for c'):
            tunnels.reach('c', ('192.0.2.7', 1), address, port)
        gloo.shutdown(socket.SHUT_RDWR)
    tunnels.close()
