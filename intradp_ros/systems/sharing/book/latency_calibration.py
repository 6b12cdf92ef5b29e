# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What schedules really took, against what was predicted of them."""
from __future__ import annotations

from collections import deque
from collections.abc import Hashable
import math

#: Another strategy than the usual one, and sharing at all, must promise to take at most this part
#: of the time.
WORTH = 0.95
#: The assumption that predictions hold counts as this many inferences.
_TRUSTED = 2.0
#: Factors are the median of this many inferences.
_WINDOW = 7
#: The most schedules, and kinds of them, whose times are remembered.
_MOST = 256


class LatencyCalibration:
    """
    Factors between measured and predicted latency, by schedule or kind of schedules.

    A factor is the weighted median of the last `_WINDOW` inferences and of what
    was thought before, which counts as `_TRUSTED` of them.  An inference counts
    half after every `half_life` seconds: what was given up for what it took
    gets another chance, by and by, and keeps it if it takes less then.
    """

    def __init__(self, half_life: float = 30.0) -> None:
        self._half_life = half_life
        self._seen: dict[Hashable, deque[tuple[float, float]]] = {}  # ratio and when

    def note(self, schedule: Hashable, latency: float, predicted: float, now: float) -> None:
        """Take one inference's seconds; what has no prediction teaches nothing."""
        if not (0 < predicted < math.inf and 0 < latency < math.inf):
            return
        seen = self._seen.pop(schedule, None) or deque(maxlen=_WINDOW)
        seen.append((latency / predicted, now))
        self._seen[schedule] = seen  # the last one now
        while len(self._seen) > _MOST:
            del self._seen[next(iter(self._seen))]

    def factor(self, schedule: Hashable, now: float, before: float = 1.0) -> float:
        """Return how many times its prediction a schedule takes; `before` if nothing is known."""
        seen = [(ratio, 0.5 ** (max(0.0, now - then) / self._half_life))
                for ratio, then in self._seen.get(schedule, ())]
        if not seen:
            return before
        return _weighted_median([(before, _TRUSTED), *seen])


def _weighted_median(values: list[tuple[float, float]]) -> float:
    """Return the value in the middle of the weight; halfway where two share it."""
    values = sorted(values)
    half, below = sum(weight for _, weight in values) / 2, 0.0
    for (value, weight), (above, _) in zip(values, [*values[1:], values[-1]]):
        below += weight
        if math.isclose(below, half):
            return (value + above) / 2
        if below > half:
            return value
    return values[-1][0]
