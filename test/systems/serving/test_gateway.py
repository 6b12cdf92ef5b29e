# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Gateways in model time: one end for each request, whatever executors and sites do."""
from __future__ import annotations

from collections import Counter
from dataclasses import replace
import random

import numpy as np
from policy_site import TWO
import pytest
from whole_site import check_whole

from intradp_ros.runtime.requests.infer_requests import DEADLY, InferFate, InferRequest
from intradp_ros.systems.serving.executor import emulated_answer, Opened
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.gateway import Coming, Gateway
from intradp_ros.systems.serving.service import parse_services

SERVICES = parse_services(TWO)
POISON = 254


class Lane:
    """An executor in model time: a batch ends `part` of its time after it began."""

    def __init__(self, world, gateway, number, part=1.0, joins=True):
        self.world, self.gateway, self.number, self.part = world, gateway, number, part
        self.dead, self.batches = False, []
        self.opened = {k: Opened(service.inputs, service.outputs, service.batches,
                                 service.seconds, (0.0,) * len(service.seconds))
                       for k, service in enumerate(SERVICES)}
        if joins:
            gateway.joined(number, self)
            for k, found in self.opened.items():
                gateway.opened(number, k, found)

    def run(self, number, service, rows):
        what = SERVICES[service]
        self.batches.append(service)
        if any(row['image'].max() == POISON for row in rows):
            self.world.at(0.001, lambda: self.dead or self.kill())
            return
        seconds = self.part * what.seconds[len(rows) - 1]
        result = BatchResult(number, seconds, [emulated_answer(what, row) for row in rows],
                             ['no answer' if row['image'].max() == 255 else '' for row in rows])
        self.world.at(seconds, lambda: self.dead or self.gateway.ended(self.number, result))

    def kill(self):
        self.dead = True
        self.gateway.lost(self.number, 'killed', self)

    def close(self):
        self.dead = True


class Way:
    """A link in model time; one that is cut delivers nothing any more."""

    def __init__(self, world, target, hop=0.002):
        self.world, self.target, self.hop, self.cut = world, target, hop, False
        self.sent = 0

    def send(self, request, path, heard):
        self.sent += 1
        cancel = []
        self.world.at(self.hop, lambda: self.cut or cancel.append(
            self.target.forwarded(request, path, lambda end: self.world.at(
                self.hop, lambda: self.cut or heard(end)))))
        return lambda: self.world.at(self.hop, lambda: [call() for call in cancel])


class World:
    """Sites that hear of each other every 0.1 s."""

    def __init__(self, names='a', part=1.0, lanes=1):
        self.now, self.queue, self.count = 100.0, [], 0
        self.gateways = {name: Gateway(
            name, SERVICES, [(0, 1)] * lanes, list(names), clock=lambda: self.now,
            compiled=False, threaded=False) for name in names}
        self.lanes = {name: [Lane(self, g, k, part) for k in range(lanes)]
                      for name, g in self.gateways.items()}
        self.ways = {(a, b): Way(self, self.gateways[b]) for a in names for b in names if a != b}
        for (a, b), way in self.ways.items():
            self.gateways[a].linked(b, way)
        self.ends = {}
        self._rows()

    def at(self, after, call):
        self.count += 1
        self.queue.append((self.now + after, self.count, call))

    def _rows(self):
        for (a, b), way in self.ways.items():
            if not way.cut:
                self.gateways[a].heard_row(b, self.gateways[b].row(), way.hop)
        if self.ways:
            self.at(0.1, self._rows)

    def until(self, time):
        while self.queue and min(self.queue)[0] <= time:
            event = min(self.queue)
            self.queue.remove(event)
            self.now = event[0]
            event[2]()
            self.look()
        self.now = max(self.now, time)
        self.look()

    def look(self):
        for gateway in self.gateways.values():
            gateway.look()

    def ask(self, number, site='a', service='policy', value=None, **more):
        value = number % 200 if value is None else value
        tensors = {'image': np.full((4, 4), value, np.uint8), 'state': np.zeros(2, np.float32)} \
            if service == 'policy' else {'image': np.full(4, value, np.uint8)}
        expected = emulated_answer(SERVICES[service == 'camera'], tensors)

        def heard(end):
            assert number not in self.ends, 'a second end'
            self.ends[number] = end
            if end.fate is InferFate.IN_TIME:
                for name, tensor in expected.items():
                    assert end.tensors[name].tolist() == tensor.tolist()
            else:
                assert not end.tensors
        return self.gateways[site].submit(InferRequest(service, tensors, **more), heard)

    def fates(self):
        return Counter(end.fate for end in self.ends.values())

    def whole(self, asked):
        """Check that all have ended and nothing is held any more."""
        assert len(self.ends) == asked
        counted = Counter()
        for gateway in self.gateways.values():
            check_whole(gateway._arrays)
            assert not gateway._held.all and not gateway._held.rows and not gateway._held._clients
            assert not any(lane.batch for lane in gateway._lanes.values())
            assert set(gateway._arrays.state.tolist()) == {0}
            for service in gateway.described()['services'].values():
                assert service['lost'] == service['in_flight'] == 0
                counted += Counter({fate: service[fate.value] for fate in InferFate})
        assert counted == self.fates()


