# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Triton's client over HTTP against a site, strange requests, and what Prometheus reads."""
from __future__ import annotations

from contextlib import contextmanager
from functools import partial
import http.client
import json
import random
import urllib.request

import numpy as np
from policy_site import EXPECTED, IMAGE, PLAIN, triton_inputs
import pytest
from waiting import wait_for

from intradp_ros.cli.serve_status import asked
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate
from intradp_ros.systems.serving.local_site import LocalSite
from intradp_ros.web.access import ApiKeys
from intradp_ros.web.inference_protocol import answer, infer_body, InferBody, ProtocolError
from intradp_ros.web.serving_app import serve

triton = pytest.importorskip('tritonclient.http')

SPECS, KEY = PLAIN.inputs, 'k' * 32
inputs = partial(triton_inputs, triton)


@contextmanager
def site(keys=None):
    local = LocalSite('a', [PLAIN], compiled=False)
    server = serve(local.gateway, '127.0.0.1', 0, keys)
    wait_for(lambda: local.gateway.specs('pi0') is not None)
    try:
        yield local.gateway, f'127.0.0.1:{server.port}'
    finally:
        server.close()
        local.close()


@pytest.fixture(scope='module')
def running():
    with site() as found:
        yield found


@pytest.mark.parametrize('binary', [True, False])
@pytest.mark.parametrize('rows', [(), (1,)])
def test_clients_of_triton_are_answered(running, binary, rows):
    client = triton.InferenceServerClient(running[1])
    assert client.is_server_live() and client.is_server_ready() and client.is_model_ready('pi0')
    assert not client.is_model_ready('none')
    assert client.get_server_metadata()['extensions'] == ['binary_tensor_data']
    assert client.get_model_metadata('pi0')['inputs'][1] == {
        'name': 'state', 'datatype': 'FP32', 'shape': [4]}
    for outputs in (None, [triton.InferRequestedOutput('actions', binary_data=not binary)]):
        result = client.infer('pi0', inputs(rows, binary_data=binary), outputs=outputs,
                              request_id='x1', timeout=1_500_000, priority=1)
        np.testing.assert_array_equal(result.as_numpy('actions'), EXPECTED.reshape(*rows, 5, 2))
        said = result.get_response()
        assert said['id'] == 'x1' and said['parameters']['site'] == 'a'
        assert said['parameters']['compute_ms'] >= 20
    client.close()


def test_heads_are_read_and_what_cannot_be_written_is_not_taken(running):
    connection = http.client.HTTPConnection(running[1])
    for method, path, status in (
            ('HEAD', '/v2/health/live', 200), ('HEAD', '/v2/models/pi0/ready', 200),
            ('HEAD', '/metrics', 200), ('POST', '/status', 405), ('DELETE', '/health', 405)):
        connection.request(method, path)
        answer = connection.getresponse()
        assert (answer.status, method == 'HEAD' and answer.read()) == (
            status, method == 'HEAD' and b''), path
        answer.read()
    connection.close()


def test_the_status_is_read_past_the_proxy_of_the_web(running, monkeypatch):
    monkeypatch.setenv('http_proxy', 'http://127.0.0.1:9')
    assert asked(running[1], '')['site'] == 'a'


@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_numbers_that_json_lacks_go_as_bytes_only(value):
    end = InferEnd(InferFate.IN_TIME, tensors={'y': np.array([1, value], np.float32)})
    with pytest.raises(ProtocolError, match="'y' holds NaN or infinity.*binary"):
        answer('m', InferBody({}), end)
    body, header = answer('m', InferBody({}, binary_default=True), end)
    np.testing.assert_array_equal(np.frombuffer(body[header:], np.float32), end.tensors['y'])


def test_refusals_say_why_and_when(running):
    client = triton.InferenceServerClient(running[1])
    with pytest.raises(triton.InferenceServerException, match='would be late|time is over'):
        client.infer('pi0', inputs(), timeout=5000)
    with pytest.raises(triton.InferenceServerException, match="'none' is not served"):
        client.infer('none', inputs())
    with pytest.raises(triton.InferenceServerException, match="output 'x' is not given"):
        client.infer('pi0', inputs(), outputs=[triton.InferRequestedOutput('x')])
    client.close()


def test_a_client_that_goes_withdraws(running):
    gateway, address = running
    before = gateway.described()['services']['pi0']['cancelled']
    body = json.dumps({'inputs': [
        {'name': 'image', 'shape': [8, 8, 3], 'datatype': 'UINT8', 'data': IMAGE.tolist()},
        {'name': 'state', 'shape': [4], 'datatype': 'FP32', 'data': [0, 0, 0, 0]}]})
    connections = [http.client.HTTPConnection(address) for _ in range(20)]
    for connection in connections:
        connection.request('POST', '/v2/models/pi0/infer', body)
    for connection in connections:
        connection.close()
    wait_for(lambda: not gateway.described()['services']['pi0']['in_flight']
             and gateway.described()['services']['pi0']['cancelled'] != before)


def test_keys_are_needed_where_there_are_some(tmp_path):
    path = tmp_path / 'keys.txt'
    path.write_text(f'robot1 {KEY}\n')
    path.chmod(0o600)
    with site(ApiKeys.load(path)) as (_, address):
        client = triton.InferenceServerClient(address)
        with pytest.raises(triton.InferenceServerException):
            client.infer('pi0', inputs())
        result = client.infer('pi0', inputs(), headers={'Authorization': f'Bearer {KEY}'})
        np.testing.assert_array_equal(result.as_numpy('actions'), EXPECTED)
        client.close()


