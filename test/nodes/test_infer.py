# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The service `infer` and its client, and gateways at addresses; messages and their seals."""
from __future__ import annotations

from array import array
from collections import Counter
from contextlib import contextmanager
from copy import copy
import itertools
import math
import threading

import numpy as np
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from waiting import wait_for

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import Tensor
from intradp_ros.nodes.serving.gateway_way import WebWay
from intradp_ros.nodes.serving.infer_client import InferClient
from intradp_ros.nodes.serving.infer_messages import (
    answer_message,
    check_answer,
    end_of,
    InferMessageError,
    request_message,
    request_of,
    RequestSeals,
    sealed_request,
    SealError,
    specs_of,
    tensors_of,
)
from intradp_ros.nodes.serving.infer_server import InferServer, QOS
from intradp_ros.runtime.requests.infer_requests import DTYPES, InferEnd, InferFate, InferRequest
from intradp_ros.srv import Infer
from intradp_ros.systems.serving.executor import emulated_answer
from intradp_ros.systems.serving.local_site import LocalSite
from intradp_ros.systems.serving.service import parse_services

EYES = """
services:
  eyes:
    model: emulated
    deadline: 20 s
    inputs: {image: uint8 3x8x8}
    outputs: {found: float32 2x2}
    seconds: """
SERVICES = parse_services(EYES + '{1: 5 ms, 4: 10 ms}')
#: So slow that whoever answers as quickly as he can is first.
SLOW = parse_services(EYES + '{1: 300 ms, 4: 300 ms}')
KEY = SharedKey.generate()


def image(value):
    return {'image': np.full((3, 8, 8), value, np.uint8)}


class Ends(list):
    """Ends as they come, by their tensors."""

    def ask(self, way, value, remaining=20.0):
        return way.submit(InferRequest('eyes', image(value), remaining),
                          lambda end: self.append((value, end)))

    def check(self, count):
        wait_for(lambda: len(self) >= count)
        for value, end in self:
            assert end.fate is InferFate.IN_TIME, end.reason
            (found,) = end.tensors.values()
            assert np.array_equal(found, emulated_answer(SERVICES[0], image(value))['found'])
        assert sorted(value for value, _ in self) == list(range(count)), 'each once'


@contextmanager
def spinning(context, *names):
    """Yield nodes whose callbacks run on a thread."""
    made = [rclpy.create_node(name, context=context) for name in names]
    executor = SingleThreadedExecutor(context=context)
    for node in made:
        executor.add_node(node)
    over = threading.Event()

    def spin():
        while not over.is_set():
            executor.spin_once(timeout_sec=0.05)
    thread = threading.Thread(target=spin)
    thread.start()
    try:
        yield made
    finally:
        over.set()
        thread.join()
        executor.shutdown()
        for node in made:
            node.destroy_node()


@contextmanager
def looked_at(way):
    """Yield a way that is looked at on a thread of its own."""
    over = threading.Event()

    def look():
        while not over.wait(0.05):
            way.look()
    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield way
    finally:
        over.set()
        thread.join()
        way.close()


def test_requests_of_a_robot_follow_it_from_gateway_to_gateway(context: rclpy.Context):
    """One in a process: a gateway closes while requests are in flight, another has its key."""
    said: list[str] = []
    sites = [LocalSite(name, SERVICES, compiled=False) for name in ('a', 'b')]
    with spinning(context, 'first', 'second', 'robot') as nodes:
        servers = [InferServer(node, site.gateway, KEY, 0, said.append)
                   for node, site in zip(nodes, sites)]
        with looked_at(InferClient(nodes[2], 'eyes', ['first'], KEY, 5.0, said.append)) as way:
            wait_for(lambda: way.gateway == 'first' and way.specs)
            way.move(['first', 'second'])
            assert [spec.name for each in way.specs for spec in each] == ['image', 'found']
            ends = Ends()
            for value in range(12):
                ends.ask(way, value)
                if value == 6:
                    servers[0].close()
            ends.check(12)
            wait_for(lambda: way.gateway == 'second')
            assert {end.site for _, end in ends} >= {'b'}
            ends.ask(way, 12, remaining=0.0)
            wait_for(lambda: len(ends) == 13)
            assert ends[-1][1].fate in (InferFate.LATE, InferFate.REFUSED)
            assert not way.rejected and not servers[1].rejected and not said
        stranger = InferClient(nodes[2], 'eyes', ['second'], SharedKey.generate(), 5.0,
                               said.append)
        with looked_at(stranger):
            wait_for(lambda: stranger.rejected.get('forged'))
            assert stranger.gateway == '', 'an answer by another key is none'
        servers[1].close()
        wait_for(lambda: servers[1].waiting == 0)
    for site in sites:
        site.close()


