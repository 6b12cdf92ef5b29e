# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether a robot takes a book that came from outside."""
from __future__ import annotations

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.strategies import LOCAL

#: How many times more or less than the robot measured a book may say that it takes alone.
CONTRADICTION = 10.0


def check_book(book: ScheduleBook, measured: float, profiled: float = 0.0) -> None:
    """
    Check that a book can be lived by, and is not made from another device's profile.

    `measured` are the seconds that the robot's last inferences took alone, and
    `profiled` those of its profile (0: not known).  A robot may have been quiet
    when it was profiled and be busy now, or the other way round: a book is
    refused if it contradicts both.

    Raises
    ------
    ValueError
        If the book does not say what the robot does alone, or contradicts
        all that it measured.

    """
    claimed = next((e.predicted for e in book.entries if e.strategy == LOCAL), None)
    if claimed is None:
        raise ValueError(f'the schedule table has no schedule {LOCAL!r}, which every robot '
                         'needs: plan it with this package')
    known = {'its frames took': measured, 'its profile says': profiled}
    known = {source: seconds for source, seconds in known.items() if seconds}
    if known and all(not seconds / CONTRADICTION <= claimed <= seconds * CONTRADICTION
                     for seconds in known.values()):
        said = ', '.join(f'{source} {seconds * 1e3:.3g} ms' for source, seconds in known.items())
        raise ValueError(f'by the schedule table this robot takes {claimed * 1e3:.3g} ms alone; '
                         f'{said}: the table was planned from a profile of another device')
