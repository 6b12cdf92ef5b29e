# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Triton's client over gRPC against a site, and strange calls."""
from __future__ import annotations

from contextlib import contextmanager, ExitStack, nullcontext, suppress
from functools import partial
import hashlib
import os
import socket
import struct
import threading
import time
from typing import Any

import numpy as np
from policy_site import EXPECTED, IMAGE, PLAIN, STATE, triton_inputs
import pytest
from waiting import wait_for

from intradp_ros.runtime.transport.connection_limits import ConnectionLimits
from intradp_ros.systems.serving.local_site import LocalSite
from intradp_ros.web.access import ApiKeys
from intradp_ros.web.serving_app import serve, site_clients

inference_grpc = pytest.importorskip('intradp_ros.web.inference_grpc')  # says what gRPC logs
grpc = pytest.importorskip('grpc')
triton = pytest.importorskip('tritonclient.grpc')

from intradp_ros.web.http2_frames import Frames, HeadersError  # noqa: E402
from intradp_ros.web.inference_grpc import InferenceGrpc  # noqa: E402
from intradp_ros.web.inference_messages import CLASSES, infer_message, parsed  # noqa: E402
from intradp_ros.web.inference_protocol import ProtocolError  # noqa: E402

SPECS, KEY = PLAIN.inputs, 'k' * 32
inputs = partial(triton_inputs, triton)
INFER = '/inference.GRPCInferenceService/ModelInfer'
LIVE = '/inference.GRPCInferenceService/ServerLive'


@contextmanager
def site(keys=None, rate=100.0):
    local = LocalSite('a', [PLAIN], compiled=False)
    clients = site_clients(keys, rate)
    server = InferenceGrpc(local.gateway, '127.0.0.1', 0, clients)
    wait_for(lambda: local.gateway.specs('pi0') is not None)
    try:
        yield local.gateway, f'127.0.0.1:{server.port}', clients
    finally:
        server.close()
        local.close()


@pytest.fixture(scope='module')
def running():
    with site(rate=1e4) as found:
        yield found


def message(**change):
    """Return a request as bytes; `raw`, `image` and `state` change its parts."""
    raw = change.pop('raw', [IMAGE.tobytes(), STATE.tobytes()])
    entries: list[dict[str, Any]] = [
        {'name': 'image', 'datatype': 'UINT8', 'shape': [8, 8, 3]},
        {'name': 'state', 'datatype': 'FP32', 'shape': [4]}]
    for entry in entries:
        entry |= change.pop(entry['name'], {})
    return CLASSES['ModelInferRequest'](**{
        'model_name': 'pi0', 'inputs': entries, 'raw_input_contents': raw} | change
        ).SerializeToString()


def call(address, data, timeout=60.0, metadata=(), **more):
    with grpc.insecure_channel(address, options=[('grpc.max_send_message_length', -1)]) as channel:
        return channel.unary_unary(INFER)(data, timeout=timeout, metadata=metadata, **more)


def problem(address, data, **more):
    with pytest.raises(grpc.RpcError) as found:
        call(address, data, **more)
    return found.value.code(), found.value.details(), dict(found.value.trailing_metadata() or ())


@pytest.mark.parametrize('rows', [(), (1,)])
def test_clients_of_triton_are_answered(running, rows):
    with triton.InferenceServerClient(running[1]) as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.is_model_ready('pi0') and not client.is_model_ready('none')
        assert client.is_model_ready('pi0', '1') and not client.is_model_ready('pi0', '2')
        assert client.get_server_metadata().name == 'intradp_ros'
        found = client.get_model_metadata('pi0', model_version='1').inputs[1]
        assert (found.name, found.datatype, list(found.shape)) == ('state', 'FP32', [4])
        for outputs in (None, [triton.InferRequestedOutput('actions')]):
            result = client.infer('pi0', inputs(rows), outputs=outputs, request_id='x1',
                                  timeout=1_500_000, priority=1, client_timeout=10.0)
            np.testing.assert_array_equal(result.as_numpy('actions'),
                                          EXPECTED.reshape(*rows, 5, 2))
            said = result.get_response()
            assert (said.id, said.model_name, said.parameters['site'].string_param) == (
                'x1', 'pi0', 'a')
            assert said.parameters['compute_ms'].double_param >= 20


