# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""One rate for both ways of a link."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
import pytest

from intradp_ros.runtime.transport.link_rate import MOST_OVER_SLOWER, rate_of_both

RATES, BYTES = st.floats(0.1, 1e9), st.integers(0, 10**9)


@given(up=RATES, down=RATES, bytes_up=BYTES, bytes_down=BYTES)
def test_the_bytes_take_as_long_as_they_do(
        up: float, down: float, bytes_up: int, bytes_down: int) -> None:
    rate = rate_of_both(up, down, bytes_up, bytes_down)
    slower, faster = sorted((up, down))
    assert slower * (1 - 1e-9) <= rate <= min(faster, MOST_OVER_SLOWER * slower) * (1 + 1e-9)
    if bytes_up + bytes_down > 0 and rate < 0.999 * MOST_OVER_SLOWER * slower:
        assert (bytes_up + bytes_down) / rate == pytest.approx(bytes_up / up + bytes_down / down)


def test_the_way_that_carries_most_decides() -> None:
    assert rate_of_both(70.0, 100.0, 1.0, 9.0) == pytest.approx(96.0, abs=0.5)
    assert rate_of_both(70.0, 100.0, 9.0, 1.0) == pytest.approx(72.2, abs=0.5)
    assert rate_of_both(70.0, 100.0, 0.0, 0.0) == pytest.approx(82.4, abs=0.5)
    assert rate_of_both(10.0, 100.0, 1.0, 9.0) == pytest.approx(15.0)
