# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Arrivals: their statistics."""
import numpy as np
import pytest

from intradp_ros.systems.serving.arrivals import arrivals, merged, poisson, streams_of_robots


def spread(times):
    gaps = np.diff(times)
    return gaps.std() / gaps.mean()


def test_independent_requests_have_gaps_like_their_mean():
    times = poisson(50.0, 20000, 1)
    assert spread(times) == pytest.approx(1.0, abs=0.03)
    assert times[-1] / 20000 == pytest.approx(1 / 50, rel=0.03)


def test_robots_send_at_their_rate_in_the_order_of_their_frames():
    times, robot = streams_of_robots(7, 15.0, 4.0, 2, jitter=0.5)
    assert len(times) == 7 * 60 and (np.diff(times) >= 0).all()
    for k in range(7):
        gaps = np.diff(times[robot == k])
        assert (gaps >= 0.5 / 15 - 1e-9).all() and (gaps <= 1.5 / 15 + 1e-9).all()
    steady, robot = streams_of_robots(3, 10.0, 2.0, 2)
    assert np.allclose(np.diff(steady[robot == 1]), 0.1)


def test_rows_are_sorted_by_time_with_all_their_columns():
    some = arrivals([3.0, 1.0, 2.0], [0.3, 0.1, 0.2], site=[3, 1, 2], priority=4)
    assert some.time.tolist() == [1, 2, 3] and some.site.tolist() == [1, 2, 3]
    assert some.remaining.tolist() == [0.1, 0.2, 0.3] and some.priority.tolist() == [4, 4, 4]
    both = merged(some, arrivals([1.5], [9.0], stream=7))
    assert both.time.tolist() == [1, 1.5, 2, 3] and both.stream.tolist() == [-1, 7, -1, -1]
    assert both.number.tolist() == [0, 1, 2, 3]
    assert both.deadline.tolist() == [1.1, 10.5, 2.2, 3.3]
