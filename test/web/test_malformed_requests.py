# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests of the policy socket that are wrong somewhere: refused with reasons, in no memory."""
from __future__ import annotations

import gc
import math
from pathlib import Path
import random
import resource
import struct
import tracemalloc

import numpy as np
import pytest

msgpack = pytest.importorskip('msgpack')

from policy_site import array, Lane, SERVICE, valid  # noqa: E402

from intradp_ros.runtime.requests.infer_requests import InferFate  # noqa: E402
from intradp_ros.systems.serving.executor import emulated_answer  # noqa: E402
from intradp_ros.systems.serving.gateway import Gateway  # noqa: E402
from intradp_ros.web.policy_socket import Asked, BadObservationError, request_of  # noqa: E402

HUGE = (1 << 62, (1 << 64) - 1, 1 << 31, 10**15)
#: Beyond what a message is, no more bytes than these are taken to refuse it.
ROOM = 64 << 10


def nested(depth, chance):
    value = 1
    for _ in range(depth):
        value = {'x': value} if chance.random() < 0.5 else [value]
    return value


def wrong_value(chance):
    """Return something that no entry of an observation may be."""
    return chance.choice((
        lambda: None, lambda: 'text' * chance.randint(1, 50), lambda: chance.randbytes(30),
        lambda: [1] * chance.randint(0, 4000), lambda: nested(chance.randint(7, 300), chance),
        lambda: msgpack.ExtType(chance.randint(0, 127), chance.randbytes(chance.randint(0, 40))),
        lambda: msgpack.Timestamp(5), lambda: {chance.randint(0, 9): 1},
        lambda: {k: k for k in map(str, range(chance.choice((70, 5000))))}))()


def wrong_array(chance):
    kind = chance.randrange(7)
    if kind == 0:
        return array(b'x' * 16, chance.choice((
            '|O', 'O', '<U4', '|S16', '>f4', '<c8', '<M8[ns]', '|V16', 'f4,f4', 'float32', '',
            'O' * 300, None, 4, [['a', '<f4']], {'x': 1})), [4])
    if kind == 1:
        return array(b'x' * 16, '<f4', chance.choice((
            [chance.choice(HUGE)], [chance.choice(HUGE)] * 8, [-4], [0] * 9, [4.0], [True, 4], '4',
            None, 4, [[4]], [5], [], [3], [2, 2, 2], ['4'], [math.nan])))
    if kind == 2:
        return array(chance.choice(('x' * 16, None, 7, [0] * 16, {'a': 1}, 1.5)), '<f4', [4])
    if kind == 3:
        return array(b'', '<f4', chance.choice(([1 << 40], [1 << 62, 4], [chance.randint(1, 9)])))
    if kind == 4:
        broken = array(b'x' * 16, '<f4', [4])
        del broken[chance.choice((b'data', b'dtype', b'shape'))]
        return broken
    if kind == 5:
        return {b'__npgeneric__': True,
                b'dtype': chance.choice(('<i4', '|b1', '|O', '<f4', '|u1')),
                b'data': chance.choice((None, 'x', [1], 1 << 40, -1e300, math.nan, math.inf))}
    return array(np.zeros(3, '<f8').tobytes(), '<f8', [3])


