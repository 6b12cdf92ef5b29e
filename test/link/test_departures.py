# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whose chunk leaves next: the most urgent with room, and nobody is held up by a slow peer."""
from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from intradp_ros.link.departures import Departure, next_departure, URGENT_WEIGHT

departures = st.lists(st.builds(
    Departure, st.integers(0, 5), st.floats(-9, 9), st.integers(1, 30), st.integers(0, 99),
    st.integers(0, 99), st.integers(0, 9), st.booleans(), st.booleans()),
    max_size=6, unique_by=lambda d: d.peer)


def in_flight(waiting: list[Departure]) -> int:
    return sum(d.in_flight for d in waiting)


def test_the_most_urgent_leaves_first_and_equals_take_turns() -> None:
    late, soon = Departure(0, 2.0, 10, 0, 100), Departure(1, 1.0, 10, 0, 100)
    assert next_departure([late, soon], 0) is soon
    again = Departure(1, 2.0, 10, 0, 100, launched=3)
    assert next_departure([again, late], 0) is late


def test_all_peers_together_have_one_reserve() -> None:
    """Two windows that are half full leave no room; either alone may fill its own."""
    both = [Departure(k, 0.0, 10, 50, 100) for k in range(2)]
    assert next_departure(both, 100) is None
    assert next_departure(both[:1], 50) is both[0]


def test_who_is_less_urgent_waits_while_the_air_is_full_of_the_urgent() -> None:
    """Else both would fill halves of the air's queue, and share the air equally."""
    full = Departure(0, 0.0, 10, 100, 100, fits=False)
    for in_flight_here in (0, 10, 40):
        for limit in (100, 300):  # a window is measured, and may be too large
            assert next_departure([full, Departure(1, 9.0, 10, in_flight_here, limit)],
                                  100 + in_flight_here) is None


def test_a_slow_peer_holds_up_nobody() -> None:
    """Its window is small, so that a fast one has most of its own; one that stopped is nothing."""
    slow, fast = Departure(0, 0.0, 10, 10, 10, fits=False), Departure(1, 9.0, 10, 40, 100)
    assert next_departure([slow, fast], 50) is fast
    large = replace(slow, in_flight=1000, limit=1000)
    assert next_departure([large, fast], 1040) is None
    assert next_departure([replace(large, moves=False), fast], 40) is fast
    assert next_departure([replace(large, air='cable'), fast], 1040) is fast


@given(departures)
def test_the_most_urgent_is_never_made_to_wait_by_others(waiting: list[Departure]) -> None:
    """Half of its own window is always its own."""
    first = min(waiting, key=lambda d: d.urgency, default=None)
    if first and first.fits and (first.in_flight == 0
                                 or 2 * (first.in_flight + first.nbytes) <= first.limit):
        found = next_departure(waiting, in_flight(waiting))
        assert found and found.urgency == first.urgency


@given(departures)
def test_what_leaves_fits_its_window_and_goes_before_nothing_urgent(waiting: list[Departure],
                                                                    ) -> None:
    found = next_departure(waiting, in_flight(waiting))
    if found:
        assert found.fits
        ahead = [d for d in waiting if d.urgency < found.urgency and d.moves and d.in_flight]
        assert not ahead or found.in_flight + found.nbytes + URGENT_WEIGHT * sum(
            d.in_flight for d in ahead) <= found.limit
