# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What other sites send: malformed messages are refused with reasons, answers are looked at."""
from __future__ import annotations

import asyncio
import gc
import math
from pathlib import Path
import random
import resource
from types import SimpleNamespace

import numpy as np
import pytest

msgpack = pytest.importorskip('msgpack')
pytest.importorskip('websockets')

from policy_site import Lane  # noqa: E402
from policy_site import SERVICE as POLICY  # noqa: E402

from intradp_ros.runtime.requests.infer_requests import (  # noqa: E402
    InferEnd,
    InferFate,
    InferRequest,
)
from intradp_ros.systems.serving.executor_messages import (  # noqa: E402
    answer_message,
    answer_of,
)
from intradp_ros.systems.serving.gateway import Gateway  # noqa: E402
from intradp_ros.systems.serving.held_requests import PER_CLIENT  # noqa: E402
from intradp_ros.systems.serving.service import parse_services  # noqa: E402
from intradp_ros.systems.serving.state_row import StateRow  # noqa: E402
from intradp_ros.web.access import Held  # noqa: E402
from intradp_ros.web.connections import PEERS, SPEAKS  # noqa: E402
from intradp_ros.web.site_link import (  # noqa: E402
    _Asking,
    answered,
    ask_message,
    asked,
    end_message,
    SiteSockets,
)
from intradp_ros.web.tensor_messages import pack  # noqa: E402

HEADERS = [(PEERS.encode(), SPEAKS.encode())]
SERVICE, = parse_services("""
services:
  pi0:
    model: emulated
    deadline: 2 s
    inputs: {state: float32 4}
    outputs: {actions: float32 5x2, score: float32}
    seconds: {1: 20 ms, 4: 48 ms}
""")
REQUEST = InferRequest('pi0', {'state': np.zeros(4, np.float32)}, 2.0, client='robot', deaths=1)
ROW = StateRow({'pi0': (0.02, 0.01, 0.02)})
GOOD = {'actions': np.ones((5, 2), np.float32), 'score': np.array(0.5, np.float32)}
END = InferEnd(InferFate.IN_TIME, '', GOOD, queue=0.001, compute=0.02, batch=2, site='b',
               path=('a', 'b'), deaths=1)
ASKS = [ask_message(1, REQUEST, ['a']), pack(['stop', 1]), pack(['ping', 12.5])]
ENDS = [end_message(1, END, ROW), pack(['row', 12.5, {'pi0': [0.02, 0.01, 0.02]}]),
        end_message(1, InferEnd(InferFate.REFUSED, 'full', retry_after=0.5), ROW)]
STRANGE = (None, True, -1, 1.5, -0.5, math.nan, math.inf, 1 << 63, -1 << 63, '', 'x' * 3000,
           b'\xff' * 40, [], [1], {}, {'a': 1}, {'a': [1, 2, 3]}, [['a'] * 70], 1e300, 'in_time',
           {'pi0': [1, 2]}, {'pi0': [1, -2, 3]}, {'x' * 90: [1, 1, 1]},
           {str(k): [1, 1, 1] for k in range(90)}, {'__ndarray__': True, 'data': b'1234',
                                                   'dtype': '|O', 'shape': [1]},
           {str(k): {'__ndarray__': True, 'data': b'', 'dtype': '<f4', 'shape': [0]}
            for k in range(70)}, msgpack.ExtType(5, b'abc'))


def malformed(chance, valid):
    """Return a message with some entry exchanged, left out or added, or broken bytes."""
    parts, kind = msgpack.unpackb(chance.choice(valid), raw=False), chance.randrange(6)
    if kind < 3:
        parts[chance.randrange(len(parts))] = chance.choice(STRANGE)
    elif kind == 3:
        del parts[chance.randrange(len(parts))]
    elif kind == 4:
        parts.insert(chance.randrange(len(parts) + 1), chance.choice(STRANGE))
    data = bytearray(msgpack.packb(parts))
    if kind == 5:
        for _ in range(chance.randint(1, 3)):
            data[chance.randrange(len(data))] = chance.randrange(256)
        data = data[:chance.choice((len(data), chance.randint(0, len(data))))]
    return bytes(data)


def kibibytes():
    return int(Path('/proc/self/statm').read_text().split()[1]) * resource.getpagesize() >> 10


