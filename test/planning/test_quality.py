# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Targets as texts, lateness, and how samples are divided."""
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_ros.planning.quality import parse_quality, Quality
from intradp_ros.planning.shares import largest_remainder, MOST_GROUPS, replica_groups


@pytest.mark.parametrize('text, quality', [
    ('', Quality()),
    ('latency=min', Quality()),
    ('latency=200ms,energy=min', Quality(latency=0.2)),
    ('latency=0.5s, rate=5Hz', Quality(latency=0.5, rate=5)),
    ('rate=12.5fps,weight=3', Quality(rate=12.5, weight=3)),
])
def test_targets_are_read(text, quality):
    assert parse_quality(text) == quality


@pytest.mark.parametrize('text', ['latency=200', 'latency=-1ms', 'latency=0ms', 'rate=many',
                                  'comfort=max', 'latency=1.2.3s', 'energy=5', 'rate=0Hz',
                                  'latency=1ms,latency=2ms', 'latency=min,latency=9s'])
def test_what_is_no_target_is_refused(text):
    with pytest.raises(ValueError):
        parse_quality(text)


def test_lateness_counts_both_targets():
    quality = Quality(latency=0.1, rate=10)
    late = quality.lateness(np.array([0.05, 0.2, 0.1]), np.array([0.05, 0.1, 0.3]))
    assert list(late) == pytest.approx([0, 1, 2])


@given(st.lists(st.floats(0.01, 100), min_size=1, max_size=8), st.integers(1, 64))
def test_parts_add_up_and_are_less_than_one_from_proportion(weights, total):
    parts = largest_remainder(weights, total)
    assert sum(parts) == total
    assert all(abs(part - total * w / sum(weights)) < 1 for part, w in zip(parts, weights))


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=6), st.integers(1, 8))
def test_groups_are_distinct_divide_all_samples_and_begin_with_single_devices(speeds, samples):
    groups = replica_groups(speeds, samples)
    assert (groups.sum(axis=1) == samples).all() and (groups >= 0).all()
    assert len(np.unique(groups, axis=0)) == len(groups) <= MOST_GROUPS + len(speeds)
    assert (groups[:len(speeds)] == samples * np.eye(len(speeds))).all()
