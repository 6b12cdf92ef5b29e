# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Properties of the rate predictors."""
from __future__ import annotations

from collections.abc import Callable
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.link.predictor import (
    CautiousQuantile,
    Ewma,
    LastValue,
    make_predictor,
    PREDICTORS,
    RatePredictor,
)

RATES = st.lists(st.floats(1e3, 1e9), min_size=1, max_size=30)
every_predictor = pytest.mark.parametrize('name', PREDICTORS)


def fed(predictor: RatePredictor, rates: list[float], step: float = 0.1) -> float:
    """Give a predictor rates at regular times from zero; return the time of the last."""
    for index, rate in enumerate(rates):
        predictor.update(rate, index * step)
    return (len(rates) - 1) * step


@every_predictor
@settings(max_examples=60)
@given(rates=RATES, later=st.floats(0, 1000))
def test_within_what_was_seen(name: str, rates: list[float], later: float) -> None:
    """A prediction lies between the lowest and the highest rate seen, however stale."""
    predictor = make_predictor(name)
    now = fed(predictor, rates)
    low, high = min(rates) * (1 - 1e-9), max(rates) * (1 + 1e-9)
    assert low <= predictor.predict(now + later) <= high


@every_predictor
def test_constant_rates_are_predicted(name: str) -> None:
    """Any predictor gets a constant link right."""
    predictor = make_predictor(name)
    now = fed(predictor, [5e6] * 20)
    assert predictor.predict(now) == pytest.approx(5e6)


@every_predictor
@pytest.mark.parametrize('rate', [0.0, -1.0, float('nan'), float('inf')])
def test_unknown_until_the_first_measurement(name: str, rate: float) -> None:
    """What is not a rate is not a measurement."""
    predictor = make_predictor(name)
    assert predictor.predict(0.0) == 0.0
    predictor.update(rate, 0.0)
    assert predictor.predict(1.0) == 0.0


@every_predictor
def test_stale_predictions_become_cautious_but_not_zero(name: str) -> None:
    """Without news the prediction falls to the lowest rate remembered, and stays."""
    predictor = make_predictor(name)
    now = fed(predictor, [3e6] + [9e6] * 10)
    path = [predictor.predict(now + wait) for wait in (0.0, 2.0, 3.0, 5.0, 60.0)]
    assert path[0] == path[1] > path[2] > path[3] > path[4]
    assert path[4] == pytest.approx(3e6, rel=1e-3)


@every_predictor
def test_recovers_after_a_change(name: str) -> None:
    """Five seconds after a step, every predictor is within 5 % of the new rate."""
    for before, after in ((2e6, 8e6), (8e6, 2e6)):
        predictor = make_predictor(name)
        now = fed(predictor, [before] * 20 + [after] * 50)
        assert predictor.predict(now) == pytest.approx(after, rel=0.05)


def test_each_weighs_in_its_own_way() -> None:
    """The last, the mean, and the lower end of a saw-tooth differ as they should."""
    rates = [4e6, 6e6] * 10
    last, mean, low = LastValue(), Ewma(half_life=1.0), CautiousQuantile(0.25, span=2.0)
    now = [fed(predictor, rates) for predictor in (last, mean, low)][0]
    assert last.predict(now) == 6e6
    assert mean.predict(now) == pytest.approx(5e6, rel=0.05)
    assert low.predict(now) == 4e6


def test_a_mean_forgets_half_in_its_half_life() -> None:
    mean = Ewma(half_life=0.5)
    for rate, when in ((8e6, 1.0), (4e6, 1.5), (12e6, 2.5), (12e6, 2.5), (0.0, 9.0)):
        mean.update(rate, when)
    # 8, then (8 + 4) / 2 = 6, then 6/4 + 12 * 3/4 = 10.5; one at the same time counts a tenth.
    assert mean.predict(2.5) == pytest.approx(0.9 * 10.5e6 + 0.1 * 12e6)


def test_a_quantile_is_cautious_with_rare_measurements_too() -> None:
    """At least three measurements count, however far apart."""
    predictor = CautiousQuantile()
    now = fed(predictor, [9e6, 2e6, 7e6], step=1.0)
    assert predictor.predict(now) == 2e6


@pytest.mark.parametrize('make', [
    lambda: Ewma(half_life=0.0), lambda: CautiousQuantile(quantile=1.5),
    lambda: CautiousQuantile(span=-1.0), lambda: LastValue(memory=0.0),
    lambda: make_predictor('oracle')])
def test_impossible_settings_are_refused(make: Callable[[], RatePredictor]) -> None:
    """Bad options raise when the predictor is made."""
    with pytest.raises(ValueError, match='must be|no predictor'):
        make()


def test_the_spread_is_that_of_the_logarithms() -> None:
    predictor = make_predictor('last')
    assert predictor.spread() == 0.0
    for now, rate in enumerate((1e5, 4e5, 1e5, 4e5)):
        predictor.update(rate, float(now))
    assert predictor.spread() == pytest.approx(math.log(2.0))
    predictor.update(7.0, 100.0)  # all others are forgotten
    assert predictor.spread() == 0.0