def test_refusals_say_why_and_when(running):
    with triton.InferenceServerClient(running[1]) as client:
        for more, reason in (({'timeout': 5000}, 'UNAVAILABLE.*(would be late|time is over)'),
                             ({'outputs': [triton.InferRequestedOutput('x')]},
                              "INVALID_ARGUMENT.*output 'x' is not given"),
                             ({'sequence_id': 5}, "INVALID_ARGUMENT.*'sequence_"),
                             ({'model_version': '2'}, 'NOT_FOUND.*version 2'),
                             ({'parameters': {'color': 'red'}}, "'color' of the request: known")):
            with pytest.raises(triton.InferenceServerException, match=reason):
                client.infer('pi0', inputs(), **more)
        with pytest.raises(triton.InferenceServerException, match="NOT_FOUND.*'none'"):
            client.infer('none', inputs())
        with pytest.raises(triton.InferenceServerException, match='UNIMPLEMENTED'):
            client.get_model_config('pi0')
    code, text, more = problem(running[1], message(parameters=[
        {'key': 'timeout', 'value': {'int64_param': 5000}}]))
    assert (more['fate'], more['site']) == ('refused', 'a')


def test_a_request_has_no_more_time_than_its_client_waits(running):
    before = running[0].described()['services']['pi0']
    end = time.monotonic() + 60
    while running[0].described()['services']['pi0']['refused'] == before['refused']:
        problem(running[1], message(), timeout=0.015)  # a batch takes 20 ms
        assert time.monotonic() < end
    after = running[0].described()['services']['pi0']
    assert (after['late'], after['cancelled']) == (before['late'], before['cancelled'])


def test_a_client_that_goes_withdraws(running):
    gateway, address, clients = running
    before = gateway.described()['services']['pi0']['cancelled']
    channel = grpc.insecure_channel(address)
    calls = [channel.unary_unary(INFER).future(message()) for _ in range(20)]
    wait_for(lambda: gateway.described()['services']['pi0']['in_flight'])
    for one in calls:
        one.cancel()
    wait_for(lambda: not clients._in_flight
             and not gateway.described()['services']['pi0']['in_flight']
             and gateway.described()['services']['pi0']['cancelled'] != before)
    channel.close()
    assert not clients._held._of


def test_keys_and_rates_are_those_of_all_protocols(tmp_path):
    path = tmp_path / 'keys.txt'
    path.write_text(f'robot1 {KEY}\n')
    path.chmod(0o600)
    with site(ApiKeys.load(path), rate=0.01) as (gateway, address, clients):
        assert problem(address, message())[0] is grpc.StatusCode.UNAUTHENTICATED
        allowed = (('authorization', f'Bearer {KEY}'),)
        server = serve(gateway, '127.0.0.1', 0, clients=clients)
        assert call(address, message(), metadata=allowed)
        code, text, more = problem(address, message(), metadata=allowed)
        assert code is grpc.StatusCode.RESOURCE_EXHAUSTED and 'robot1' in text
        assert int(more['retry-after-ms']) > 0
        server.close()
        assert clients.rejected == {'no_key': 1, 'rate': 1}


def test_a_client_is_served_again_once_there_is_memory(running):
    _, address, clients = running
    share = clients.limits.held // 2
    assert clients.hold('127.0.0.1', share) is None
    try:
        for _ in range(3):
            code, text, more = problem(address, message())
            assert code is grpc.StatusCode.UNAVAILABLE and 'left to others' in text
            assert int(more['retry-after-ms']) > 0
    finally:
        clients.hold('127.0.0.1', -share)
    assert call(address, message())
    wait_for(lambda: not clients._in_flight)  # it is left after its answer
    assert not clients._held._of


def test_a_body_is_not_read_without_a_key(tmp_path):
    path = tmp_path / 'keys.txt'
    path.write_text(f'robot1 {KEY}\n')
    path.chmod(0o600)
    with site(ApiKeys.load(path)) as (_, address, _clients), \
            grpc.insecure_channel(address) as channel:
        never = threading.Event()

        def body():
            never.wait(120)
            yield message()
        calling = channel.stream_unary(INFER).future(body(), timeout=60)
        assert calling.exception(10).code() is grpc.StatusCode.UNAUTHENTICATED
        never.set()


@pytest.mark.parametrize('size', [1, 3, 7, 1000])
def test_where_calls_begin_is_found_in_whatever_parts_frames_come(size):
    said = b'p' * 24 + b''.join(frame(kind, 0, 1, bytes([1]) * length) for kind, length in (
        (4, 6), (1, 0), (0, 300), (1, 20), (1, 60_000), (6, 8), (1, 5), (0, 1)))
    frames, found = Frames(), []
    for begin in range(0, len(said), size):
        found += [begin + place for place in frames.calls(said[begin:begin + size])]
    whole = Frames().calls(said)
    assert len(found) == len(whole) == 4 and whole == [39, 357, 386, 60412]
    assert all(0 <= one - other <= 8 for one, other in zip(found, whole))


