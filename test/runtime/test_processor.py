# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Turns on a processor: fair by seconds, the oldest inference first, and the reported load."""
from __future__ import annotations

from collections import Counter
from collections.abc import Hashable
import heapq
import threading
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.runtime.execution.load_meter import LoadMeter
from intradp_ros.runtime.execution.processor import Processor
from intradp_ros.runtime.execution.turn_order import TurnOrder, TurnRequest

LONGEST = 0.05


def played(order: TurnOrder, operators: dict[TurnRequest, list[float]], until: float,
           ) -> tuple[Counter[Hashable], float]:
    """
    Let claims compute, over and over, operators of so many seconds.

    Returns the seconds that each party had by `until`, and the longest that
    a turn was waited for.
    """
    had, longest, asked, at = Counter[Hashable](), 0.0, dict.fromkeys(operators, 0.0), 0.0
    ends: list[tuple[float, int, TurnRequest]] = []
    position = dict.fromkeys(operators, 0)
    for claim in operators:
        order.ask(claim, at)
    while at < until:
        while claim := order.grant(at):
            longest = max(longest, at - asked[claim])
            heapq.heappush(ends, (at + _next(operators, position, claim), id(claim), claim))
        at, _, claim = heapq.heappop(ends)
        had[claim.party] += operators[claim][position[claim] - 1]
        if order.may_go_on(claim, at):
            heapq.heappush(ends, (at + _next(operators, position, claim), id(claim), claim))
        else:
            order.end(claim, at, again=True)
            asked[claim] = at
    return had, longest


def _next(operators: dict[TurnRequest, list[float]], position: dict[TurnRequest, int],
          claim: TurnRequest) -> float:
    turn = position[claim] = position[claim] % len(operators[claim]) + 1
    return operators[claim][turn - 1]


seconds = st.lists(st.floats(1e-3, LONGEST), min_size=1, max_size=9)


@settings(max_examples=60)
@given(st.lists(seconds, min_size=2, max_size=6))
def test_every_party_gets_its_part(parties: list[list[float]]) -> None:
    """However long their operators are, by more than one or two nobody falls behind."""
    order = TurnOrder()
    had, longest = played(order, {TurnRequest(n, 1): found for n, found in enumerate(parties)},
                          2.0)
    assert max(had.values()) - min(had.values()) <= 2 * (LONGEST + order.quantum)
    assert longest <= 2 * len(parties) * (LONGEST + order.quantum)


def test_who_was_away_is_owed_nothing() -> None:
    """A party that comes back after a while does not keep the processor for that long."""
    order = TurnOrder()
    played(order, {TurnRequest('a', 1): [0.01]}, 1.0)
    order.ask(TurnRequest('b', 1), 2.0)
    turns = []
    for at in range(10):
        now = 2.0 + 0.01 * at
        for claim in list(order._turns):
            order.end(claim, now, again=True)
        granted = order.grant(now)
        assert granted
        turns.append(granted.party)
    assert 4 <= turns.count('b') <= 6


def test_the_oldest_inference_of_a_party_goes_first() -> None:
    """It takes over at the next operator, and keeps its turn from younger ones."""
    order = TurnOrder()
    order.ask(TurnRequest('a', 2), 0.0)
    assert order.grant(0.0) == TurnRequest('a', 2)
    order.ask(TurnRequest('a', 3), 0.0)
    assert order.may_go_on(TurnRequest('a', 2), 1.0)
    order.ask(TurnRequest('a', 1), 0.0)
    assert not order.may_go_on(TurnRequest('a', 2), 0.0)
    order.end(TurnRequest('a', 2), 0.0, again=True)
    assert order.grant(0.0) == TurnRequest('a', 1)


def test_lanes_are_used() -> None:
    """Two cores compute for two parties at a time, and never for three."""
    order = TurnOrder(2)
    for party in 'abc':
        order.ask(TurnRequest(party, 1), 0.0)
    assert [order.grant(0.0), order.grant(0.0), order.grant(0.0)] == [
        TurnRequest('a', 1), TurnRequest('b', 1), None]
    with pytest.raises(ValueError, match='got 0'):
        TurnOrder(0)


def test_the_load_is_what_others_want() -> None:
    """One wants a quarter of the time, one all of it; the longer ago, the less it counts."""
    meter, now = LoadMeter(memory=2.0), 0.0
    meter.wants('b', True, now)
    for _ in range(400):
        meter.wants('a', True, now)
        meter.wants('a', False, now + 0.01)
        now += 0.04
    assert meter.load(now, without='b') == pytest.approx(0.25, rel=0.02)
    assert meter.factor('a', now) == pytest.approx(2.0, rel=0.001)
    assert meter.factor('b', now) == pytest.approx(1.25, rel=0.005)
    assert meter.factor('new', now) == pytest.approx(2.25, rel=0.005)
    assert meter.factor('b', now + 20.0) == pytest.approx(1.0, abs=0.001)
    meter.forget('b')
    assert meter.factor('a', now) == 1.0


def test_free_cores_are_no_load() -> None:
    """Four who compute on two cores take twice as long, two take no longer."""
    meter = LoadMeter(lanes=2)
    for party in 'abcd':
        meter.wants(party, True, 0.0)
        assert meter.factor(party, 100.0) == pytest.approx(max(1.0, 'abcd'.index(party) / 2 + .5))


def test_threads_take_turns() -> None:
    """One operator at a time; each party that comes gets as many; nothing is left behind."""
    processor, computing, had = Processor(), threading.Lock(), Counter[str]()
    end = time.monotonic() + 1.0

    def compute(party: str) -> None:
        while time.monotonic() < end:
            turns = processor.turns(party)
            for _ in range(10):
                turns.take()
                assert computing.acquire(blocking=False)
                time.sleep(0.003)
                had[party] += 1
                computing.release()
            turns.rest()

    threads = [threading.Thread(target=compute, args=(party,)) for party in 'abc']
    for thread in threads:
        thread.start()
    time.sleep(0.7)
    assert processor.factor('new') > 1.5
    for thread in threads:
        thread.join()
    assert sum(had.values()) > 50
    assert min(had.values()) > 0.6 * max(had.values())
    for party in 'abc':
        processor.forget(party)
    assert processor.load == 0.0 and processor.factor('a') == 1.0