def malformed(chance):
    """Return bytes that are a valid observation save for one kind of mistake."""
    found, kind = valid(), chance.randrange(9)
    if kind < 2:
        place = chance.choice((found, found['images']))
        place[chance.choice(list(place)) if place is not found else 'state'] = (
            wrong_array if kind else wrong_value)(chance)
    elif kind == 2:
        found['deadline_ms'] = chance.choice((
            -1, -1e300, math.nan, -math.inf, 'x', '', None, [1], {'a': 1}, b'\xff', '1e9x',
            array(b'x' * 16, '<f4', [4])))
    elif kind == 3:
        found['priority'] = chance.choice((
            math.nan, math.inf, 1.5, 1001, -1 << 60, 'high', None, [], array(b'', '<f4', [0])))
    elif kind == 4:
        found[chance.choice(('other', '', 'x' * 3000, 'a/b', '\0', 'images/front'))] = \
            array(b'x' * 4, '<f4', [1])
    elif kind == 5:
        del found[chance.choice(('state', 'images'))]
    elif kind == 6:
        data = msgpack.packb(found)
        return data[:chance.randrange(len(data))]
    elif kind == 7:
        return msgpack.packb(found) + chance.randbytes(chance.randint(1, 2000))
    else:
        head = chance.choice((b'\xdd', b'\xdf', b'\xc6', b'\xdb', b'\xc9'))
        return b'\x82\xa1a' + head + struct.pack('>I', chance.choice((1 << 31, (1 << 32) - 1))) \
            + chance.randbytes(chance.randint(0, 30))
    return msgpack.packb(found)


class Site:
    """What a message meets: the parser, then a gateway in model time."""

    def __init__(self):
        self.gateway = Gateway('a', (SERVICE,), [(0,)], clock=lambda: 100.0, compiled=False,
                               threaded=False)
        self.lane = Lane(self.gateway)

    def reason(self, data):
        """Return why a message is refused, '' if it is taken."""
        try:
            request = request_of(data, Asked('pi0', 2.0, 0), SERVICE.ignore, client='c')
        except BadObservationError as error:
            return str(error)
        ends = []
        self.gateway.submit(request, ends.append)
        if ends and ends[0].fate is InferFate.REFUSED:
            return ends[0].reason
        self.lane.finish()
        assert ends and ends[0].fate is InferFate.IN_TIME, data
        return ''


def peak(site, data):
    """Return the bytes that a message takes at most."""
    tracemalloc.start()
    site.reason(data)
    found = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return found


def kibibytes():
    return int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize() >> 10


def refuse_many(count, seed=1, traced=True):
    chance, site, reasons = random.Random(seed), Site(), set()
    most = 0
    for number in range(count):
        data = malformed(chance)
        reason = site.reason(data)
        if traced and number % 20 == 0:
            # what other threads take meanwhile is not taken each time
            assert min(peak(site, data) for _ in range(3)) <= 4 * len(data) + ROOM, data
        assert reason and len(reason) < 600, data
        reasons.add(reason[:24])
        if number % 50 == 0:
            assert site.reason(msgpack.packb(valid(number % 250))) == ''
        if number == count // 4:
            gc.collect()
            most = kibibytes()
    figures = site.gateway.described()['services']['pi0']
    assert figures['lost'] == figures['in_flight'] == 0 and not site.gateway._held.all
    assert len(reasons) > 20
    return kibibytes() - most


def test_malformed_requests_are_refused_with_reasons():
    refuse_many(4000)


@pytest.mark.slow
def test_a_hundred_thousand_malformed_requests_leave_memory_flat():
    assert refuse_many(100_000, 2, traced=False) < 4 << 10  # KiB


def test_bad_rows_do_not_harm_those_that_are_computed_with_others():
    site, ends = Site(), []
    for number in range(12):
        request = request_of(msgpack.packb(valid(number)), Asked('pi0', 2.0, 0), SERVICE.ignore)
        site.gateway.submit(request, ends.append)
        bad = request_of(msgpack.packb(valid() | {'state': array(b'x' * 8, '<f4', [2])}),
                         Asked('pi0', 2.0, 0), SERVICE.ignore)
        refused = []
        site.gateway.submit(bad, refused.append)
        assert "'state' has shape 2" in refused[0].reason
    site.lane.finish()
    assert [end.fate for end in ends] == [InferFate.IN_TIME] * 12
    assert max(end.batch for end in ends) == 4
    for number, end in enumerate(ends):
        expected = emulated_answer(SERVICE, {
            'images/front': np.full(192, number, np.uint8), 'state': np.zeros(4, np.float32)})
        np.testing.assert_array_equal(end.tensors['actions'], expected['actions'])