@pytest.mark.parametrize('change, reason', [
    ({'state': {'shape': [5]}}, 'has shape'), ({'state': {'shape': [1 << 60]}}, 'has shape'),
    ({'state': {'shape': [1] * 17}}, 'has shape'), ({'state': {'shape': []}}, 'has shape'),
    ({'state': {'datatype': 'BYTES'}}, 'send FP32'), ({'state': {'datatype': ''}}, 'send FP32'),
    ({'state': {'name': 'x'}}, 'not taken'), ({'state': {'name': 'image'}}, 'twice'),
    ({'inputs': []}, 'raw_input_contents for 0'), ({'inputs': [], 'raw': []}, 'is missing'),
    ({'raw': [b'x' * 192, b'x' * 15]}, '15 bytes'), ({'raw': [b'x' * 192]}, 'for 2 inputs'),
    ({'raw': [], 'image': {'contents': {'int_contents': [1] * 192}}}, 'send raw.* uint_contents'),
    ({'raw': [], 'image': {'contents': {'uint_contents': [256] * 192}}}, 'not UINT8'),
    ({'raw': [], 'image': {'contents': {'uint_contents': [1] * 191}}}, 'list of 192'),
    ({'raw': []}, 'no contents'), ({'state': {'contents': {'fp32_contents': [1]}}}, 'in addition'),
    ({'state': {'parameters': [{'key': 'shared_memory_region'}]}}, 'parameter .*none'),
    ({'parameters': [{'key': 'timeout', 'value': {'int64_param': -1}}]}, 'timeout'),
    ({'parameters': [{'key': 'timeout', 'value': {'bool_param': True}}]}, 'timeout'),
    ({'parameters': [{'key': 'timeout', 'value': {'double_param': float('nan')}}]}, 'timeout'),
    ({'parameters': [{'key': 'priority', 'value': {'uint64_param': 2000}}]}, 'priority'),
    ({'parameters': [{'key': 'priority'}]}, 'priority'), ({'id': 'x' * 300}, 'id'),
    ({'outputs': [{'name': 'actions'}] * 2}, 'none twice'),
    ({'outputs': [{'name': str(k)} for k in range(65)]}, 'at most 64')])
def test_strange_requests_are_refused_with_the_field(change, reason):
    with pytest.raises(ProtocolError, match=reason):
        infer_message(message(**change), SPECS)


def test_typed_contents_are_read():
    found = infer_message(message(raw=[], image={'contents': {'uint_contents': [3] * 192}},
                                  state={'contents': {'fp32_contents': [0, 1, 2, 0.1]}}), SPECS)
    np.testing.assert_array_equal(found.tensors['image'], IMAGE)
    np.testing.assert_array_equal(found.tensors['state'], np.float32([0, 1, 2, 0.1]))


def test_fields_are_counted_before_anything_is_made_of_them():
    for data in (b'\x2a\x00' * 2000, b'\x2a\xa0\x1f' + b'\x22\x00' * 2000, b'\x2a', b'\x0b',
                 b'\x2a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01', b'\x0a\x02\xff\xfe'):
        with pytest.raises(ProtocolError):
            infer_message(data, SPECS)
    with pytest.raises(ProtocolError, match='in addition'):
        parsed('ModelInferRequest', b'\x1a\x80\x80\x80\x04' + b'x' * (8 << 20))


def test_large_and_compressed_messages_take_no_memory(running):
    address = running[1]
    code, text, _ = problem(address, message(raw=[b'x' * (17 << 20), b'']))
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    bomb = message(raw=[bytes(64 << 20), b''])
    code, text, _ = problem(address, bomb, compression=grpc.Compression.Gzip)
    assert code is grpc.StatusCode.UNIMPLEMENTED
    assert call(address, message())


def test_a_port_that_is_taken_is_named(running):
    with socket.socket() as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        with pytest.raises(OSError, match='gRPC cannot listen on 127.0.0.1'):
            InferenceGrpc(running[0], '127.0.0.1', taken.getsockname()[1], running[2])


def frame(kind, flags, stream, data=b''):
    return len(data).to_bytes(3) + bytes([kind, flags]) + stream.to_bytes(4) + data


