# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests of the Open Inference Protocol that are wrong somewhere, over HTTP and gRPC."""
from __future__ import annotations

import gc
import json
import math
from pathlib import Path
import random
import resource
import struct
import tracemalloc

import pytest

pytest.importorskip('google.protobuf')

from intradp_ros.systems.serving.service import TensorSpec  # noqa: E402
from intradp_ros.web.inference_messages import CLASSES, infer_message  # noqa: E402
from intradp_ros.web.inference_protocol import infer_body, ProtocolError  # noqa: E402

SPECS = (TensorSpec('image', 'uint8', (8, 8, 3)), TensorSpec('state', 'float32', (4,)))
STRANGE = (None, True, -1, 1.5, 1 << 62, -1 << 70, 1e300, math.nan, math.inf, '', 'x' * 3000, [],
           [[]], [1, 2], [1 << 62] * 9, {}, {'a': {}}, [[[[[[[[[[[1]]]]]]]]]]], 'FP32', 'BYTES',
           'image', 'state', [None] * 192, ['a'] * 4, [{}] * 70, {'timeout': -1},
           {'priority': 9e9}, {'binary_data_size': 1 << 40}, {'binary_data_size': '192'},
           {'shared_memory': 'x'})
NUMBERS = (0, 1, 4, 192, 255, 1 << 20, (1 << 32) - 1, 1 << 31, (1 << 63) - 1, (1 << 64) - 1)


def of_http(chance: random.Random) -> tuple[bytes, int | None]:
    """Return a body, and what its header says of it."""
    said = {'id': 'i', 'parameters': {'timeout': 5e5, 'priority': 1}, 'inputs': [
        {'name': 'image', 'shape': [8, 8, 3], 'datatype': 'UINT8',
         'parameters': {'binary_data_size': 192}},
        {'name': 'state', 'shape': [4], 'datatype': 'FP32', 'data': [0, 0.5, 1, 2]}],
        'outputs': [{'name': 'actions', 'parameters': {'binary_data': True}}]}
    places = [said, said['parameters'], *said['inputs'], said['inputs'][0]['parameters'],
              said['inputs'][1]['data'], said['inputs'][0]['shape'], said['outputs'][0]]
    kind, place = chance.randrange(6), chance.choice(places)
    key = chance.choice(list(place)) if isinstance(place, dict) else chance.randrange(len(place))
    if kind < 3:
        place[key] = chance.choice(STRANGE)
    elif kind == 3:
        del place[key]
    elif kind == 4 and isinstance(place, dict):
        place[chance.choice(('x', '', 'data', 'contents', 'n' * 999))] = chance.choice(STRANGE)
    head = bytearray(json.dumps(said).encode())
    if kind == 5:
        for _ in range(chance.randint(1, 4)):
            head[chance.randrange(len(head))] = chance.randrange(256)
    rest = b'x' * chance.choice((192, 192, 192, 0, 191, 193, 5000))
    length = chance.choice((len(head),) * 5 + (None, 0, len(head) - 1, 1 << 40))
    return bytes(head) + rest, length


def of_grpc(chance):
    """Return a message."""
    found = CLASSES['ModelInferRequest'](
        model_name='pi0', id='i', parameters=[{'key': 'timeout', 'value': {'int64_param': 5}}],
        inputs=[{'name': 'image', 'datatype': 'UINT8', 'shape': [8, 8, 3]},
                {'name': 'state', 'datatype': 'FP32', 'shape': [4]}],
        outputs=[{'name': 'actions'}], raw_input_contents=[b'x' * 192, b'y' * 16])
    kind, entry = chance.randrange(8), chance.choice(found.inputs)
    if kind == 0:
        entry.shape[chance.randrange(len(entry.shape))] = chance.choice((0, -1, 1 << 62, 5))
    elif kind == 1:
        setattr(entry, chance.choice(('name', 'datatype')), chance.choice((
            '', 'state', 'image', 'BYTES', 'FP32', 'n' * 5000, '\0')))
    elif kind == 2:
        chance.choice((entry.parameters, found.outputs[0].parameters, found.parameters)).add(
            key=chance.choice(('', 'timeout', 'priority', 'shared_memory_region', 'k' * 3000)),
            value=chance.choice(({}, {'bool_param': True}, {'string_param': 'x' * 99},
                                 {'double_param': math.nan}, {'int64_param': -5},
                                 {'uint64_param': (1 << 64) - 1})))
    elif kind == 3:
        found.raw_input_contents[chance.randrange(2)] = b'z' * chance.choice((0, 15, 17, 5000))
    elif kind == 4:
        chance.choice((lambda: found.raw_input_contents.append(b''), found.inputs.add,
                       lambda: found.outputs.add(name='actions'), lambda: found.inputs.pop(),
                       lambda: [found.outputs.add(name=str(k)) for k in range(90)],
                       lambda: entry.contents.fp32_contents.extend([1.0] * 4)))()
    data = bytearray(found.SerializeToString())
    if kind == 5:
        for _ in range(chance.randint(1, 4)):
            data[chance.randrange(len(data))] = chance.randrange(256)
    elif kind == 6:
        del data[chance.randrange(len(data)):]
    elif kind == 7:
        number, value = chance.randint(1, 9), chance.choice(NUMBERS)
        data += bytes([number << 3 | chance.randrange(8)]) + varint(value) + chance.randbytes(
            chance.randint(0, 40)) + struct.pack('<d', 1.0) * chance.randint(0, 2)
    return bytes(data)


def varint(value):
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    return bytes([*found, value])


def kibibytes():
    return int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize() >> 10


def refuse_many(count, seed):
    """Return the KiB by which memory grew in the last three quarters."""
    chance, reasons, before, taken = random.Random(seed), set(), 0, 0
    for number in range(count):
        try:
            found = infer_message(of_grpc(chance), SPECS) if number % 2 else infer_body(
                *of_http(chance), SPECS)
        except ProtocolError as error:
            assert 0 < len(str(error)) < 600
            reasons.add((number % 2, str(error)[:20]))
        else:  # what was changed is right still, such as the id
            taken += 1
            assert {name: (t.dtype.name, t.size) for name, t in found.tensors.items()} == {
                'image': ('uint8', 192), 'state': ('float32', 4)}
            assert found.timeout > 0 and abs(found.priority) <= 1000
        if number == count // 4:
            gc.collect()
            before = kibibytes()
    assert len(reasons) > 60 and 0 < taken < count // 3
    return kibibytes() - before


def test_malformed_requests_are_refused_with_reasons():
    refuse_many(4000, 1)


@pytest.mark.slow
def test_a_hundred_thousand_malformed_requests_leave_memory_flat():
    assert refuse_many(100_000, 2) < 4 << 10  # KiB


def test_lists_of_empty_messages_take_no_memory():
    """Two bytes of a message may become a hundred of an object: they are counted before."""
    data = b'\x2a\x00' * (2 << 20)  # inputs without a name
    tracemalloc.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ProtocolError, match='more than 1024 fields'):
        infer_message(data, SPECS)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10
