# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Extremes of the recent past; every call names the time, so that tests need no clock."""
from __future__ import annotations

from collections import deque


class RecentMax:
    """The largest of the samples of the last `horizon` seconds; of older ones only the last."""

    def __init__(self, horizon: float) -> None:
        self._horizon = horizon
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, value: float, now: float) -> None:
        """Take a sample."""
        while self._samples and self._samples[-1][1] <= value:
            self._samples.pop()
        self._samples.append((now, value))

    def value(self, now: float) -> float | None:
        """Return the largest recent sample; None before the first."""
        while len(self._samples) > 1 and self._samples[0][0] < now - self._horizon:
            self._samples.popleft()
        return self._samples[0][1] if self._samples else None


class RecentMin:
    """The smallest of the samples of the last `horizon` seconds; of older ones only the last."""

    def __init__(self, horizon: float) -> None:
        self._negated = RecentMax(horizon)

    def update(self, value: float, now: float) -> None:
        """Take a sample."""
        self._negated.update(-value, now)

    def value(self, now: float) -> float | None:
        """Return the smallest recent sample; None before the first."""
        found = self._negated.value(now)
        return None if found is None else -found