def test_why_a_service_is_not_served_is_said():
    services = parse_services('services: {a: {model: "a:b 1x4", deadline: 1 s}}')
    gateway = Gateway('dock', services, [[0]], compiled=False, threaded=False)
    assert gateway.lacking('a') == 'it is being loaded'
    gateway.failed(0, 0, 'no weights')
    assert gateway.lacking('a') == 'it cannot be loaded: no weights'
    gateway.close()


def test_requests_are_answered_in_batches():
    world = World()
    for number in range(9):
        world.ask(number)
    world.until(101)
    assert world.fates() == {InferFate.IN_TIME: 9}
    assert [world.ends[k].batch for k in range(9)] == [1] + [4] * 8
    end = world.ends[8]
    assert end.finished == pytest.approx(0.042) and end.finished <= end.predicted + 1e-9
    assert end.queue == pytest.approx(0.026) and end.site == 'a' and end.path == ('a',)
    world.whole(9)


def test_beyond_capacity_requests_are_refused_at_once_with_a_time():
    world = World()
    for number in range(60):
        world.ask(number)
    refused = [end for end in world.ends.values() if end.fate is InferFate.REFUSED]
    assert len(refused) > 20 and all('would be late' in end.reason for end in refused)
    when = world.now + refused[-1].retry_after
    assert 0 < refused[-1].retry_after < 0.1
    world.until(when + 1e-6)
    world.ask(100)
    world.until(102)
    assert world.ends[100].fate is InferFate.IN_TIME
    world.whole(61)


def test_a_full_site_forwards_and_nothing_goes_in_circles():
    world = World('abc')
    for number in range(60):
        world.ask(number)
    world.until(102)
    assert {end.site for end in world.ends.values()} == {'a', 'b', 'c'}
    assert world.fates()[InferFate.IN_TIME] > 50
    for end in world.ends.values():
        assert len(set(end.path)) == len(end.path) <= 6 and end.path[0] == 'a'
        if end.fate is InferFate.IN_TIME and end.site != 'a':
            assert end.finished >= 0.0139999
    world.whole(60)


def test_a_request_goes_where_much_more_room_is_before_its_site_is_full():
    alone, world = World(), World('ab')
    for number in range(14):
        alone.ask(number)
        world.ask(number)
    for one in (alone, world):
        one.until(102)
        assert one.fates() == {InferFate.IN_TIME: 14}
        one.whole(14)
    elsewhere = [number for number, end in world.ends.items() if end.site == 'b']
    assert elsewhere and 0 not in elsewhere, 'an idle site keeps what comes'
    assert max(end.finished for end in world.ends.values()) \
        < 0.8 * max(end.finished for end in alone.ends.values())
    assert all(end.finished <= end.predicted + 0.02 for end in world.ends.values())


def test_requests_of_a_dead_site_are_placed_anew():
    world = World('abc')
    for number in range(60):
        world.ask(number)
    world.until(world.now + 0.006)
    for (_, target), way in world.ways.items():
        if target == 'b':
            way.cut = True
    sent = sum(1 for held in world.gateways['a']._held.all.values() if held.away == 'b')
    assert sent
    for name in 'ac':
        world.gateways[name].unlinked('b')
    world.until(102)
    assert 'b' not in {end.site for end in world.ends.values()}
    assert len(world.ends) == 60
    assert world.fates()[InferFate.IN_TIME] > 35
    assert world.gateways['a'].described()['links'] == ['c']


