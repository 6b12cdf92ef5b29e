# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether a robot takes a book that came from outside."""
from __future__ import annotations

from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)

#: How many times more or less than the robot measured a book may say that it takes alone.
CONTRADICTION = 10.0


def check_book(book: ScheduleBook, alone: float) -> None:
    """
    Check that a book can be lived by, and is not made from another device's profile.

    `alone` is what the robot measured that it takes by itself, in seconds (0:
    not yet).

    Raises
    ------
    ValueError
        If the book does not say what the robot does alone, or contradicts
        what it measured.

    """
    claimed = next((e.predicted for e in book.entries if e.strategy == LOCAL), None)
    if claimed is None:
        raise ValueError(f'the schedule table has no schedule {LOCAL!r}, which every robot '
                         'needs: plan it with this package')
    if alone and not alone / CONTRADICTION <= claimed <= alone * CONTRADICTION:
        raise ValueError(
            f'by the schedule table this robot takes {claimed * 1e3:.3g} ms alone, it measured '
            f'{alone * 1e3:.3g} ms: it was planned from a profile of another device')
