# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The timeline of a typical inference, found while inferences go by."""
from __future__ import annotations

from bisect import insort
from collections.abc import Sequence
from typing import Any

from intradp_ros.runtime.transport.timeline import Event

#: Of so many inferences at a time the events are kept, for the median moves while they come.
KEPT = 9


class Typical:
    """Keeps the events of the inferences whose latency is nearest to the median so far."""

    def __init__(self) -> None:
        self._sorted: list[float] = []
        self._kept: list[tuple[int, float, Sequence[Event]]] = []

    def add(self, latency: float, events: Sequence[Event]) -> None:
        """Take one inference: its seconds, and what both sides measured in it."""
        self._kept.append((len(self._sorted), latency, events))
        insort(self._sorted, latency)
        if len(self._kept) > KEPT:
            self._kept.remove(max(self._kept, key=self._distance))

    def nearest(self) -> tuple[int, list[list[Any]]]:
        """
        Return the number (from 0) of the most typical inference, and its events as plain data.

        Times are seconds to the microsecond.  ValueError if there was no inference.
        """
        if not self._kept:
            raise ValueError('there was no inference')
        number, _, events = min(self._kept, key=self._distance)
        return number, [[e.lane, e.kind, e.name, round(e.start, 6), round(e.stop, 6)]
                        for e in events]

    def _distance(self, kept: tuple[int, float, Sequence[Event]]) -> float:
        return abs(kept[1] - self._sorted[len(self._sorted) // 2])