def test_a_site_that_says_nothing_lets_nothing_wait_for_ever():
    world = World('ab')
    for number in range(60):
        world.ask(number)
    for way in world.ways.values():
        way.cut = True
    world.until(102)
    assert len(world.ends) == 60 and world.fates()[InferFate.LATE] > 0
    assert not world.gateways['a']._held.all


def test_a_dead_executor_harms_only_what_cannot_sit_elsewhere():
    world = World(lanes=2)
    for number in range(20):
        world.ask(number, remaining=0.2)
    world.until(world.now + 0.002)
    world.lanes['a'][0].kill()
    world.until(102)
    assert world.fates() == {InferFate.IN_TIME: 20}
    world.lanes['a'][1].kill()
    world.ask(50)
    assert world.ends[50].fate is InferFate.REFUSED
    assert 'no site serves it' in world.ends[50].reason
    world.lanes['a'][0] = Lane(world, world.gateways['a'], 0)
    world.ask(51)
    world.until(103)
    assert world.ends[51].fate is InferFate.IN_TIME
    world.whole(22)


def test_a_request_of_which_executors_die_is_refused_before_it_ends_them_all():
    world = World(lanes=3)
    world.ask(0, remaining=30.0)
    for _ in range(2):
        lane = next(lane for lane in world.lanes['a'] if lane.batches and not lane.dead)
        assert not world.ends
        lane.kill()
    assert 'executors died while they computed it' in world.ends[0].reason
    world.ask(1)
    world.until(101)
    assert world.ends[1].fate is InferFate.IN_TIME
    world.whole(2)


def test_a_request_of_which_an_executor_died_says_so_however_it_is_refused():
    world = World()
    world.ask(0, remaining=0.3, value=POISON)
    world.until(101)
    assert world.ends[0].fate is InferFate.REFUSED and world.ends[0].deaths == 1
    assert world.ends[0].reason == f'{DEADLY}: no site serves it'


def test_what_executors_die_of_takes_nobody_of_its_batch_along():
    """After the first death they are computed one by one; what is computed by then is answered."""
    world = World(lanes=4)
    for number in range(16):
        world.ask(number, remaining=5.0, value=POISON if number in (5, 7) else None)
    world.until(110)
    deadly = [number for number, end in world.ends.items() if end.reason == DEADLY]
    assert sorted(deadly) == [5, 7]
    assert world.fates() == {InferFate.IN_TIME: 14, InferFate.REFUSED: 2}
    assert sum(lane.dead for lane in world.lanes['a']) == 3
    world.whole(16)


@pytest.mark.parametrize('lanes, idle', [(1, ''), (2, ''), (1, 'a'), (2, 'a'), (3, 'ab')])
def test_executors_of_all_sites_that_die_of_a_request_are_counted_together(lanes, idle):
    """Sites of `idle` have none: what they take they forward."""
    world = World('abcde', lanes=lanes)
    for name in idle:
        for lane in world.lanes.pop(name):
            lane.kill()
    world.until(world.now + 0.3)
    world.ask(0, value=POISON, remaining=30.0)
    world.until(103)
    assert sum(lane.dead for lanes in world.lanes.values() for lane in lanes) == 2
    assert 'executors died while they computed it' in world.ends[0].reason
    world.ask(1)
    world.until(104)
    assert world.ends[1].fate is InferFate.IN_TIME
    world.whole(2)


def test_an_executor_with_another_model_than_others_serves_nobody():
    """Its file was changed while one of two executors was started anew."""
    world = World(lanes=2)
    gateway, lane = world.gateways['a'], world.lanes['a'][1]
    lane.kill()
    again = Lane(world, gateway, 1, joins=False)
    again.opened[0] = replace(again.opened[0], digest='other')
    gateway.joined(1, again)
    for service, found in again.opened.items():
        gateway.opened(1, service, found)
    for number in range(40):
        world.ask(number, remaining=0.2)
    assert world.lanes['a'][0].number == 0 and not again.batches
    assert 'policy on executor 1' in gateway.described()['problems']
    world.until(102)
    world.lanes['a'][0].kill()  # nobody serves the former model any more
    gateway.opened(1, 0, again.opened[0])
    world.ask(50)
    world.until(103)
    assert world.ends[50].fate is InferFate.IN_TIME and again.batches == [0]
    world.whole(41)


