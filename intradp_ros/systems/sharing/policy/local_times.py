# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the robot takes by itself: as it measured, as its book says, and whether these agree."""
from __future__ import annotations

from collections import deque
from statistics import median

from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.program_cache import Compiled
from intradp_ros.systems.sharing.partition.partition import local
from intradp_ros.systems.sharing.strategies import LOCAL

_REMEMBERED = 7  # inferences alone whose median is what the robot takes by itself
#: How many times more or less than the robot measured a book may say that it takes alone.
CONTRADICTION = 10.0


class LocalTimes:
    """
    Seconds of an inference alone.

    `compiled` is the program of all operators of the model, `operators` of them; its seconds are
    what they should take by the robot's profile, 0 without one.
    """

    def __init__(self, compiled: Compiled, operators: int) -> None:
        self.compiled, self._operators = compiled, operators
        self._took: deque[float] = deque(maxlen=_REMEMBERED)

    def took(self, seconds: float) -> None:
        """Take note of an inference alone."""
        self._took.append(seconds)

    @property
    def measured(self) -> float:
        """Seconds by own measurements only; 0 if there are none yet."""
        return max(self.compiled.seconds, median(self._took) if self._took else 0.0)

    @staticmethod
    def local_entry(book: ScheduleBook | None) -> Entry | None:
        """Return what a book says of the robot alone, None if it says nothing."""
        entries = book.entries if book else ()
        return next((e for e in entries if e.strategy == LOCAL), None)

    def entry(self, book: ScheduleBook | None) -> Entry:
        """Return the same, or an entry that promises nothing."""
        return self.local_entry(book) or Entry(0.0, LOCAL, 0.0, local(self._operators))


def check_book(book: ScheduleBook, measured: float, profiled: float = 0.0) -> None:
    """
    Check that a book can be lived by, and is not made from another device's profile.

    `measured` are the seconds that the robot's last inferences took alone, and
    `profiled` those of its profile (0: not known).  A robot may have been quiet
    when it was profiled and be busy now, or the other way round: a book is
    refused if it contradicts both.

    :raises ValueError: if the book does not say what the robot does alone, or contradicts all that
        it measured.
    """
    entry = LocalTimes.local_entry(book)
    if entry is None:
        raise ValueError(f'the schedule table has no schedule {LOCAL!r}, which every robot '
                         'needs: plan it with this package')
    claimed = entry.predicted
    known = {'its frames took': measured, 'its profile says': profiled}
    known = {source: seconds for source, seconds in known.items() if seconds}
    if known and all(not seconds / CONTRADICTION <= claimed <= seconds * CONTRADICTION
                     for seconds in known.values()):
        said = ', '.join(f'{source} {seconds * 1e3:.3g} ms' for source, seconds in known.items())
        raise ValueError(f'by the schedule table this robot takes {claimed * 1e3:.3g} ms alone; '
                         f'{said}: the table was planned from a profile of another device')
