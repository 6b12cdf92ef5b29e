# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How a fleet has served its target: misses, joules (modelled), switches of plans."""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
import math
import statistics

from intradp_ros.planning.quality import Quality

#: Answers that recent figures are made of.
LATELY = 100


@dataclass
class QoeStatistics:
    """Counts since the start; `latency` and `missed_share` are of the last `LATELY` answers."""

    quality: Quality
    frames: int = 0
    missed: int = 0
    joules: float = 0.0
    switches: int = 0
    _lately: deque[float] = field(default_factory=lambda: deque(maxlen=LATELY))

    def answered(self, latencies: Iterable[float], joules: float) -> None:
        """Take the seconds of answers (infinite without results), and the joules of each."""
        for seconds in latencies:
            self.frames += 1
            self.missed += self._late(seconds)
            self.joules += joules
            self._lately.append(seconds)

    @property
    def latency(self) -> float:
        """The middle latency (s); nan before the first answer."""
        lately = tuple(self._lately)  # answers come on another thread
        return statistics.median(lately) if lately else math.nan

    @property
    def missed_share(self) -> float:
        """The share of answers that came later than the target, or without results."""
        lately = tuple(self._lately)
        return sum(map(self._late, lately)) / max(1, len(lately))

    def _late(self, seconds: float) -> bool:
        return math.isinf(seconds) or seconds > self.quality.latency
