# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests of a robot whose gateways fall silent, come back, repeat themselves and answer late."""
from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.runtime.requests.roaming import Ask, MOST_GATEWAYS, PERIOD, Ping, Roaming, Tell

ANSWER = {'y': np.zeros(1, np.float32)}
SILENCE, DEADLINE, WAY = 1.0, 3.0, 0.02


class World:
    """Gateways of which some are dead, some slow, and none but the roaming one knows which."""

    def __init__(self, gateways):
        self.now, self.dead, self.slow = 100.0, set(), set()
        self.roaming = Roaming('r', SILENCE)
        self.on_the_way = []
        self.asked, self.ends = [], []
        self.frames: dict[tuple[str, str], int] = {}
        self.due: dict[int, float] = {}
        self.do(self.roaming.move(gateways, self.now))

    def submit(self):
        request = InferRequest('s', {}, DEADLINE)
        serial = len(self.due)
        self.due[serial] = self.now + DEADLINE
        self.do(self.roaming.submit(
            request, lambda end: self.ends.append((serial, end, self.now)), self.now)[1])

    def do(self, todo):
        for each in todo:
            if isinstance(each, Tell):
                each.heard(each.end)
            elif each.gateway not in self.dead:
                delay = WAY if isinstance(each, Ping) or each.gateway not in self.slow else 2.0
                self.on_the_way.append((self.now + 2 * delay, each))
            if isinstance(each, Ask):
                self.asked.append(each)
                request, stream = each.request, (each.gateway, each.request.stream)
                assert request.frame > self.frames.get(stream, 0), 'a gateway refuses repetitions'
                self.frames[stream] = request.frame
                assert 0 <= request.remaining <= DEADLINE

    def step(self, seconds):
        end = self.now + seconds
        while self.now < end:
            self.now += 0.05
            for when, each in [one for one in self.on_the_way if one[0] <= self.now]:
                self.on_the_way.remove((when, each))
                if each.gateway in self.dead:
                    continue  # killed before it answered
                if isinstance(each, Ping):
                    self.do(self.roaming.alive(each.gateway, self.now))
                else:
                    self.do(self.roaming.answered(each.gateway, each.number, InferEnd(
                        InferFate.IN_TIME, tensors=ANSWER, finished=0.0), self.now))
            self.do(self.roaming.look(self.now))

    def settle(self):
        self.step(DEADLINE + 0.2)
        assert self.roaming.in_flight == 0
        assert Counter(serial for serial, _, _ in self.ends) == Counter(self.due.keys())
        for serial, end, when in self.ends:
            assert end.fate is not InferFate.IN_TIME or when <= self.due[serial] + 1e-9


ACTIONS = st.lists(st.tuples(
    st.sampled_from(['ask', 'kill', 'start', 'slow', 'move', 'wait', 'long']),
    st.sampled_from('abc')), max_size=40)


@settings(max_examples=60)
@given(ACTIONS)
def test_each_request_has_one_end_and_no_expired_answer(actions):
    world = World('abc')
    world.step(0.3)
    for what, name in actions:
        if what == 'ask':
            world.submit()
        elif what == 'kill':
            world.dead.add(name)
            world.on_the_way = [one for one in world.on_the_way if one[1].gateway != name]
        elif what == 'start':
            world.dead.discard(name)
            world.slow.discard(name)
        elif what == 'slow':
            world.slow.add(name)
        elif what == 'move':
            world.do(world.roaming.move([name], world.now))
        else:
            world.step(0.1 if what == 'wait' else 1.6)
    world.settle()


def test_what_a_silent_gateway_has_is_asked_of_the_next_and_its_late_answers_are_dropped():
    world = World('ab')
    world.step(0.3)
    assert world.roaming.gateway == 'a'
    world.slow.add('a')
    for _ in range(3):
        world.submit()
    late = list(world.on_the_way)
    world.dead.add('a')
    world.step(SILENCE + 2 * PERIOD + 0.2)
    assert [end.fate for _, end, _ in world.ends] == [InferFate.IN_TIME] * 3
    assert (world.roaming.gateway, world.roaming.again, world.roaming.changes) == ('b', 3, 1)
    assert [ask.gateway for ask in world.asked] == ['a'] * 3 + ['b'] * 3
    assert all(ask.request.remaining < DEADLINE - SILENCE for ask in world.asked[3:])
    for _, each in late:
        if isinstance(each, Ask):
            world.do(world.roaming.answered('a', each.number, InferEnd(
                InferFate.IN_TIME, tensors=ANSWER, finished=0.0), world.now))
    assert (len(world.ends), world.roaming.late) == (3, 3)


def test_those_that_are_in_flight_are_answered_by_the_gateway_before():
    world = World('a')
    world.step(0.3)
    world.slow.add('a')
    world.submit()
    world.do(world.roaming.move(['b'], world.now))
    world.step(0.5)
    world.submit()
    world.settle()
    assert [ask.gateway for ask in world.asked] == ['a', 'b'] and world.roaming.again == 0


def test_a_gateway_that_leaves_gives_its_requests_away_and_a_refusal_is_an_end():
    world = World('ab')
    world.step(0.3)
    world.slow.add('a')
    world.submit()
    number = world.asked[0].number
    closing = InferEnd(InferFate.REFUSED, 'the gateway is closing')
    world.do(world.roaming.answered('a', number, closing, world.now, leaving=True))
    assert not world.ends and world.asked[-1].gateway == 'b'
    refused = InferEnd(InferFate.REFUSED, 'would be late')
    world.do(world.roaming.answered('a', number, refused, world.now))
    assert not world.ends, 'of a gateway that is not asked any more'
    world.do(world.roaming.answered('b', number, refused, world.now))
    assert world.ends[0][1].reason == 'would be late'


def test_gateways_are_few_and_named():
    roaming = Roaming('r')
    for names in ([], [str(k) for k in range(MOST_GATEWAYS + 1)]):
        with pytest.raises(ValueError, match='name 1 to'):
            roaming.move(names, 0.0)


def test_the_ways_that_were_measured_are_taken_from_the_time():
    world = World('a')
    world.step(0.3)
    for _ in range(30):
        world.submit()
        world.step(0.1)
    left = world.asked[-1].request.remaining
    assert DEADLINE - 0.11 < left < DEADLINE - 0.03
