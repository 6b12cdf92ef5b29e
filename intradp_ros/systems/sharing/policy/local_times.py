# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the robot takes by itself: as it measured, and as its book says."""
from __future__ import annotations

from collections import deque
from statistics import median

from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.strategies import LOCAL

_REMEMBERED = 7  # inferences alone whose median is what the robot takes by itself


class LocalTimes:
    """
    Seconds of an inference alone.

    `profiled` is what the operators of the model, `operators` of them, should
    take by the robot's profile; 0 without one.
    """

    def __init__(self, profiled: float, operators: int) -> None:
        self._profiled, self._operators = profiled, operators
        self._took: deque[float] = deque(maxlen=_REMEMBERED)

    def took(self, seconds: float) -> None:
        """Take note of an inference alone."""
        self._took.append(seconds)

    @property
    def measured(self) -> float:
        """Seconds by own measurements only; 0 if there are none yet."""
        return max(self._profiled, median(self._took) if self._took else 0.0)

    @staticmethod
    def local_entry(book: ScheduleBook | None) -> Entry | None:
        """Return what a book says of the robot alone, None if it says nothing."""
        entries = book.entries if book else ()
        return next((e for e in entries if e.strategy == LOCAL), None)

    def entry(self, book: ScheduleBook | None) -> Entry:
        """Return the same, or an entry that promises nothing."""
        return self.local_entry(book) or Entry(0.0, LOCAL, 0.0, local(self._operators))
