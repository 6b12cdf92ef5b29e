# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Intervals hold the true median as often as they say, and differences in pairs are seen."""
from __future__ import annotations

import numpy as np
import pytest

from intradp_lab.report.medians import Interval, median_interval, paired_ratio


@pytest.mark.parametrize(('count', 'skipped'), [(1, 0), (5, 0), (6, 0), (9, 1), (30, 9)])
def test_bounds_are_order_statistics(count: int, skipped: int) -> None:
    values = list(range(count))
    found = median_interval(values[::-1])
    assert (found.low, found.high) == (values[skipped], values[-1 - skipped])


def test_the_interval_holds_the_median_as_often_as_it_says() -> None:
    rng = np.random.default_rng(0)
    draws = [median_interval(list(rng.exponential(size=30))) for _ in range(1000)]
    assert np.mean([i.low <= np.log(2) <= i.high for i in draws]) >= 0.94


def test_pairs_see_what_a_changing_machine_hides() -> None:
    rng = np.random.default_rng(1)
    machine = np.exp(np.cumsum(rng.normal(0, 0.2, 30)))
    ours, others = 0.9 * machine, machine
    assert paired_ratio(list(ours), list(others)) == Interval(*3 * [pytest.approx(0.9)])


def test_nothing_has_no_median() -> None:
    with pytest.raises(ValueError, match='no values'):
        median_interval([])
    with pytest.raises(ValueError, match='argument 2'):
        paired_ratio([1.0], [])