def body(**change):
    said = {'inputs': [
        {'name': 'image', 'shape': [8, 8, 3], 'datatype': 'UINT8',
         'parameters': {'binary_data_size': 192}},
        {'name': 'state', 'shape': [4], 'datatype': 'FP32', 'data': [0, 0.5, 1, 2]}]}
    said |= {key: value for key, value in change.items() if key not in ('state', 'image', 'rest')}
    for entry, key in zip(said['inputs'], ('image', 'state')):
        entry |= change.get(key, {})
    head = json.dumps(said).encode()
    return head + change.get('rest', b'x' * 192), len(head)


def test_a_request_is_read():
    data, header = body(id='i', parameters={'timeout': 5e5, 'priority': -3})
    found = infer_body(data, header, SPECS)
    assert (found.timeout, found.priority, found.id) == (0.5, -3, 'i')
    assert found.tensors['state'].tolist() == [0, 0.5, 1, 2]
    assert found.tensors['image'].tobytes() == b'x' * 192


@pytest.mark.parametrize('change, reason', [
    ({'state': {'shape': [5]}}, 'has shape'), ({'state': {'shape': [1 << 60]}}, 'has shape'),
    ({'state': {'shape': [True] * 4}}, 'has shape'), ({'state': {'shape': None}}, 'has shape'),
    ({'state': {'datatype': 'BYTES'}}, 'send FP32'), ({'state': {'datatype': 'FP64'}}, 'FP32'),
    ({'state': {'datatype': ['FP32']}}, 'send FP32'), ({'state': {'name': 'x'}}, 'not taken'),
    ({'state': {'name': 'image'}}, 'twice'), ({'inputs': []}, 'bytes follow'),
    ({'state': {'data': [0, 0, 0]}}, 'list of 4'), ({'state': {'data': 'abcd'}}, 'list of 4'),
    ({'state': {'data': ['0'] * 4}}, 'list of 4'), ({'state': {'data': [[0], 1, 2, 3]}}, 'of 4'),
    ({'state': {'data': [0, 0, 0, 1e300]}}, 'not FP32'),
    ({'state': {'data': [0, 0, 0, 10**60]}}, 'not FP32'),
    ({'state': {'data': None}}, 'list of 4'), ({'state': {'parameters': {'shared_memory_region':
                                                                         'x'}}}, 'parameter'),
    ({'image': {'parameters': {'binary_data_size': 191}}}, '192 bytes'),
    ({'image': {'parameters': {}, 'data': [256] * 192}, 'rest': b''}, 'not UINT8'),
    ({'image': {'parameters': {}, 'data': [1.5] * 192}, 'rest': b''}, 'not UINT8'),
    ({'rest': b'x' * 191}, '191 bytes'), ({'rest': b'x' * 193}, '1 bytes follow'),
    ({'parameters': {'timeout': -1}}, 'timeout'), ({'parameters': {'timeout': 'x'}}, 'timeout'),
    ({'parameters': {'timeout': float('nan')}}, 'timeout'), ({'parameters': []}, 'parameters'),
    ({'parameters': {'priority': 2000}}, 'priority'), ({'parameters': {'sequence_id': 1}},
                                                   'known'),
    ({'id': 5}, 'id'), ({'outputs': {'name': 'x'}}, 'outputs'), ({'outputs': [1]}, 'outputs')])
def test_strange_requests_are_refused_with_the_field(change, reason):
    data, header = body(**change)
    with pytest.raises(ProtocolError, match=reason):
        infer_body(data, header, SPECS)


def test_a_field_that_stands_twice_is_refused():
    with pytest.raises(ProtocolError, match='a key stands twice: timeout'):
        infer_body(b'{"inputs": [], "parameters": {"timeout": 1, "timeout": 2}}', None, SPECS)


def test_random_bytes_never_do_harm():
    chance = random.Random(1)
    good, header = body()
    for _ in range(3000):
        data = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(header)] = chance.randrange(256)
        cut = chance.choice((header, None, chance.randint(0, 1000)))
        try:
            most = chance.choice((len(data), chance.randint(0, 300)))
            infer_body(bytes(data[:most]), cut, SPECS)
        except ProtocolError as error:
            assert 0 < len(str(error)) < 600
    for data in (b'[' * 100_000, b'{"a":' * 50_000, b'1', b'', b'{}' * (3 << 20)):
        with pytest.raises(ProtocolError):
            infer_body(data, None, SPECS)


def test_prometheus_reads_the_figures_of_a_site(running):
    parser = pytest.importorskip('prometheus_client.parser')
    client = triton.InferenceServerClient(running[1])
    client.infer('pi0', inputs())
    client.close()
    with urllib.request.urlopen(f'http://{running[1]}/metrics') as answer:
        text = answer.read().decode()
    found = {(s.name, s.labels.get('service'), s.labels.get('fate')): s.value
             for family in parser.text_string_to_metric_families(text) for s in family.samples}
    figures = running[0].described()['services']['pi0']
    for fate in ('in_time', 'late', 'refused', 'cancelled'):
        assert found['intradp_serving_requests_total', 'pi0', fate] == figures[fate]
    assert found['intradp_serving_requests_total', 'pi0', 'in_time'] > 0
    assert found['intradp_serving_executors', None, None] == 1
    assert found['intradp_serving_waiting', 'pi0', None] == 0
    assert found['intradp_serving_transfers_total', 'pi0', None] == 0
