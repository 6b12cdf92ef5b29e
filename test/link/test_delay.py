# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The delay follows the shortest round trips, in steps, and no single one."""
from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.link.delay import ASSUMED_DELAY, DelayMeter
from intradp_ros.link.quantised_tracker import Steps

WINDOW = 5


def fed(meter: DelayMeter, trips: list[float]) -> list[float]:
    return [d for d in map(meter.add, trips) if d is not None]


@settings(max_examples=100)
@given(st.floats(1e-5, 10.0))
def test_a_lasting_delay_is_reported_once_and_within_a_step(delay: float) -> None:
    meter = DelayMeter(WINDOW)
    assert fed(meter, [2 * delay] * (4 * WINDOW)) == [meter.delay]
    assert abs(math.log(delay / meter.delay)) <= 0.75 * math.log(1.5) + 1e-9


@settings(max_examples=100)
@given(st.lists(st.floats(0.0, 5.0), min_size=WINDOW, max_size=100))
def test_what_waited_behind_others_does_not_count(waits: list[float]) -> None:
    meter = DelayMeter(WINDOW)
    assert fed(meter, [2 * ASSUMED_DELAY] * WINDOW) == [ASSUMED_DELAY]
    for wait in waits:
        assert not fed(meter, [2 * ASSUMED_DELAY, *[2 * ASSUMED_DELAY + wait] * (WINDOW - 1)])


def test_it_comes_back_to_the_same_value() -> None:
    meter = DelayMeter(WINDOW)
    far, = fed(meter, [0.04] * WINDOW)
    near, = fed(meter, [2 * ASSUMED_DELAY] * WINDOW)
    again, = fed(meter, [0.041] * WINDOW)
    assert far == again and near == pytest.approx(ASSUMED_DELAY)


@pytest.mark.parametrize('trip', [0.0, -1.0, math.nan, math.inf])
def test_impossible_times_are_ignored(trip: float) -> None:
    meter = DelayMeter(window=1)
    assert meter.add(trip) is None and meter.delay == ASSUMED_DELAY
    assert meter.add(2 * ASSUMED_DELAY) == ASSUMED_DELAY


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(ValueError, match='window'):
        DelayMeter(0)
    for step in (1.0, math.nan):
        with pytest.raises(ValueError, match='step'):
            Steps(step, 1.0)
