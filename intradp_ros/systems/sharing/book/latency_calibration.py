# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What schedules really took, against what was predicted of them."""
from __future__ import annotations

from collections import deque
from collections.abc import Hashable
import math
from statistics import median

#: Another strategy than the usual one, and sharing at all, must promise to take at most this part
#: of the time.
WORTH = 0.95


class LatencyCalibration:
    """
    Factors between measured and predicted latency, by schedule.

    A factor is the median of the last `window` inferences; it counts from
    the third one on, and is forgotten after `forget` seconds without an
    inference, so that a schedule that was given up gets another chance.
    """

    def __init__(self, window: int = 7, forget: float = 60.0) -> None:
        self._window, self._forget = window, forget
        self._ratios: dict[Hashable, deque[float]] = {}
        self._last: dict[Hashable, float] = {}

    def note(self, schedule: Hashable, latency: float, predicted: float, now: float) -> None:
        """Take one inference's seconds; what has no prediction teaches nothing."""
        if not (0 < predicted < math.inf and 0 < latency < math.inf):
            return
        if now - self._last.get(schedule, now) > self._forget:
            del self._ratios[schedule]
        self._ratios.setdefault(schedule, deque(maxlen=self._window)).append(latency / predicted)
        self._last[schedule] = now

    def factor(self, schedule: Hashable, now: float) -> float:
        """Return how many times its prediction a schedule takes; 1 if nothing is known."""
        ratios = self._ratios.get(schedule, ())
        known = len(ratios) >= 3 and now - self._last[schedule] <= self._forget
        return median(ratios) if known else 1.0