def refuse_many(count, seed):
    """Return the KiB by which memory grew in the last three quarters."""
    chance, reasons, before, taken = random.Random(seed), set(), 0, 0
    for number in range(count):
        parse, valid = ((asked, ASKS), (answered, ENDS))[number % 2]
        data = malformed(chance, valid)
        try:
            parse(data)
            taken += 1  # what is changed may be right still, such as another text
        except ValueError as error:
            assert 0 < len(str(error)) < 400, data
            reasons.add(str(error)[:16])
        if number == count // 4:
            gc.collect()
            before = kibibytes()
    assert len(reasons) > 25 and taken < count // 4
    return kibibytes() - before


def test_messages_are_read():
    kind, (number, request, path) = asked(ASKS[0])
    assert (kind, number, request.service, path, request.deaths) == ('ask', 1, 'pi0', ('a',), 1)
    kind, (number, end, row) = answered(ENDS[0])
    assert (kind, number, end.batch, row, end.path, end.deaths) == (
        'end', 1, 2, ROW, ('a', 'b'), 1)
    np.testing.assert_array_equal(end.tensors['actions'], GOOD['actions'])
    refused = answered(ENDS[2])[1][1]
    assert refused.retry_after == 0.5 and math.isnan(refused.compute)
    assert answered(pack(['row', None, {}])) == ('row', (None, StateRow()))


def test_answers_of_one_number_reach_other_sites_as_arrays():
    parts = answer_message(7, 0.1, ['', ''], [
        np.arange(20, dtype=np.float32).tobytes(), np.float32([0.25, 0.5]).tobytes()])
    found = answer_of(bytearray(b''.join(parts)), SERVICE.outputs)
    end = InferEnd(InferFate.IN_TIME, tensors=found.rows[1])
    heard = answered(end_message(1, end, ROW))[1][1].tensors
    assert (heard['score'].shape, heard['score'].dtype, float(heard['score'])) == (
        (), np.float32, 0.5)


def test_malformed_messages_are_refused_with_reasons():
    refuse_many(4000, 1)


@pytest.mark.slow
def test_a_hundred_thousand_malformed_messages_leave_memory_flat():
    assert refuse_many(100_000, 2) < 4 << 10  # KiB


class Link:
    """A site that answers whatever a test wants."""

    def __init__(self, gateway, name, answer):
        self.asked, self.answer = 0, answer
        gateway.linked(name, self)
        gateway.heard_row(name, ROW, 0.001)

    def send(self, request, path, heard):
        self.asked += 1
        heard(self.answer)
        return lambda: None


def ended(*answers):
    """Return the end of a request that sites b, c, ... answer."""
    names = ['b', 'c', 'd'][:len(answers)]
    gateway = Gateway('a', (SERVICE,), [()], ['a', *names], compiled=False, threaded=False)
    links = [Link(gateway, name, answer) for name, answer in zip(names, answers)]
    ends = []
    gateway.submit(REQUEST, ends.append)
    assert len(ends) == 1 and gateway.described()['services']['pi0']['lost'] == 0
    return ends[0], links


def strange(**change):
    return InferEnd(InferFate.IN_TIME, '', {
        name: tensor for name, tensor in (GOOD | change).items() if tensor is not None}, site='b')


@pytest.mark.parametrize('change, reason', [
    ({'actions': None}, "'actions' is missing, not float32 5x2"),
    ({'actions': np.ones((2, 5), np.float32)}, "'actions' is float32 2x5, not float32 5x2"),
    ({'actions': np.ones((1, 5, 2), np.float32)}, 'float32 1x5x2'),
    ({'actions': np.ones((5, 2))}, "'actions' is float64 5x2"),
    ({'score': np.ones(4000, np.float32)}, "'score' is float32 4000, not float32 .a number"),
    ({'more': np.ones(1, np.float32)}, "'more' is float32 1, not missing"),
    (dict.fromkeys(GOOD), 'missing')])
def test_an_answer_of_another_site_is_looked_at(change, reason):
    end, _ = ended(strange(**change))
    assert end.fate is InferFate.REFUSED and not end.tensors
    # another site has it then
    end, links = ended(strange(**change), strange(**change), END)
    assert end.fate is InferFate.IN_TIME and [link.asked for link in links[2:]] == [1]