def head(**more):
    """Return the headers of a call as they are sent; `more` by name, "_" for ":"."""
    said = {'_method': b'POST', '_scheme': b'http', '_authority': b'a', 'te': b'trailers',
            '_path': LIVE.encode(), 'content-type': b'application/grpc'} | more
    return b''.join(b'\0' + b''.join(bytes([len(text)]) + text for text in (
        name.replace('_', ':').encode(), value)) for name, value in said.items())


def many_calls(held, address, count, key='', window=65535, body=(1, bytes(5)), **more):
    """Ask for whether a site lives, so often on one connection, and read no answer."""
    made = held.enter_context(socket.create_connection(address.split(':')))
    said = head(**more, **({'authorization': b'Bearer ' + key.encode()} if key else {}))
    calls = (frame(1, 4, number, said) + frame(0, body[0], number, body[1])
             for number in range(1, 2 * count, 2))
    with suppress(ConnectionError):  # cut already
        made.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(
            4, 0, 0, struct.pack('>HI', 4, window)) + b''.join(calls))
    return made


@pytest.mark.parametrize('name', ['_path', '_authority', 'authorization', 'x'])
def test_headers_that_are_not_ascii_end_their_connection_only(running, name, capfd, caplog):
    address = running[1]
    with ExitStack() as held, grpc.insecure_channel(address) as channel:
        ask = channel.unary_unary(INFER)
        assert ask(message(), timeout=60)
        slow = ask.future(message(), timeout=60)
        made = many_calls(held, address, 1, **{name: b'/\xff\xfe'})
        made.settimeout(60)
        said = b''
        while part := made.recv(1 << 16):
            said += part
        assert b'not ASCII' in said
        assert slow.result() and ask(message(), timeout=60)
    assert not capfd.readouterr().err
    assert not [record for record in caplog.records if record.name.startswith('grpc')]


def test_calls_that_grpc_refuses_write_no_line(running, capfd):
    address = running[1]
    for name, value in (('grpc-timeout', b'abc'), ('te', b'x'), ('grpc-encoding', b'gzip'),
                        ('grpc-encoding', b'x'), ('_method', b'X'), ('x-bin', b'!')):
        with ExitStack() as held:
            made = many_calls(held, address, 1, **{name: value})
            made.settimeout(60)
            said = b''
            while b'grpc-status' not in said and (part := made.recv(1 << 16)):
                said += part
    assert call(address, message())
    assert not capfd.readouterr().err


