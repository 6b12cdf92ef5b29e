# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Clients of openpi as they are, strange ones, and gateways that ask each other, over sockets."""
from __future__ import annotations

from contextlib import contextmanager
import gc
import json
import queue
import random
import socket
import threading
import time

import msgpack
import numpy as np
from policy_site import SERVICE
import pytest
from waiting import wait_for

from intradp_ros.runtime.requests.infer_requests import InferFate, InferRequest
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits
from intradp_ros.systems.serving.executor import emulated_answer
from intradp_ros.systems.serving.local_site import LocalSite
from intradp_ros.web import policy_socket
from intradp_ros.web.access import ApiKeys
from intradp_ros.web.serving_app import serve
from intradp_ros.web.serving_client import ServingClient
from intradp_ros.web.site_link import SiteLinks
from intradp_ros.web.tensor_messages import pack, TensorMessageError, unpack

policy_client = pytest.importorskip('openpi_client.websocket_client_policy')
websockets = pytest.importorskip('websockets.sync.client')
ConnectionClosed = pytest.importorskip('websockets.exceptions').ConnectionClosed

KEY = 'k' * 32


def observation(value=1):
    return {'images': {'front': np.full((8, 8, 3), value, np.uint8)},
            'state': np.zeros(4, np.float32), 'prompt': 'pick it up'}


def expected(value):
    return emulated_answer(SERVICE, {'images/front': observation(value)['images']['front'],
                                     'state': np.zeros(4, np.float32)})['actions']


@contextmanager
def site(name='a', sites=(), keys=None, port=0):
    local = LocalSite(name, [SERVICE], sites, compiled=False)
    server = serve(local.gateway, '127.0.0.1', port, keys)
    wait_for(lambda: local.gateway.specs('pi0') is not None)
    try:
        yield local.gateway, server
    finally:
        server.close()
        local.close()


@pytest.fixture(scope='module')
def running():
    with site() as (gateway, server):
        yield gateway, f'ws://127.0.0.1:{server.port}/pi0'


def test_clients_of_openpi_are_answered_as_they_are(running):
    client = policy_client.WebsocketClientPolicy(f'{running[1]}?deadline_ms=1500&priority=1')
    assert client.get_server_metadata()['inputs'] == {
        'images/front': 'uint8 8x8x3', 'state': 'float32 4'}
    for value in range(5):
        answer = client.infer(observation(value))
        np.testing.assert_array_equal(answer['actions'], expected(value))
        assert answer['actions'].dtype == np.float32
        assert answer['serving']['site'] == 'a' and answer['server_timing']['infer_ms'] >= 20
    with pytest.raises(RuntimeError, match='would be late.*ms are left|time is over'):
        client.infer(observation() | {'deadline_ms': 5.0})
    with pytest.raises(RuntimeError, match="input 'state' has shape 3"):
        client.infer(observation() | {'state': np.zeros(3, np.float32)})
    np.testing.assert_array_equal(client.infer(observation(9))['actions'], expected(9))


