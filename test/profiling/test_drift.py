# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest

from intradp_ros.profiling.drift import DriftMeter, slowed
from intradp_ros.profiling.profile import JoinCost, OperatorTiming, Profile, TransportCost


def factors(meter: DriftMeter, ratios: list[float]) -> list[float]:
    return [f for f in (meter.add(0.01 * r, 0.01) for r in ratios) if f is not None]


@settings(max_examples=100)
@given(st.lists(st.floats(0.8, 1.3), max_size=100))
def test_a_device_that_keeps_to_its_profile_changes_nothing(ratios: list[float]) -> None:
    assert factors(DriftMeter(), ratios) == []


@settings(max_examples=100)
@given(st.floats(0.1, 20.0), st.integers(1, 20))
def test_a_lasting_change_is_reported_once_and_within_a_step(ratio: float, window: int) -> None:
    meter = DriftMeter(window)
    reported = factors(meter, [ratio] * (3 * window))
    assert len(reported) <= 1
    assert abs(math.log(ratio / meter.factor)) <= 0.75 * math.log(1.5) + 1e-9


def test_single_slow_inferences_do_not_count() -> None:
    meter = DriftMeter(window=15)
    assert factors(meter, ([1.0] * 4 + [6.0] * 3) * 10) == []


def test_it_comes_back() -> None:
    meter = DriftMeter(window=5)
    slow, = factors(meter, [3.0] * 5)
    back, = factors(meter, [1.0] * 10)
    assert slow == pytest.approx(1.5 ** 3) and back == pytest.approx(1.0)


@pytest.mark.parametrize('measured, expected', [
    (0.0, 1.0), (1.0, 0.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, math.inf)])
def test_impossible_times_are_ignored(measured: float, expected: float) -> None:
    meter = DriftMeter(window=1)
    assert meter.add(measured, expected) is None and meter.factor == 1.0


@pytest.mark.parametrize('window, step, cause', [
    (0, 1.25, 'a window must be 1 or more'), (5, 1.0, 'a step must be above 1'),
    (5, math.nan, 'a step must be above 1')])
def test_impossible_settings_are_refused(window: int, step: float, cause: str) -> None:
    with pytest.raises(ValueError, match=cause):
        DriftMeter(window, step)


def test_a_slowed_profile_is_slower_everywhere() -> None:
    profile = Profile('digest', 2, 'device', 1, (OperatorTiming((1, 8), (0.1, 0.4)),), 0.4,
                      moving=TransportCost(1.0, 2.0, 3.0, 4.0), joining=JoinCost(5.0, 6.0))
    slow = slowed(profile, 2.0)
    assert slow.moving == TransportCost(2.0, 4.0, 6.0, 8.0) and slow.joining == JoinCost(10.0,
                                                                                         12.0)
    assert (slow.scale, slow.whole_seconds) == (2 * profile.scale, 0.8)
    assert slow.timings == profile.timings
