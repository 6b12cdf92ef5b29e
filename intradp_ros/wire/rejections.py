# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Counting what was rejected, by cause, and deciding when it is worth a line in the log."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
import threading

#: Causes beyond this many are counted together, so that a sender cannot make the table grow.
MAX_CAUSES = 64


#: Seconds between two lines of one cause that goes on, at most.
LONGEST = 60.0


class Rejections:
    """
    Rejected frames by cause; safe to use from several threads.

    A cause is worth a line again after `log_period` (s), then after twice as long, and so on up to
    `LONGEST`; after as long a pause it is new.
    """

    def __init__(self, log_period: float = 1.0) -> None:
        self._log_period = log_period
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def count(self, cause: str, now: float) -> bool:
        """Count one rejection; return whether to log it."""
        with self._lock:
            if cause not in self._counts and len(self._counts) >= MAX_CAUSES:
                cause = 'other'
            self._counts[cause] += 1
            last, period = self._logged.get(cause, (float('-inf'), 0.0))
            if now - last < period:
                return False
            goes_on = now - last < 2 * period + self._log_period
            self._logged[cause] = now, min(2 * period, max(LONGEST, self._log_period)) \
                if goes_on else self._log_period
            return True

    @property
    def total(self) -> int:
        """All rejections so far."""
        with self._lock:
            return self._counts.total()

    def by_cause(self) -> Mapping[str, int]:
        """Return a copy of the counts."""
        with self._lock:
            return dict(self._counts)
