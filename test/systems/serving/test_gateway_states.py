# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Two gateways under any order of events: each request one end, in time or not, and nothing is left.

Time, batches and messages move only where a rule moves them, so that answers come late, doubled,
in another order, or of executors and sites that are gone.
"""
from __future__ import annotations

from collections import Counter
import functools
import gc
import itertools
import logging
import weakref

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, rule, RuleBasedStateMachine
import numpy as np
from policy_site import TWO
import pytest
from whole_site import check_whole

from intradp_ros.runtime.requests.infer_requests import InferFate, InferRequest
from intradp_ros.systems.serving import gateway as gateways
from intradp_ros.systems.serving.executor import emulated_answer, Opened
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.held_requests import LONGEST
from intradp_ros.systems.serving.service import parse_services

SERVICES = parse_services(
    TWO + '  hidden: {model: "some:model", deadline: 80 ms, batches: [1, 2]}\n')
#: What the model of the last service turns out to take.
HIDDEN = SERVICES[1]
SITES, LANES, MOST = ('a', 'b'), 2, 6
PICK = st.integers(0, 10**6)


def picked(items, pick):
    return items[pick % len(items)]


def opened(service, sizes, factor=1.0):
    what = HIDDEN if SERVICES[service].name == 'hidden' else SERVICES[service]
    return Opened(what.inputs, what.outputs, sizes,
                  tuple(factor * 0.01 * (1 + 0.2 * b) for b in sizes), (0.0,) * len(sizes))


class Lane:
    """An executor whose batches end when a rule says so."""

    def __init__(self, gateway, number, broken=False, joins=True):
        self.gateway, self.number, self.broken = gateway, number, broken
        self.batches, self.gone, self.leaves = [], False, False
        if joins:
            gateway.joined(number, self)

    def open(self, service, sizes, factor=1.0):
        self.gateway.opened(self.number, service, opened(service, sizes, factor))

    def run(self, number, service, rows):
        if self.broken:
            raise OSError('broken')
        assert not self.batches, 'two batches at once'
        what = HIDDEN if SERVICES[service].name == 'hidden' else SERVICES[service]
        for row in rows:
            assert {name: (t.dtype.name, t.shape) for name, t in row.items()} == {
                s.name: (s.dtype, s.shape) for s in what.inputs}, 'a row that fails its batch'
        self.batches.append(BatchResult(
            number, 0.01, [emulated_answer(what, row) for row in rows],
            ['no answer' if row['image'].max() == 255 else '' for row in rows]))

    def kill(self):
        if not self.gone:
            self.gone = True
            self.gateway.lost(self.number, 'killed', self)

    def close(self):
        self.gone = True


class Way:
    """A link whose messages lie until a rule delivers them."""

    def __init__(self, target, broken=False):
        self.target, self.broken = target, broken
        self.messages = []

    def send(self, request, path, heard):
        if self.broken:
            raise OSError('broken')
        cancels, withdrawn = [], []

        def ask():
            if not withdrawn:
                cancels.append(self.target.forwarded(
                    request, path, lambda end: self.messages.append(lambda: heard(end))))
        self.messages.append(ask)

        def withdraw():
            withdrawn.append(True)
            self.messages.append(lambda: [cancel() for cancel in cancels])
        return withdraw


class GatewayStates(RuleBasedStateMachine):
    """Requests, and all that may happen to them."""

    @initialize()
    def begin(self):
        logging.getLogger(gateways.__name__).disabled = True  # records would keep frames alive
        gc.freeze()
        self.now, self.numbers = 100.0, itertools.count(1)
        self.gateways = {site: gateways.Gateway(
            site, SERVICES, [range(len(SERVICES))] * LANES, SITES, clock=lambda: self.now,
            compiled=False, threaded=False) for site in SITES}
        self.ends, self.cancels, self.inputs = {}, {}, []
        self.asked = Counter()
        self.frames, self.handed = Counter(), {}
        self.lanes = {(site, k): Lane(self.gateways[site], k)
                      for site in SITES for k in range(LANES)}
        for lane in self.lanes.values():
            lane.open(0, (1, 2, 4))
            lane.open(1, (1,))
        self.ways, self.old = {}, []
        for site in SITES:
            self.link(SITES.index(site), False)

    # ---- requests ----

    @rule(site=PICK, service=st.integers(0, 2), value=st.sampled_from((1, 2, 3, 255)),
          remaining=st.sampled_from((0.0, 0.012, 0.03, 0.1, 0.3, 3000.0, float('inf'))),
          priority=st.sampled_from((-1, 0, 0, 1)), client=st.sampled_from('rs'),
          bad=st.sampled_from(('', '', '', 'shape', 'name')), stream=st.booleans(),
          step=st.sampled_from((1, 1, 1, 0)))
    def submit(self, site, service, value, remaining, priority, client, bad, stream, step):
        number, name = next(self.numbers), picked(SITES, site)
        tensors = {'image': np.full((4, 4) if service == 0 else 4, value, np.uint8)}
        if service == 0:
            tensors['state'] = np.zeros(2, np.float32)
        what = SERVICES[0] if service == 0 else HIDDEN
        expected = emulated_answer(what, tensors)
        if bad == 'shape':
            tensors['image'] = np.full(5, value, np.uint8)
        elif bad:
            tensors['other'] = np.zeros(1, np.uint8)
        self.inputs += [weakref.ref(tensor) for tensor in tensors.values()]
        self.asked[name, service] += 1
        more = {}
        if stream:
            self.frames[name, client, service] += step
            more = {'stream': 's', 'frame': self.frames[name, client, service]}
        deadline = self.now + min(SERVICES[service].deadline if remaining == float('inf')
                                  else remaining, LONGEST)
        key = (name, client, service) if stream and step and not bad else None
        if key:
            self.handed.setdefault(key, [])

        def heard(end):
            assert number not in self.ends, 'a second end'
            self.ends[number] = end.fate, end.reason
            if end.fate is InferFate.IN_TIME:
                assert self.now <= deadline + 1e-9, 'an expired answer is delivered'
                assert not bad and value != 255
                assert {k: t.tolist() for k, t in end.tensors.items()} == {
                    k: t.tolist() for k, t in expected.items()}, 'the answer of another'
            else:
                assert not end.tensors and end.reason
            if key and 'in flight' not in end.reason:
                self.handed[key].append(more['frame'])
        self.cancels[number] = self.gateways[name].submit(InferRequest(
            SERVICES[service].name, tensors, remaining, priority, client, **more), heard)

    @rule(pick=PICK)
    def cancel(self, pick):
        if self.cancels:
            picked(list(self.cancels.values()), pick)()

    @rule(site=PICK)
    def disconnect(self, site):
        """Let a client go with all that it has in flight."""
        for cancel in list(self.cancels.values())[site % 2::2]:
            cancel()

    @rule(seconds=st.sampled_from((0.0005, 0.004, 0.011, 0.05, 0.4)), looks=st.booleans())
    def wait(self, seconds, looks):
        self.now += seconds
        if looks:
            for gateway in self.gateways.values():
                gateway.look()

    # ---- executors ----

    @rule(pick=PICK, again=st.booleans())
    def batch_done(self, pick, again):
        lane = picked(list(self.lanes.values()), pick)
        if lane.batches and not lane.gone:
            result = lane.batches.pop()
            lane.gateway.ended(lane.number, result)
            if again:
                lane.gateway.ended(lane.number, result)

    @rule(pick=PICK)
    def die(self, pick):
        lane = picked(list(self.lanes.values()), pick)
        self.old += [(lane, batch) for batch in lane.batches]
        lane.kill()

    @rule(pick=PICK)
    def late_answer(self, pick):
        """Deliver what an executor said before it died, at whatever time."""
        if self.old:
            lane, batch = self.old.pop(pick % len(self.old))
            lane.gateway.ended(lane.number, batch)

    @rule(pick=PICK, services=st.sets(st.integers(0, 2)), broken=st.sampled_from((False,) * 4
                                                                                 + (True,)))
    def take_the_place(self, pick, services, broken):
        """Put another executor in the place of one, which may be at work, with other services."""
        site, number = picked(list(self.lanes), pick)
        old = self.lanes[site, number]
        if old.leaves:
            return
        self.old += [(old, batch) for batch in old.batches]
        old.gone = True
        lane = self.lanes[site, number] = Lane(self.gateways[site], number, broken)
        for service in services:
            lane.open(service, (1,) if service == 1 else (1, 2))

    @rule(pick=PICK, leaving=st.sets(st.integers(0, 3)), broken=st.sampled_from((False,) * 4 + (
        True,)), come=st.lists(st.sets(st.integers(0, 2), min_size=1), max_size=2))
    def switch_plan(self, pick, leaving, broken, come):
        """Go over to other executors; those that leave may be at work, or dead."""
        site = picked(SITES, pick)
        mine = {n: lane for (name, n), lane in self.lanes.items() if name == site}
        leaving = {n for n in leaving if n in mine and not mine[n].leaves}
        if len(mine) + len(come) > 4 or not come and leaving == set(mine):
            return
        coming = []
        for services in come:
            number = next(n for n in range(4) if (site, n) not in self.lanes)
            lane = self.lanes[site, number] = Lane(self.gateways[site], number, broken, False)
            coming.append(gateways.Coming(number, lane, {
                k: opened(k, (1,) if k == 1 else (1, 2)) for k in services}))

        def over(number):
            lane = self.lanes.pop((site, number))
            assert lane.gone or not lane.batches, 'it is at work'
            lane.gone = True
        for number in leaving:
            mine[number].leaves = True
        self.gateways[site].changed(coming, {n: functools.partial(over, n) for n in leaving})

    @rule(pick=PICK, service=st.integers(0, 2), factor=st.sampled_from((0.5, 1.0, 3.0)),
          sizes=st.sampled_from(((1,), (1, 2), (1, 2, 4))))
    def open_anew(self, pick, service, factor, sizes):
        lane = picked(list(self.lanes.values()), pick)
        if not lane.gone and not lane.leaves:
            lane.open(service, (1,) if service == 1 else sizes[:2] if service == 2 else sizes,
                      factor)

    @rule(pick=PICK, service=st.integers(0, 2))
    def fail_to_open(self, pick, service):
        lane = picked(list(self.lanes.values()), pick)
        lane.gateway.failed(lane.number, service, 'no such model')

    # ---- the other site ----

    @rule(pick=PICK, at=PICK, again=st.booleans())
    def deliver(self, pick, at, again):
        messages = picked(list(self.ways.values()), pick).messages
        if messages:
            message = messages.pop(at % min(3, len(messages)))
            message()

    @rule(pick=PICK)
    def hear_rows(self, pick):
        a, b = (SITES, SITES[::-1])[pick % 2]
        self.gateways[a].heard_row(b, self.gateways[b].row(), 0.002)

    @rule(pick=PICK)
    def unlink(self, pick):
        a, b = (SITES, SITES[::-1])[pick % 2]
        self.gateways[a].unlinked(b)

    @rule(pick=PICK, broken=st.sampled_from((False, False, True)))
    def link(self, pick, broken):
        a, b = (SITES, SITES[::-1])[pick % 2]
        way = Way(self.gateways[b], broken)
        if (a, b) in self.ways:
            self.gateways[a].unlinked(b)
            way.messages = self.ways[a, b].messages
        self.ways[a, b] = way
        self.gateways[a].linked(b, way)
        self.gateways[a].heard_row(b, self.gateways[b].row(), 0.002)

    # ---- what holds at any time ----

    @invariant()
    def fates_sum_to_requests(self):
        if not hasattr(self, 'gateways'):
            return
        for site, gateway in self.gateways.items():
            check_whole(gateway._arrays)
            for k, service in enumerate(gateway.described()['services'].values()):
                assert service['lost'] == 0
                assert service['asked'] == self.asked[site, k]
            kept = gateway._held
            assert all(held.row == row and not held.over and kept.all[held.serial] is held
                       for row, held in kept.rows.items())
            assert sum(kept._clients.values()) == len(kept.all)
            assert gateway._outbox.idle
            for number in (n for n, lane in gateway._lanes.items() if lane.over):
                assert self.lanes[site, number].leaves
                assert gateway._arrays.running[number] >= 0 or gateway._arrays.slotted[number]
            assert {e for e, _ in gateway._book.place} == {
                n for name, n in self.lanes if name == site}, 'numbers leak'
            assert len(kept._deadlines) <= 2 * len(kept.all) + 64
        for frames in self.handed.values():
            assert frames == sorted(frames), 'frames out of order'

    def teardown(self):
        try:
            if hasattr(self, 'gateways'):
                self.nothing_is_left()
        finally:
            logging.getLogger(gateways.__name__).disabled = False
            gc.unfreeze()

    def nothing_is_left(self):
        self.now += LONGEST + 1
        for gateway in self.gateways.values():
            gateway.look()
        assert len(self.ends) == sum(self.asked.values()), 'a request without an end'
        while any(way.messages for way in self.ways.values()):
            for way in self.ways.values():
                while way.messages:
                    way.messages.pop(0)()
            self.now += LONGEST + 1
            for gateway in self.gateways.values():
                gateway.look()
        for lane in list(self.lanes.values()):
            if lane.batches and not lane.gone:
                lane.gateway.ended(lane.number, lane.batches.pop())
        for gateway in self.gateways.values():
            held = gateway._held
            assert not any((held.all, held.rows, held._clients, held._deadlines))
            assert not any(lane.batch or lane.over for lane in gateway._lanes.values())
            assert not gateway._arrays.state.any()
            assert all(stream.idle for stream in held._streams.values())
        counted = Counter()
        for gateway in self.gateways.values():
            for service in gateway.described()['services'].values():
                counted += Counter({fate: service[fate.value] for fate in InferFate})
        assert counted == Counter(fate for fate, _ in self.ends.values())
        self.cancels.clear()
        self.old.clear()
        gc.collect()
        assert not any(tensor() is not None for tensor in self.inputs), 'tensors are still held'
        self.next_is_unharmed()

    def next_is_unharmed(self):
        site = SITES[0]
        numbers = {n for name, n in self.lanes if name == site}
        self.switch_plan(0, set(list(numbers)[1:]), False, [])  # room for one
        self.switch_plan(0, set(), False, [{0}])
        self.submit(0, 0, 2, 0.1, 0, 'r', '', True, 1)
        self.now += 0.01
        for other in list(self.lanes.values()):
            if other.batches and not other.gone:
                other.gateway.ended(other.number, other.batches.pop())
        fate, reason = self.ends[max(self.ends)]
        assert fate is InferFate.IN_TIME, reason


QUICK = settings(max_examples=60, stateful_step_count=40, deadline=None,
                 phases=(Phase.explicit, Phase.reuse, Phase.generate),
                 suppress_health_check=list(HealthCheck))
GatewayStates.TestCase.settings = QUICK
test_any_order = GatewayStates.TestCase


@pytest.mark.slow
def test_any_order_at_length():
    from hypothesis.stateful import run_state_machine_as_test
    run_state_machine_as_test(GatewayStates, settings=settings(
        QUICK, max_examples=1500, stateful_step_count=80))