def test_names_of_sites_that_are_not_known_are_left_out():
    end, _ = ended(InferEnd(InferFate.IN_TIME, '', GOOD, site='x' * 200, path=('z', 'b') * 9))
    assert (end.fate, end.site, end.path) == (InferFate.IN_TIME, 'b', ('a', 'b'))
    assert ended(END)[0].tensors.keys() == GOOD.keys()


class Socket:
    """A connection on which a site says what a test wants."""

    def __init__(self):
        self.said, self.sent, self.closed = asyncio.Queue(), [], False

    async def recv(self):
        return await self.said.get()

    async def send(self, data):
        self.sent.append(msgpack.unpackb(data, raw=False))
        if self.sent[-1][0] == 'ping' and len(self.sent) == 1:
            self.said.put_nowait(pack(['row', self.sent[0][1], {'pi0': [0.02, 0.01, 0.02]}]))

    async def close(self):
        self.closed = True


@pytest.mark.parametrize('said, stays', [
    (end_message(1, END, ROW), True), (pack(['row', None, {}]), True),
    (end_message(7, END, ROW), False), (pack(['row', 1.25, {}]), False), (b'', False),
    (pack([]), False), (pack({'row': 1}), False), (pack(['stop', 1]), False)])
def test_a_site_answers_what_it_was_asked_or_is_left(said, stays):
    async def run():
        gateway = Gateway('a', (SERVICE,), [()], ['a', 'b'], compiled=False, threaded=False)
        socket, ends = Socket(), []
        serving = asyncio.create_task(_Asking('b', gateway, socket).serve())
        while not gateway.described()['links']:
            await asyncio.sleep(0)
        gateway.submit(REQUEST, ends.append)
        while 'ask' not in [message[0] for message in socket.sent]:
            await asyncio.sleep(0)
        socket.said.put_nowait(said)
        for _ in range(20):
            await asyncio.sleep(0)
        assert serving.done() is not stays
        if not stays:
            assert ends[0].fate is InferFate.REFUSED  # there is no other site
            assert 'a message of it is not taken: ' in str(serving.exception())
        serving.cancel()
    asyncio.run(run())


def test_who_asks_as_a_site_takes_nothing_from_others_though_it_reads_nothing():
    """It names a client of this site, and asks more than that may have in flight."""
    request = InferRequest('pi0', {'images/front': np.zeros((8, 8, 3), np.uint8),
                                   'state': np.zeros(4, np.float32)}, 9.0, client='robot2')

    async def run():
        gateway = Gateway('a', (POLICY,), [(0,)], clock=lambda: 100.0, compiled=False,
                          threaded=False)
        lane, room, ends, out, most = Lane(gateway), Held(2000), [], [], []
        messages = iter([{'type': 'websocket.connect'}, *(
            {'type': 'websocket.receive', 'bytes': ask_message(number, request, ['b'])}
            for number in range(PER_CLIENT + 1))])

        async def receive():
            await asyncio.sleep(0)
            for message in messages:
                return message
            gateway.submit(request, ends.append)
            lane.finish()
            for _ in range(10):
                await asyncio.sleep(0)
            most.append(room._of['robot1'])
            return {'type': 'websocket.disconnect'}

        async def send(message):
            out.append(message)
            if len(out) > 1:
                await asyncio.Event().wait()
        share = SimpleNamespace(take=lambda size: room.take('robot1', size),
                                give=lambda size: room.take('robot1', -size))
        await SiteSockets(gateway)({'headers': HEADERS, 'client_name': 'robot1',
                                    'state': {'share': share}}, receive, send)
        assert ends and 'in flight' not in ends[0].reason
        assert 500 < most[0] <= 1000 and not room._of
    asyncio.run(run())


def test_a_site_that_asks_wrongly_loses_its_connection_and_what_it_asked():
    async def run(said):
        gateway = Gateway('a', (SERVICE,), [()], ['a', 'b'], compiled=False, threaded=False)
        out = []
        messages = iter([{'type': 'websocket.connect'}, *(
            {'type': 'websocket.receive', 'bytes': data} for data in (*ASKS[2:], said))])

        async def receive():
            await asyncio.sleep(0)
            return next(messages)

        async def send(message):
            out.append(message)
        await asyncio.wait_for(SiteSockets(gateway)({'headers': HEADERS}, receive, send), 5)
        assert not gateway._held.all
    for said in (b'', pack([]), pack(['ask']), pack(['ping', 'x']), pack({'a': 1}), b'\xc1'):
        asyncio.run(run(said))