def test_an_expired_answer_is_never_delivered():
    world = World(part=20.0)
    world.ask(0)
    world.until(100.15)
    assert world.ends[0].fate is InferFate.LATE
    world.until(102)
    world.whole(1)


def test_a_batch_that_hangs_ends_its_executor():
    world = World(part=1000.0)
    world.ask(0, remaining=30.0)
    world.until(101)
    assert not world.ends
    world.until(106)
    assert world.lanes['a'][0].dead
    assert world.ends[0].fate is InferFate.REFUSED
    world.whole(1)


def test_what_is_withdrawn_is_cancelled_wherever_it_is():
    world = World('ab')
    cancels = {number: world.ask(number) for number in range(60)}
    world.until(world.now + 0.003)
    for cancel in cancels.values():
        cancel()
        cancel()
    world.until(102)
    for cancel in cancels.values():
        cancel()
    assert world.fates()[InferFate.CANCELLED] == 60 - world.fates()[InferFate.REFUSED]
    world.whole(60)


@pytest.mark.parametrize('change, reason', [
    ({'service': 'none'}, "service 'none' is not served; there are policy, camera"),
    ({'tensors': {'image': np.zeros((4, 4), np.uint8)}}, "input 'state' is missing: send float32"),
    ({'tensors': {'image': np.zeros((4, 5), np.uint8), 'state': np.zeros(2, np.float32)}},
     "'image' has shape 4x5: send uint8 4x4"),
    ({'tensors': {'image': np.zeros((4, 4), np.int16), 'state': np.zeros(2, np.float32)}},
     "'image' is int16"),
    ({'tensors': {'more': np.zeros(1, np.uint8)}}, "takes no input 'more'; it takes image, state"),
])
def test_bad_requests_are_refused_with_the_field(change, reason):
    world = World()
    found = []
    request = {'service': 'policy', 'tensors': {}} | change
    world.gateways['a'].submit(InferRequest(**request), found.append)
    assert found[0].fate is InferFate.REFUSED and reason in found[0].reason
    world.ask(1)
    world.until(101)
    assert world.ends[1].fate is InferFate.IN_TIME


def test_a_row_that_fails_harms_only_itself():
    world = World()
    for number in range(5):
        world.ask(number, value=255 if number == 3 else number)
    world.until(101)
    assert world.ends.pop(3).reason == 'no answer'
    assert world.fates() == {InferFate.IN_TIME: 4}


def test_frames_leave_in_order_and_newer_ones_replace_waiting_ones():
    world = World(lanes=2)
    order = []
    for frame in range(6):
        def heard(end, frame=frame):
            order.append((frame, end.fate))
        world.gateways['a'].submit(InferRequest(
            'camera', {'image': np.zeros(4, np.uint8)}, stream='front', frame=frame), heard)
    world.until(101)
    assert [frame for frame, _ in order] == list(range(6))
    assert [fate for _, fate in order] == [
        InferFate.IN_TIME, InferFate.IN_TIME, *[InferFate.CANCELLED] * 3, InferFate.IN_TIME]
    world.gateways['a'].submit(InferRequest(
        'camera', {'image': np.zeros(4, np.uint8)}, stream='front', frame=3),
        lambda end: order.append(end.reason))
    assert 'came after frame 5' in order[-1]


def test_a_gateway_that_closes_refuses_what_it_holds():
    world = World()
    for number in range(5):
        world.ask(number)
    world.gateways['a'].close()
    assert world.fates() == {InferFate.REFUSED: 5}


@pytest.mark.parametrize('seed', range(12))
def test_any_sequence_of_faults_leaves_each_request_one_end(seed):
    chance = random.Random(seed)
    world = World('abc', lanes=2, part=chance.choice((0.5, 1.0, 1.3)))
    cancels, number = [], 0
    for _ in range(300):
        world.until(world.now + chance.expovariate(400))
        site = chance.choice('aaabc')
        number += 1
        cancels.append(world.ask(
            number, site, chance.choice(('policy', 'camera')), priority=chance.choice((0, 0, 1)),
            remaining=chance.choice((0.0, 0.015, 0.05, 0.1, 0.3)),
            **chance.choice(({}, {'stream': 's', 'client': site, 'frame': number}))))
        if chance.random() < 0.1:
            chance.choice(cancels)()
        if chance.random() < 0.03 and world.lanes[site]:
            lane = chance.choice(world.lanes[site])
            if not lane.dead:
                lane.kill()
                world.lanes[site].remove(lane)
                world.at(0.02, lambda site=site, lane=lane: world.lanes[site].append(
                    Lane(world, world.gateways[site], lane.number, lane.part)))
        if chance.random() < 0.02:
            a, b = chance.sample('abc', 2)
            way = world.ways[a, b]
            if not way.cut:
                way.cut = True
                world.at(0.01, lambda a=a, b=b: world.gateways[a].unlinked(b))
                again = world.ways[a, b] = Way(world, world.gateways[b])
                world.at(0.05, lambda a=a, b=b, again=again: world.gateways[a].linked(b, again))
    world.until(world.now + 5)
    world.whole(number)


