# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Arithmetic of spans of time: how much of something, and how much at once."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol


class SpanLike(Protocol):
    """Something that took from `start` to `stop` (seconds); measured or simulated."""

    @property
    def lane(self) -> str:
        """The device or the direction of the link."""

    @property
    def kind(self) -> str:
        """``compute``, ``transfer``, ``send``, ``receive`` or ``wait``."""

    @property
    def name(self) -> str:
        """What was computed or sent."""

    @property
    def start(self) -> float:
        """Begin, seconds."""

    @property
    def stop(self) -> float:
        """End, seconds."""


Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return disjoint intervals in order that cover the same times."""
    merged: list[Interval] = []
    for start, stop in sorted(intervals):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(stop, merged[-1][1]))
        elif stop > start:
            merged.append((start, stop))
    return merged


def both(one: Iterable[Interval], other: Iterable[Interval]) -> list[Interval]:
    """Return the times that are in `one` and in `other`."""
    left, right = union(one), union(other)
    shared: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, stop = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if stop > start:
            shared.append((start, stop))
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return shared


def length(intervals: Iterable[Interval]) -> float:
    """Return the seconds that the intervals cover; none counts twice."""
    return sum(stop - start for start, stop in union(intervals))


def tracks(spans: Sequence[SpanLike], tolerance: float = 0.0) -> list[tuple[int, int]]:
    """
    Return for each span its track and how many tracks its neighbourhood has.

    Spans of one track do not overlap by more than `tolerance` seconds; where
    nothing overlaps there is one track.
    """
    placed: list[tuple[int, int]] = [(0, 1)] * len(spans)
    ends: list[float] = []
    group: list[tuple[int, int]] = []
    for index in sorted(range(len(spans)), key=lambda i: (spans[i].start, spans[i].stop)):
        begin = spans[index].start + tolerance
        if all(end <= begin for end in ends):
            ends, group = [], []
        track = next((t for t, end in enumerate(ends) if end <= begin), len(ends))
        ends[track:track + 1] = [spans[index].stop]
        group.append((index, track))
        for member, own in group:
            placed[member] = (own, len(ends))
    return placed
