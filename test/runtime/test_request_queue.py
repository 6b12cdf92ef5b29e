# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.runtime.pipeline.request_queue import RequestQueue, State

EVENTS = st.lists(st.tuples(st.sampled_from(['ask', 'hurry', 'begin', 'answer', 'late']),
                            st.integers(0, 9)), max_size=80)


@settings(max_examples=300)
@given(EVENTS, st.integers(1, 4), st.integers(1, 5))
def test_every_request_is_answered_once_and_in_order(
        events: list[tuple[str, int]], inflight: int, waiting: int) -> None:
    queue, now, reported, asked = RequestQueue(inflight, waiting), 0.0, [], 0
    begun: list[int] = []
    for kind, pick in events:
        now += 0.1 * pick
        if kind in ('ask', 'hurry'):
            asked += 1
            assert queue.ask(now, 0.5 if kind == 'hurry' else 1e9).number == asked
        elif kind == 'begin':
            if request := queue.begin(now):
                assert not request.late(now)
                begun.append(request.number)
        elif kind == 'answer' and queue.those(State.INFLIGHT):
            flying = queue.those(State.INFLIGHT)
            number = flying[pick % len(flying)].number
            assert queue.answer(number) and not queue.answer(number)
        elif kind == 'late':
            for request in queue.late(now):
                queue.answer(request.number, 'late')
        reported += [r.number for r in queue.deliver()]
        counts = queue.counts()
        assert counts['waiting'] <= waiting and counts['in flight'] <= inflight
    assert begun == sorted(begun)
    while request := queue.begin(now) or next(iter(queue.those(State.INFLIGHT)), None):
        queue.answer(request.number)
    reported += [r.number for r in queue.deliver()]
    assert reported == list(range(1, asked + 1))


def test_the_late_make_room_before_the_oldest() -> None:
    queue = RequestQueue(1, 2)
    first = queue.ask(0.0)
    assert queue.begin(0.0) is first
    old, hurried = queue.ask(0.0), queue.ask(0.0, 1.0)
    queue.ask(2.0)
    assert (old.state, hurried.state) == (State.WAITING, State.ANSWERED)
    assert hurried.reason == 'late: 2000 ms before it began, allowed are 1000 ms'
    queue.ask(2.0)
    assert old.reason == 'dropped: 2 newer ones wait'


def test_limits_that_let_nothing_through_are_refused() -> None:
    with pytest.raises(ValueError, match='at least 1'):
        RequestQueue(0, 1)
