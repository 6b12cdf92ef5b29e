# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How far false claims take terms: years away from the top, however many they are."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.cluster.fleet_messages import Claim
from intradp_ros.cluster.terms import BURST, FREE, MAX_TERM, OWN_BITS, RATE, TermLimit
from intradp_ros.wire.frames import MalformedFrameError

OWN = (1 << OWN_BITS) - 1


def believes(limit: TermLimit, rounds: int, known: int, now: float) -> bool:
    try:
        limit.check(Claim('candidate', 0, rounds << OWN_BITS | OWN), known, now)
    except MalformedFrameError as error:
        assert error.cause == 'term'
        return False
    return True


def highest(limit: TermLimit, known: int, now: float) -> int:
    """Return the highest round of a claim that is believed, and let it be."""
    low, high = 0, MAX_TERM >> OWN_BITS
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if believes(limit, middle, known, now) else (low, middle)
    return low


@given(st.lists(st.tuples(st.floats(0, 1e4), st.floats(0, 1)), min_size=1, max_size=60))
@settings(max_examples=60)
def test_claims_take_terms_no_further_than_time_allows(claims: list[tuple[float, float]]) -> None:
    """Each as high as is believed, or a part of it; in any order of waiting."""
    limit, known, now = TermLimit(1000.0), 0, 1000.0
    for seconds, share in claims:
        now += seconds
        top = highest(limit, known, now)
        assert top <= FREE + BURST + RATE * (now - 1000.0)
        rounds = max(known >> OWN_BITS, int(FREE + share * (top - FREE)))
        known = max(known, rounds << OWN_BITS | OWN)
        assert believes(limit, known >> OWN_BITS, known, now)  # who has it goes on


def test_claims_without_end_leave_years_of_elections() -> None:
    limit, known, now = TermLimit(0.0), 0, 0.0
    for _ in range(500):
        now += 0.01
        known = highest(limit, known, now) << OWN_BITS | OWN
    left = (MAX_TERM >> OWN_BITS) - (known >> OWN_BITS)
    assert left / RATE > 365 * 86400
    assert not believes(limit, (known >> OWN_BITS) + 2, known, now)
    assert believes(limit, (known >> OWN_BITS) + 1, known, now + 2 / RATE)  # an election is


@pytest.mark.parametrize('rounds', [0, 1, FREE // 2, FREE])
def test_terms_that_fleets_reach_cost_nothing(rounds: int) -> None:
    limit = TermLimit(0.0)
    assert believes(limit, rounds, 0, 0.0)
    assert believes(limit, FREE + BURST, rounds << OWN_BITS, 0.0)
    assert not believes(limit, FREE + BURST + 1, rounds << OWN_BITS, 0.0)