def test_gateways_at_addresses_are_asked_over_web_sockets():
    pytest.importorskip('websockets')
    from intradp_ros.web.serving_app import serve
    sites = [LocalSite(name, SERVICES, compiled=False) for name in ('a', 'b')]
    servers = [serve(site.gateway, '127.0.0.1', 0) for site in sites]
    addresses = [f'127.0.0.1:{server.port}' for server in servers]
    with looked_at(WebWay('eyes', addresses, None)) as way:
        wait_for(lambda: way.specs and way.gateway)
        assert way.specs[0][0].shape == (3, 8, 8) and not way.trouble
        ends = Ends()
        for value in range(6):
            ends.ask(way, value)
        ends.check(6)
        way.move(addresses[1:])
        ends.ask(way, 6)
        ends.check(7)
        assert ends[-1][1].site == 'b'
        with pytest.raises(ValueError, match='HOST:PORT'):
            way.move(['gateway_node'])
    for server in servers:
        server.close()
    for site in sites:
        site.close()


@pytest.mark.parametrize('dtype', DTYPES)
def test_tensors_cross_as_they_are(dtype: str):
    sent = InferRequest('s', {'x': np.arange(6).reshape(2, 3).astype(dtype).T, 'y': np.zeros(
        (), dtype)}, 1.5, 3, stream='t', frame=4)
    got = request_of(request_message(sent), 0.5)
    assert (got.service, got.remaining, got.priority, got.stream, got.frame) == ('s', 1.0, 3, 't',
                                                                                 4)
    for name, tensor in sent.tensors.items():
        assert got.tensors[name].dtype == tensor.dtype
        assert np.array_equal(got.tensors[name], tensor)
    end = InferEnd(InferFate.IN_TIME, '', sent.tensors, math.inf, 1.0, 2.0, 3.0, 4.0, 5, 'site')
    back = end_of(answer_message(end))
    assert back.tensors.keys() == end.tensors.keys() and (back.batch, back.site) == (5, 'site')


def tensor(**change):
    fields = {'name': 'x', 'dtype_code': 1, 'dtype_bits': 8, 'shape': array('I', [4]),
              'data': array('B', bytes(4))}
    return Tensor(**{**fields, **change})


@pytest.mark.parametrize(('messages', 'why'), [
    ([tensor(name='')], 'names are'), ([tensor(), tensor()], 'names are'),
    ([tensor(dtype_code=9)], 'no dtype'), ([tensor(dtype_code=4, dtype_bits=16)], 'bfloat16'),
    ([tensor(shape=array('I', [5]))], '4 bytes are not uint8 of shape 5'),
    ([tensor(shape=array('I', [1] * 9))], '9 dimensions'),
    ([tensor(shape=array('I', [65536] * 4))], 'bytes are not'),
    ([tensor(data=array('B', bytes(101)))], 'at most 100 are taken')])
def test_tensors_that_cannot_be_are_refused(messages, why: str):
    with pytest.raises(InferMessageError, match=why):
        tensors_of(messages, 100)


@pytest.mark.parametrize('text', ['', 'x', 'x uint8 3x', 'x object 3', 'x uint8 -1', 'x uint8 '
                                  + 'x'.join('1' * 9), f'{"n" * 300} uint8 3'])
def test_what_a_service_takes_is_read_strictly(text: str):
    assert specs_of(['a b uint8 3x4', 'c float32 '])[0].shape == (3, 4)
    with pytest.raises(InferMessageError):
        specs_of([text])