def test_an_answer_that_waits_for_earlier_frames_is_not_delivered_when_its_time_is_over():
    world = World(lanes=2)
    order = []
    world.lanes['a'][0].part = 100.0  # the first frame takes a second
    for frame, remaining in enumerate((5.0, 0.06)):
        world.gateways['a'].submit(InferRequest(
            'policy', {'image': np.zeros((4, 4), np.uint8), 'state': np.zeros(2, np.float32)},
            remaining, stream='s', frame=frame), lambda end: order.append(end))
    world.until(103)
    assert [end.fate for end in order] == [InferFate.IN_TIME, InferFate.LATE]
    assert 'earlier frames' in order[1].reason and not order[1].tensors
    counts = world.gateways['a'].described()['services']['policy']
    assert (counts['in_time'], counts['late'], counts['lost']) == (1, 1, 0)


def test_a_client_with_too_many_requests_hears_of_each(monkeypatch):
    monkeypatch.setattr('intradp_ros.systems.serving.held_requests.PER_CLIENT', 3)
    world = World()
    for frame in range(5):
        world.ask(frame, remaining=1.0, client='r', stream='s', frame=frame)
    world.until(102)
    assert world.fates() == {InferFate.IN_TIME: 3, InferFate.REFUSED: 2}
    world.whole(5)


def test_what_ended_long_before_its_time_leaves_nothing():
    world = World()
    for number in range(500):
        world.ask(number, remaining=3000.0, value=1)
        world.until(world.now + 0.02)
    assert world.fates() == {InferFate.IN_TIME: 500}
    assert len(world.gateways['a']._held._deadlines) <= 64


def test_a_closed_gateway_refuses():
    world = World()
    world.gateways['a'].close()
    world.ask(1)
    assert world.fates() == {InferFate.REFUSED: 1}


@pytest.mark.parametrize('come', (1, 0))
def test_executors_that_leave_end_what_is_seated_and_take_nobody_new(come):
    world = World()
    gateway, gone = world.gateways['a'], []
    for number in range(17):
        world.ask(number, remaining=0.25)
    world.until(world.now + 0.001)
    new = [Lane(world, gateway, 1, joins=False)][:come]
    gateway.changed([Coming(1, lane, lane.opened) for lane in new],
                    {0: lambda: gone.append(world.now)})
    assert not gone
    world.ask(20)
    world.until(102)
    counts = Counter(end.fate for number, end in world.ends.items() if number < 20)
    assert counts == {InferFate.IN_TIME: 17}, 'what was seated'
    assert (world.ends[20].fate is InferFate.IN_TIME) is bool(come), world.ends[20]
    (when,) = gone
    # another takes over half of the batches that wait; alone it computes all four
    assert when == pytest.approx(100.01 + (2 if come else 4) * 0.016)
    assert {e for e, _ in gateway._book.place} == ({1} if come else set())
    assert gateway.described()['executors'] == come
    lane = Lane(world, gateway, 0, joins=False)  # its number may be used again
    gateway.changed([Coming(0, lane, lane.opened)], {1: lambda: None} if come else {})
    world.ask(21)
    world.until(103)
    assert world.ends[21].fate is InferFate.IN_TIME
    world.whole(19)


def test_an_executor_that_dies_while_it_leaves_lets_its_requests_sit_elsewhere():
    world = World()
    gateway, gone = world.gateways['a'], []
    for number in range(9):
        world.ask(number)
    lane = Lane(world, gateway, 1, joins=False)
    gateway.changed([Coming(1, lane, lane.opened)], {0: lambda: gone.append(0)})
    world.lanes['a'][0].kill()
    assert gone
    world.until(102)
    assert world.fates() == {InferFate.IN_TIME: 9}
    world.whole(9)
