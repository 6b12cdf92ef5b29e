# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which requests are taken, in which order they are served, and that each ends exactly once."""
from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
import pytest

from intradp_ros.runtime.requests.admission import (
    Admission,
    AdmissionLimits,
    ClientRates,
    Ending,
    Fate,
    finish_times,
    Ticket,
)


def the(endings: list[Ending]) -> Ending:
    [ending] = endings
    return ending


def test_served_by_priority_then_deadline_then_arrival() -> None:
    desk = Admission(AdmissionLimits(lanes=1))
    tickets = [desk.ask(0.0, 'a', 1.0, remaining, priority)
               for remaining, priority in ((50, 0), (20, 0), (40, 1), (50, 0), (30, 1))]
    order = []
    while (ticket := desk.begin(0.0)):
        order.append(tickets.index(ticket))
        desk.end(ticket.number, 0.0, Fate.DONE)
    assert order == [4, 2, 1, 0, 3]


def test_what_would_be_late_is_refused_at_once_with_the_reason() -> None:
    desk = Admission(AdmissionLimits(lanes=2))
    for _ in range(4):
        desk.ask(0.0, 'a', 1.0)
    desk.begin(0.0), desk.begin(0.0)
    desk.ask(0.5, 'b', 1.0, remaining=2.0)  # by deadline before the two that wait
    assert not desk.endings()
    desk.ask(0.5, 'b', 1.0, remaining=1.4)
    ending = the(desk.endings())
    assert ending.fate is Fate.REFUSED
    assert ending.reason == ('would be late: 500 ms until it begins and 1000 ms of work, 1400 ms '
                             'are allowed')
    desk = Admission(AdmissionLimits(lanes=1))
    desk.ask(0.2, 'a', 0.5, remaining=0.2)  # 0.2 + 0.5 - 0.2 is less than 0.5
    assert the(desk.endings()).reason.startswith('would be late: 0 ms until')


def test_one_that_would_make_an_admitted_one_late_is_refused_unless_it_is_more_urgent() -> None:
    desk = Admission(AdmissionLimits(lanes=1))
    first = desk.ask(0.0, 'a', 1.0, remaining=1.5)
    desk.ask(0.0, 'b', 1.0, remaining=1.2)
    assert 'taken before' in the(desk.endings()).reason
    urgent = desk.ask(0.0, 'b', 1.0, remaining=1.2, priority=1)
    ending = the(desk.endings())
    assert ending.ticket == first and 'displaced' in ending.reason
    assert desk.begin(0.0) == urgent


def test_a_full_queue_takes_only_what_is_more_urgent() -> None:
    desk = Admission(AdmissionLimits(lanes=1, waiting=2, per_client=9))
    kept, last = desk.ask(0.0, 'a', 1.0), desk.ask(0.0, 'a', 1.0)
    desk.ask(0.0, 'a', 1.0)
    assert 'full' in the(desk.endings()).reason
    desk.ask(0.0, 'a', 1.0, priority=3)
    assert the(desk.endings()).ticket == last
    assert desk.waiting == 2 and kept.number != last.number


def test_one_client_cannot_take_all() -> None:
    desk = Admission(AdmissionLimits(per_client=2))
    for _ in range(3):
        desk.ask(0.0, 'greedy', 1.0)
    assert 'of this client' in the(desk.endings()).reason
    desk.ask(0.0, 'other', 1.0)
    assert not desk.endings() and desk.waiting == 3


def test_late_ones_end_and_free_their_lane() -> None:
    desk = Admission(AdmissionLimits(lanes=1))
    slow = desk.ask(0.0, 'a', 1.0, remaining=2.0)
    assert desk.begin(0.0) == slow
    desk.progress(slow.number, 1.0, 5.0)
    other = desk.ask(1.0, 'a', 1.0, remaining=10.0)
    assert desk.begin(1.5) is None
    assert desk.begin(2.0) == other
    assert (the(desk.endings()).ticket, desk.counts()[Fate.LATE]) == (slow, 1)
    assert not desk.end(slow.number, 3.0, Fate.DONE)


@pytest.mark.parametrize('seconds, remaining', [(-1.0, 1.0), (math.nan, 1.0), (1.0, math.nan)])
def test_nonsense_is_refused(seconds: float, remaining: float) -> None:
    with pytest.raises(ValueError, match='negative'):
        Admission().ask(0.0, 'a', seconds, remaining)


EVENTS = st.lists(st.tuples(
    st.sampled_from(['ask', 'begin', 'done', 'cancel', 'pass']), st.integers(0, 2),
    st.floats(0.0, 3.0), st.one_of(st.floats(0.0, 9.0), st.just(math.inf)), st.integers(-1, 1)),
    max_size=60)


@given(EVENTS, st.integers(1, 3), st.integers(1, 4), st.integers(1, 5))
def test_each_request_ends_once_and_what_was_taken_is_in_time_if_work_is_as_predicted(
        events: list[tuple[str, int, float, float, int]], lanes: int, waiting: int,
        per_client: int) -> None:
    desk = Admission(AdmissionLimits(lanes, waiting, per_client))
    now, asked, running, ends = 0.0, 0, dict[int, float](), list[Ending]()
    for what, client, seconds, remaining, priority in events:
        # lanes work exactly as predicted: what is over by now has ended then
        for number, end in sorted(running.items(), key=lambda item: item[1]):
            if end <= now:
                desk.end(number, end, Fate.DONE)
                del running[number]
        if what == 'ask':
            asked += 1
            desk.ask(now, str(client), seconds, remaining, priority)
        elif what == 'cancel' and asked:
            number = client % asked + 1
            if desk.end(number, now, Fate.CANCELLED):
                running.pop(number, None)
        elif what == 'pass':
            now += seconds
        while (ticket := desk.begin(now)):
            running[ticket.number] = now + ticket.seconds
        ends += desk.endings()
        assert desk.serving <= lanes and desk.waiting <= waiting
    assert len({end.ticket.number for end in ends}) == len(ends)
    assert len(ends) + desk.waiting + desk.serving == asked == sum(desk.counts().values()) \
        + desk.waiting + desk.serving
    for ending in ends:
        if ending.fate is Fate.DONE:
            assert ending.time <= ending.ticket.deadline
        if ending.fate in (Fate.REFUSED, Fate.LATE):
            assert ending.reason


@given(st.lists(st.floats(0.0, 5.0), max_size=8), st.lists(st.floats(0.0, 5.0), max_size=3),
       st.integers(1, 3))
def test_finish_times_are_those_of_lanes_that_take_the_next(work: list[float],
                                                            free_at: list[float],
                                                            lanes: int) -> None:
    busy = free_at[:lanes]
    tickets = [Ticket(n, '', 0, 0.0, math.inf, seconds) for n, seconds in enumerate(work)]
    free = busy + [0.0] * (lanes - len(busy))
    expected = {}
    for ticket in tickets:
        lane = free.index(min(free))
        free[lane] += ticket.seconds
        expected[ticket.number] = free[lane]
    assert finish_times(tickets, busy, lanes, 0.0) == pytest.approx(expected)


def test_rates_are_by_client_and_inventing_names_gains_nothing() -> None:
    rates = ClientRates(rate=1.0, burst=2, clients=3)
    assert [rates.wait('a', 0.0) for _ in range(3)] == [0.0, 0.0, 1.0]
    assert rates.wait('a', 1.0) == 0.0
    served = sum(not rates.wait(f'invented {n}', 1.0) for n in range(1000))
    assert served <= 3 * 2
    assert len(rates._buckets) <= 4
