# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a link may do next is what it did before when it was as fast as now, and no more."""
from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_ros.link.outlook import LinkPast, Outlook

SECONDS = 0.2
measured = st.lists(st.tuples(st.floats(1e-3, 3.0), st.floats(1.0, 1e9)), min_size=1, max_size=80)


def past_of(rates: list[float], step: float = 0.1) -> tuple[LinkPast, float]:
    """Return what is remembered of rates at regular times from zero, and the time of the last."""
    past = LinkPast()
    for index, rate in enumerate(rates):
        past.update(rate, index * step)
    return past, (len(rates) - 1) * step


def outlook_of(past: LinkPast, now: float, expected: float = 1e6) -> Outlook:
    found = past.outlook(now, SECONDS, expected)
    assert found is not None
    return found


@settings(max_examples=100)
@given(rates=measured, later=st.floats(0.0, 100.0), seconds=st.floats(1e-3, 10.0))
def test_it_is_a_distribution_of_rates_that_were_seen(
        rates: list[tuple[float, float]], later: float, seconds: float) -> None:
    past, now = LinkPast(), 0.0
    for step, rate in rates:
        now += step
        past.update(rate, now)
    found = past.outlook(now + later, seconds, rates[-1][1])
    assert found is not None
    assert len(found.rates) == len(found.weights)
    assert found.weights.min() >= 0 and found.weights.sum() == pytest.approx(1.0)
    seen = [rate for _, rate in rates]
    assert min(seen) * 0.7 <= found.rates.min() and found.rates.max() <= max(seen) * 1.5


def test_nothing_is_known_before_the_first_measurement() -> None:
    past = LinkPast()
    for rate in (0.0, -1.0, math.nan, math.inf):
        past.update(rate, 1.0)
    past.update(1e6, math.nan)
    assert past.outlook(2.0, SECONDS, 1e6) is None


def test_little_is_thought_to_be_around_what_is_expected() -> None:
    past, now = past_of([1e6])
    found = outlook_of(past, now, expected=3e6)
    assert found.quantile(0.5) == pytest.approx(3e6)
    assert np.log(found.rates).std() < 0.3


def test_a_steady_link_stays_what_it_is() -> None:
    past, now = past_of([5e6] * 100)
    found = outlook_of(past, now, expected=5e6)
    assert found.weights[np.abs(found.rates / 5e6 - 1) < 0.01].sum() > 0.9


def test_what_followed_on_similar_rates_is_expected() -> None:
    """A link that collapses after each time at 8, and never else, differs from one that stays."""
    cycle = [2e6] * 8 + [8e6] + [1e5] * 3
    past, now = past_of(cycle * 10 + [2e6] * 8)
    quiet = outlook_of(past, now, expected=2e6)
    assert quiet.weights[quiet.rates < 2e5].sum() < 0.1
    past.update(8e6, now + 0.1)
    before_it_breaks_in = outlook_of(past, now + 0.1, expected=8e6)
    assert before_it_breaks_in.weights[before_it_breaks_in.rates < 2e5].sum() > 0.2


def test_what_follows_is_what_is_carried_over_the_time_asked_for() -> None:
    """Half a second at 4 and half a second at 1 are 2.5 over any full second."""
    past, now = past_of(([4e6] * 5 + [1e6] * 5) * 6)
    second = past.outlook(now, 1.0, 2.5e6)
    assert second is not None
    assert second.quantile(0.5) == pytest.approx(2.5e6, rel=0.01)


def test_the_older_the_newest_measurement_the_later_what_is_asked_for() -> None:
    past, now = past_of(([1e6] * 2 + [9e6] * 2) * 20)  # the second 9 is the newest
    soon, later = (outlook_of(past, now + age, 5e6) for age in (0.0, 0.2))
    assert soon.quantile(0.5) < later.quantile(0.5)


def test_the_past_ends() -> None:
    past, now = past_of([1e5, 9e6] * 50 + [1e6] * 700)
    found = outlook_of(past, now)
    assert found.rates.min() > 5e5 and found.rates.max() < 2e6


@settings(max_examples=20)
@given(step=st.floats(1e-4, 0.05), rate=st.floats(1e5, 1e7))
def test_memory_is_bounded_and_what_was_carried_counts(step: float, rate: float) -> None:
    """However fast measurements come: of 5000, those since the last minute are kept as 600."""
    past, now = past_of([rate, 3 * rate] * 2500, step)
    kept = past._kept.nbytes
    assert kept < 50_000
    found = past.outlook(now, 20 * step, 2 * rate)
    assert found is not None
    assert found.weights @ found.rates == pytest.approx(2 * rate, rel=0.25)


@pytest.mark.parametrize('step', [0.03125, 0.04, 0.1, 0.3])
def test_no_rate_follows_that_was_not_there(step: float) -> None:
    """Not where moments are moved to the front either, once a minute or less often."""
    past = past_of([], step)[0]
    for index in range(4000):
        past.update(1e5 if index % 2 else 3e5, index * step)
        if index > 100 and index % 10 == 0:
            found = past.outlook(index * step, 5 * step, 2e5)
            assert found is not None and found.rates.max() < 6e5 and found.rates.min() > 5e4


@settings(max_examples=50)
@given(times=st.lists(st.floats(-10.0, 10.0), min_size=2, max_size=20))
def test_a_clock_that_jitters_does_no_harm(times: list[float]) -> None:
    past = LinkPast()
    for now in times:
        past.update(1e6, now)
    found = outlook_of(past, max(times))
    assert np.isfinite(found.rates).all() and found.weights.sum() == pytest.approx(1.0)


@pytest.mark.parametrize('part, rate', [(0.0, 1.0), (0.2, 1.0), (0.21, 2.0), (0.7, 2.0),
                                        (0.71, 5.0), (1.0, 5.0)])
def test_quantiles(part: float, rate: float) -> None:
    outlook = Outlook(np.array([5.0, 1.0, 2.0]), np.array([0.3, 0.2, 0.5]))
    assert outlook.quantile(part) == rate
