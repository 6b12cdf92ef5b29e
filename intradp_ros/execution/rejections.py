# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Counting what is rejected, and logging it without flooding the log."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
import threading
import time


class Rejections:
    """Rejected messages by cause; each cause is logged at most once per second."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._counts: Counter[str] = Counter()
        self._logged: dict[str, float] = {}
        self._lock = threading.Lock()

    def add(self, cause: str, text: str) -> None:
        """Count one rejection under a cause out of a small fixed set."""
        with self._lock:
            self._counts[cause] += 1
            now = time.monotonic()
            due = now - self._logged.get(cause, float('-inf')) >= 1.0
            if due:
                self._logged[cause] = now
        if due:
            self._log(f'rejected ({cause}): {text}')

    @property
    def counts(self) -> dict[str, int]:
        """Rejections by cause."""
        with self._lock:
            return dict(self._counts)

    @property
    def total(self) -> int:
        """All rejections."""
        return sum(self.counts.values())
