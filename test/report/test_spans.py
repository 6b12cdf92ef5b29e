# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Arithmetic of times, against counting instants one by one."""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import combinations, pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from intradp_ros.report.spans import both, Interval, length, tracks, union


@dataclass(frozen=True)
class Bar:
    start: float
    stop: float
    lane: str = 'robot'
    kind: str = 'compute'
    name: str = ''


INTERVALS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 30)).map(
    lambda ends: (min(ends), max(ends))), max_size=12)


def instants(intervals: Iterable[Interval]) -> set[int]:
    return {i for start, stop in intervals for i in range(int(start), int(stop))}


@settings(max_examples=200)
@given(INTERVALS)
def test_union_covers_the_same_and_is_disjoint(intervals: list[Interval]) -> None:
    merged = union(intervals)
    assert instants(merged) == instants(intervals)
    assert all(one[1] < other[0] for one, other in pairwise(merged))
    assert length(intervals) == len(instants(intervals))


@settings(max_examples=200)
@given(INTERVALS, INTERVALS)
def test_both_is_the_intersection(one: list[Interval], other: list[Interval]) -> None:
    assert instants(both(one, other)) == instants(one) & instants(other)


@settings(max_examples=200)
@given(INTERVALS)
def test_tracks_keep_overlapping_spans_apart(intervals: list[Interval]) -> None:
    bars = [Bar(start, stop) for start, stop in intervals if stop > start]
    placed = tracks(bars)
    assert all(0 <= track < count for track, count in placed)
    for (one, (track, _)), (other, (other_track, _)) in combinations(zip(bars, placed), 2):
        if one.start < other.stop and other.start < one.stop:
            assert track != other_track
    # No more tracks than there are spans at some instant.
    most = max((sum(b.start <= i < b.stop for b in bars) for i in range(31)), default=0)
    assert max((count for _, count in placed), default=0) == most


def test_spans_that_touch_by_rounding_share_a_track() -> None:
    bars = [Bar(0.0, 1.00001), Bar(1.0, 2.0)]
    assert tracks(bars, tolerance=1e-4) == [(0, 1), (0, 1)]
    assert tracks(bars) == [(0, 2), (1, 2)]