def test_a_seal_is_good_once_at_one_gateway_and_covers_all():
    gateway, other = RequestSeals(KEY), RequestSeals(KEY)

    def sealed(serial=1, **change):
        request = sealed_request(KEY, Infer.Request(
            service='eyes', inputs=[tensor()], remaining=1.0, stream='s', number=serial),
            gateway.challenge)
        for name, value in change.items():
            setattr(request, name, value)
        return request

    first = sealed()
    gateway.check(first)
    for request, cause in (
            (first, 'replayed'), (sealed(2, mac=array('B')), 'unsealed'),
            (sealed(2, remaining=2.0), 'forged'), (sealed(2, priority=1), 'forged'),
            (sealed(2, service='ears'), 'forged'), (sealed(2, stream='ss'), 'forged'),
            (sealed(2, number=3), 'forged'), (sealed(2, inputs=[tensor(name='y')]), 'forged'),
            (sealed(2, inputs=[]), 'forged'),
            (sealed(2, challenge=gateway.challenge ^ 1), 'forged'),
            (sealed_request(KEY, sealed(2), gateway.challenge ^ 1), 'challenge')):
        with pytest.raises(SealError) as refused:
            gateway.check(request)
        assert refused.value.cause == cause
    with pytest.raises(SealError):
        other.check(sealed(2))
    answer = gateway.sealed(answer_message(InferEnd(InferFate.IN_TIME, tensors=image(1))), first,
                            True)
    check_answer(KEY, answer, first)
    for change in ({'fate': 'late'}, {'site': 'x'}, {'batch': 2}, {'outputs': []},
                   {'finished': 1.0}, {'challenge': 5}, {'takes': ['x uint8 3']}):
        forged = gateway.sealed(answer_message(
            InferEnd(InferFate.IN_TIME, tensors=image(1))), first, True)
        for name, value in change.items():
            setattr(forged, name, value)
        with pytest.raises(SealError):
            check_answer(KEY, forged, first)
    with pytest.raises(SealError):
        check_answer(KEY, answer, sealed(2))
    with pytest.raises(SealError):  # what was said to who copied all but the seal
        check_answer(KEY, gateway.sealed(answer_message(InferEnd(InferFate.REFUSED)), sealed(
            1, mac=array('B')), True), first)


def test_who_serves_the_same_name_without_the_key_ends_no_request(context: rclpy.Context):
    """He answers first: with nothing that is sealed, or with what he made the gateway say."""
    site, said = LocalSite('a', SLOW, compiled=False), list[str]()
    with spinning(context, 'gate', 'robot') as nodes, spinning(context, 'rival') as (rival,), \
            spinning(context, 'relay') as (relay,):
        server = InferServer(nodes[0], site.gateway, KEY, 0, said.append)
        asks = relay.create_client(Infer, '/gate/infer', qos_profile=QOS)
        turns, relayed, seen = itertools.cycle(range(4)), Counter[str](), set[tuple[int, bytes]]()

        def answer(request: Infer.Request, response: Infer.Response) -> Infer.Response:
            asked = request.number, bytes(request.mac)
            if asked in seen or not len(request.mac):  # of its own, or a sign of life
                return Infer.Response(fate='in_time')
            copied, turn = copy(request), next(turns)
            if turn == 0:
                copied.mac = array('B')
            elif turn == 1:
                copied.inputs = []
            elif turn == 2:
                copied.priority = 1
            seen.add((copied.number, bytes(copied.mac)))
            heard = threading.Event()
            found = asks.call_async(copied)
            found.add_done_callback(lambda _: heard.set())
            if heard.wait(1.0):
                relayed[found.result().reason] += 1
                return found.result()
            return response

        rival.create_service(Infer, '/gate/infer', answer, qos_profile=QOS)
        with looked_at(InferClient(nodes[1], 'eyes', ['/gate'], KEY, 5.0, said.append)) as way:
            wait_for(lambda: way.gateway and way.specs)
            ends = Ends()
            for value in range(8):
                ends.ask(way, value)
            ends.check(8)
            wait_for(lambda: len(relayed) >= 3)
            assert way.rejected['unsealed']
        server.close()
    site.close()


def test_names_without_end_leave_no_clients(context: rclpy.Context):
    with spinning(context, 'robot') as (robot,):
        way = InferClient(robot, 'eyes', ['first'], None, 5.0, print)
        for turn in range(5):
            with pytest.raises(ValueError, match='1 to 16'):
                way.move([f'x{turn}_{k}' for k in range(20)])
            way.move([f'y{turn}_{k}' for k in range(16)])
            assert len(list(robot.clients)) == 16
        with pytest.raises(ValueError):
            way.move(['no name'])
        way.move(['first'])
        assert len(list(robot.clients)) == 1
        way.close()