def test_many_clients_are_answered_together(running):
    batches = []

    def drive(value):
        client = policy_client.WebsocketClientPolicy(running[1])
        for _ in range(6):
            answer = client.infer(observation(value))
            np.testing.assert_array_equal(answer['actions'], expected(value))
            batches.append(answer['serving']['batch'])
    threads = [threading.Thread(target=drive, args=(value,)) for value in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(batches) == 48 and max(batches) >= 3


def test_keys_are_needed_where_there_are_some(tmp_path):
    path = tmp_path / 'keys.txt'
    path.write_text(f'robot1 {KEY}\n')
    path.chmod(0o600)
    with site(keys=ApiKeys.load(path)) as (_, server):
        url = f'ws://127.0.0.1:{server.port}/pi0'
        client = policy_client.WebsocketClientPolicy(url, api_key=KEY)
        np.testing.assert_array_equal(client.infer(observation(3))['actions'], expected(3))
        with pytest.raises(websockets.InvalidStatus):
            policy_client.WebsocketClientPolicy(url, api_key='w' * 32)


@pytest.mark.parametrize('data, reason', [
    (b'\xc1', 'not MessagePack'), (b'', 'breaks off'), (b'\xdf\xff\xff\xff\xff', 'a map of'),
    (b'\xdd\xff\xff\xff\xff', 'a list of'), (b'\x93' * 9, 'too deep'),
    (b'\xc6\xff\xff\xff\xffxx', 'not MessagePack'), (pack([1]), 'a map of arrays'),
    (pack({'a': 1}) + b'x', 'bytes follow'), (pack({'a': {'b': None}}), "'a/b' is not an array"),
    (pack({'a': [0] * 5000}), 'a list of 5000'), (msgpack.packb({1: 2}), 'not a text'),
    (msgpack.packb({'a': msgpack.ExtType(5, b'x')}), 'not MessagePack'),
    (pack({'deadline_ms': -1}), 'deadline_ms'), (pack({'deadline_ms': float('nan')}), 'nan'),
    (pack({'priority': 1e9}), 'priority'), (pack({'state': 'x'}), 'not an array'),
    *((msgpack.packb({'state': {b'__ndarray__': True, b'data': raw, b'dtype': dtype,
                                b'shape': shape}}), reason) for raw, dtype, shape, reason in (
        (b'x' * 16, '<f4', [5], '16 bytes are not float32'), (b'x' * 8, '|O', [1], "'|O'"),
        (b'x' * 8, '<f4', [-2], 'whole numbers'), (b'', '<f4', [1 << 62, 1 << 62], 'not float32'),
        (b'x' * 4, '>f4', [1], "'>f4'"), (b'x' * 4, '<f4', [True, 1], 'whole numbers'),
        ('text', '<f4', [1], 'data'), (b'x' * 4, '<U1', [1], "'<U1'"),
        (b'', '<f4', [0] * 40, 'at most 8'), (b'x' * 4, [['a', '<f4']], [1], 'dtype'))),
])
def test_strange_messages_are_refused_and_the_connection_stays(running, data, reason):
    with websockets.connect(running[1], compression=None) as socket:
        socket.recv()
        socket.send(data)
        answer = json.loads(socket.recv())
        assert answer['fate'] == 'refused' and reason in answer['reason']
        socket.send(pack(observation(4)))
        np.testing.assert_array_equal(unpack(socket.recv())['actions'], expected(4))


@pytest.mark.parametrize('address, reason', [
    ('/none', 'not served; there are pi0'), ('/' + '%C3%BC' * 70, 'service'),
    ('/pi0?deadline_ms=x', 'deadline_ms'),
    ('/pi0?deadline=5', 'known are deadline_ms and priority'), ('/pi0?priority=nan', 'priority'),
    ('/pi0?' + '&'.join(['priority=1'] * 17), 'fields'), ('/pi0?deadline_ms=-1e-9', 'deadline')])
def test_strange_addresses_are_refused(running, address, reason):
    with websockets.connect(running[1].removesuffix('/pi0') + address) as socket, \
            pytest.raises(ConnectionClosed, match=reason):
        socket.recv()


def test_random_bytes_never_do_harm():
    chance = random.Random(1)
    good = pack(observation())
    for _ in range(3000):
        data = bytearray(good if chance.random() < 0.7 else
                         chance.randbytes(chance.randint(0, 60)))
        for _ in range(chance.randint(1, 4)):
            if data:
                data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            unpack(bytes(data))
        except TensorMessageError as error:
            assert str(error)


def test_a_client_that_goes_leaves_nothing(running):
    gateway, url = running
    for _ in range(5):
        with websockets.connect(url) as socket:
            socket.recv()
            for _ in range(8):
                socket.send(pack(observation()))
    wait_for(lambda: gateway.described()['services']['pi0']['in_flight'] == 0)
    assert gateway.described()['services']['pi0']['lost'] == 0


def test_a_client_that_goes_without_reading_leaves_no_connection(monkeypatch):
    monkeypatch.setattr('intradp_ros.web.web_server.ConnectionLimits',
                        lambda: ConnectionLimits(stalled=2.0))

    def connections():
        gc.collect()
        return sum(isinstance(found, policy_socket._Connection) for found in gc.get_objects())
    before = connections()
    with site() as (_, server):
        for _ in range(3):
            with websockets.connect(f'ws://127.0.0.1:{server.port}/pi0', compression=None,
                                    close_timeout=0.2) as socket:
                socket.recv()
                for _ in range(60):
                    socket.send(pack(observation()))
        wait_for(lambda: connections() <= before)


def test_answers_come_in_the_order_of_messages(running):
    with websockets.connect(running[1]) as socket:
        socket.recv()
        for value in range(12):
            socket.send(pack(observation(value)) if value % 5 else b'strange')
        for value in range(12):
            answer = socket.recv()
            if value % 5:
                np.testing.assert_array_equal(unpack(answer)['actions'], expected(value))
            else:
                assert isinstance(answer, str)


def test_a_site_that_is_full_asks_another_and_outlives_it():
    with site('b', ('a', 'b')) as (other, server), site('a', ('a', 'b')) as (gateway, _):
        links = SiteLinks(gateway, {'b': f'127.0.0.1:{server.port}'})
        wait_for(lambda: gateway.described()['links'] == ['b'])
        ends, enough = [], threading.Event()

        def ask(number, remaining):
            values = observation(number % 100)
            tensors = {'images/front': values['images']['front'], 'state': values['state']}

            def heard(end):
                if end.fate is InferFate.IN_TIME:
                    np.testing.assert_array_equal(end.tensors['actions'],
                                                  expected(number % 100))
                ends.append(end)
                if len(ends) == 60:
                    enough.set()
            gateway.submit(InferRequest('pi0', tensors, remaining), heard)
        for number in range(60):
            ask(number, 0.35)
        assert enough.wait(60)
        assert {end.site for end in ends if end.fate is InferFate.IN_TIME} == {'a', 'b'}
        figures = gateway.described()['services']['pi0']
        assert figures['lost'] == 0 and figures['transfers'] > 0
        ends.clear()
        enough.clear()
        for number in range(60):
            ask(number, 0.35)
        server.close()
        assert enough.wait(60)
        wait_for(lambda: gateway.described()['links'] == [])
        figures = gateway.described()['services']['pi0']
        assert figures['lost'] == figures['in_flight'] == 0
        assert other.described()['services']['pi0']['asked'] == 0
        links.close()


def submit_many(client, count, ends, remaining=5.0, gap=0.0):
    for number in range(count):
        values = observation(number % 100)

        def heard(end, number=number):
            assert number not in ends, 'a second end'
            ends[number] = end
            if end.fate is InferFate.IN_TIME:
                np.testing.assert_array_equal(end.tensors['actions'], expected(number % 100))
        client.submit(InferRequest('pi0', {'images/front': values['images']['front'],
                                           'state': values['state']}, remaining), heard)
        time.sleep(gap)


def test_a_robot_changes_gateways_and_loses_nothing():
    with site('a') as (_, first), site('b') as (_, second):
        places = [f'127.0.0.1:{server.port}' for server in (first, second)]
        client, ends = ServingClient(places), {}
        mover = threading.Thread(target=lambda: [
            (time.sleep(0.1), client.move(places[::step])) for step in (-1, 1, -1, 1)])
        mover.start()
        submit_many(client, 60, ends, gap=0.01)
        mover.join()
        wait_for(lambda: len(ends) == 60)
        assert {end.fate for end in ends.values()} == {InferFate.IN_TIME}
        assert {end.site for end in ends.values()} == {'a', 'b'}
        client.close()


@pytest.mark.parametrize('of_gateway', [False, True])  # its server goes first, or refuses still
def test_a_robot_whose_gateway_goes_asks_the_next(of_gateway):
    with site('a') as (gateway, first), site('b') as (_, second):
        client = ServingClient([f'127.0.0.1:{first.port}', f'127.0.0.1:{second.port}'])
        ends = {}
        submit_many(client, 40, ends)
        wait_for(lambda: ends)
        (gateway if of_gateway else first).close()
        wait_for(lambda: len(ends) == 40)
        assert {end.fate for end in ends.values()} == {InferFate.IN_TIME}
        assert 'b' in {end.site for end in ends.values()}
        client.close()


def test_a_robot_without_a_gateway_hears_of_it_in_time():
    client, ends = ServingClient(['127.0.0.1:9']), {}
    submit_many(client, 3, ends, remaining=0.3)
    wait_for(lambda: len(ends) == 3, 3.0)  # the next attempt may be due later
    assert {end.fate for end in ends.values()} == {InferFate.LATE}
    client.close()


def test_a_client_that_is_closed_answers_at_once_that_it_is():
    client, ends = ServingClient(['127.0.0.1:9']), []
    client.close()
    client.submit(InferRequest('pi0', {}, 10.0), ends.append)()
    client.reach('pi0')
    client.close()
    assert [(end.fate, end.reason) for end in ends] == [
        (InferFate.CANCELLED, 'the client is closed')]


def test_ways_that_were_long_once_do_not_keep_a_robot_from_asking(running):
    client, ends = ServingClient([running[1].removeprefix('ws://').removesuffix('/pi0')]), {}
    submit_many(client, 1, ends)
    wait_for(lambda: len(ends) == 1)
    client._services['pi0']._ways.seconds = 300.0
    ends.clear()
    submit_many(client, 30, ends, remaining=19.0, gap=0.05)
    wait_for(lambda: len(ends) == 30)
    assert {end.fate for end in ends.values()} == {InferFate.IN_TIME}
    assert client._services['pi0']._ways.seconds < 10.0
    client.close()


def test_requests_that_are_over_are_not_kept_while_no_gateway_is_reached():
    with socket.socket() as nobody:
        nobody.bind(('127.0.0.1', 0))
        client = ServingClient([f'127.0.0.1:{nobody.getsockname()[1]}'])
        ends = queue.Queue()
        for _ in range(3):
            for _ in range(50):
                client.submit(InferRequest('pi0', {}, 0.01), ends.put)
            assert {ends.get(timeout=60).fate for _ in range(50)} == {InferFate.LATE}
        assert len(client._services['pi0']._waiting) <= 50
        client.close()