def coded(text):
    """Return "POST" or the like in HPACK's code, as some clients send it."""
    bits = ''.join({'a': '00011', '/': '011000', '{': '1' * 14 + '0', '\\': '1' * 15 + '0000',
                    '\xff': '1' * 22 + '101110'}[one] for one in text)
    bits += '1' * (-len(bits) % 8)
    return bytes([0x80 | len(bits) // 8]) + int(bits, 2).to_bytes(len(bits) // 8, 'big')


@pytest.mark.parametrize('block, fault', [
    (b'\x04' + coded('/a{a\\'), ''), (b'\x3f\xe1\x1f\x82\x40\1a' + coded('a'), ''), (b'', ''),
    (b'\x04' + coded('/a\xff'), 'ASCII'), (b'\x04\1\xff', 'ASCII'), (b'\x40\1\n\1a', 'ASCII'),
    (b'\x40\1a\x7f\xb9\x16' + b'a' * 3000 + b'\xbe' * 30, 'understood'),  # once decoded
    *((block, 'understood') for block in (
        b'\x04\x81\0', b'\x04\5abcd', b'\x40', b'\xff\x80\x80\x80\x80\0', b'\x04\x7f\xff'))])
@pytest.mark.parametrize('size', [1, 1000])
def test_headers_are_looked_at_in_whatever_pieces_they_come(block, fault, size):
    half = len(block) // 2
    for said in (frame(1, 4, 1, block), frame(1, 36, 1, bytes(5) + block),
                 frame(1, 0, 1, block[:half]) + frame(9, 4, 1, block[half:])):
        said = b'p' * 24 + frame(1, 4, 1, head()) + said + frame(0, 1, 1)
        frames, seen = Frames(), 0
        with pytest.raises(HeadersError, match=fault) if fault else nullcontext():
            for begin in range(0, len(said), size):
                seen += len(frames.calls(said[begin:begin + size]))
            assert seen == 2


def test_headers_without_end_and_padded_ones_are_not_taken():
    for said in (frame(1, 12, 1, b'\0' + head()),
                 frame(1, 0, 1) + frame(9, 0, 1, bytes(9000)) * 8):
        with pytest.raises(HeadersError):
            Frames().calls(b'p' * 24 + said)


KEYS = ApiKeys({hashlib.sha256(key.encode()).digest(): key[0] for key in (KEY, 'm' * 32)})


def test_answers_that_nobody_takes_count_as_their_clients_until_it_is_cut(monkeypatch):
    monkeypatch.setattr(inference_grpc, 'LIMITS', ConnectionLimits(
        head=300.0, idle=300.0, stalled=1.0))
    with site(KEYS, rate=1e4) as (_, address, clients), ExitStack() as held, \
            grpc.insecure_channel(address) as channel:
        deaf = [many_calls(held, address, 100, 'm' * 32, window=0) for _ in range(12)]
        wait_for(lambda: clients.rejected.get('in_flight'))
        for _ in range(100):
            assert channel.unary_unary(LIVE)(b'', timeout=60, metadata=[
                ('authorization', f'Bearer {KEY}')])
        deaf[0].settimeout(60)
        while deaf[0].recv(1 << 16):
            pass
        wait_for(lambda: not clients._in_flight)


def test_few_messages_of_a_client_are_read_at_once():
    begun = b'\0' + (15 << 20).to_bytes(4) + bytes(4000)
    with site(KEYS, rate=1e4) as (_, address, _), ExitStack() as held:
        made, data, found = many_calls(held, address, 12, KEY, body=(0, begun)), b'', set()
        end = time.monotonic() + 60
        while len(found) < inference_grpc.READS or time.monotonic() < end:
            made.settimeout(60 if len(found) < inference_grpc.READS else 0.3)
            try:
                data += made.recv(1 << 16)
            except TimeoutError:
                break
            while len(data) >= 9 and len(data) >= 9 + int.from_bytes(data[:3]):
                size, stream = int.from_bytes(data[:3]), int.from_bytes(data[5:9])
                if data[3] == 8 and stream and int.from_bytes(data[9:13]) > 1 << 20:
                    found.add(stream)  # so much more may come
                data = data[9 + size:]
        assert len(found) == inference_grpc.READS


def test_strangers_who_go_on_without_a_key_are_cut():
    with site(KEYS, rate=20.0) as (_, address, clients), ExitStack() as held, \
            grpc.insecure_channel(address) as channel:
        for _ in range(20):
            stranger = many_calls(held, address, 100)
            assert channel.unary_unary(LIVE)(b'', timeout=60, metadata=[
                ('authorization', f'Bearer {KEY}')])
        stranger.settimeout(60)
        with suppress(ConnectionError):
            while stranger.recv(1 << 16):
                pass
        assert clients.rejected['no_key'] > 80


def test_what_a_stranger_leaves_unread_harms_no_connection_that_follows(caplog):
    pings = frame(6, 0, 0, bytes(8)) * 200_000
    with site(KEYS) as (_, address, _):
        for _ in range(8):
            with ExitStack() as held, suppress(ConnectionError):
                many_calls(held, address, 0).sendall(pings)
            assert problem(address, message(), timeout=20)[0] is grpc.StatusCode.UNAUTHENTICATED
    assert not [record for record in caplog.records if record.name == 'asyncio']


def test_idle_connections_of_strangers_keep_nobody_out(monkeypatch):
    monkeypatch.setattr(inference_grpc, 'LIMITS', ConnectionLimits(12, 8, 300.0, 300.0))
    keys = ApiKeys({hashlib.sha256(KEY.encode()).digest(): 'robot'})
    good = [('authorization', f'Bearer {KEY}')]
    with site(keys) as (_, address, _), ExitStack() as held, grpc.insecure_channel(
            address, options=[('grpc.use_local_subchannel_pool', 1)]) as kept:
        ask = kept.unary_unary(INFER)
        assert ask(message(), timeout=60, metadata=good)
        files, begun = len(os.listdir('/proc/self/fd')), (
            b'', b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0')
        for number in range(60):
            stranger = held.enter_context(socket.create_connection(address.split(':')))
            stranger.sendall(begun[number % 2])
            if number % 20 == 0:
                assert call(address, message(), metadata=good)
        assert ask(message(), timeout=60, metadata=good)
        assert len(os.listdir('/proc/self/fd')) <= files + 60 + 12 * inference_grpc.FILES
        assert problem(address, message())[0] is grpc.StatusCode.UNAUTHENTICATED
