# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the asker of a pipeline waits for its fleet."""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

#: Latencies of the last inferences, by which others are late.
_REMEMBERED = 16
#: Latencies that may wait to be reported to the coordinator.
_UNREPORTED = 64


@dataclass(frozen=True, slots=True)
class FleetPatience:
    """
    Limits in seconds.

    `silence`: nothing was heard of a device, though it is asked every
    `heartbeat`.  Inferences are late when nothing came back for `late_factor`
    times what the longest of the last took (`unknown` before the first), and
    `late_slack` on top.
    """

    heartbeat: float = 0.1
    silence: float = 0.6
    late_factor: float = 3.0
    late_slack: float = 1.0
    unknown: float = 5.0


class AnswerTimes:
    """How long the last answers took, when the newest came, and which others are late by that."""

    def __init__(self, patience: FleetPatience) -> None:
        self._patience = patience
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        self._unreported: deque[float] = deque(maxlen=_UNREPORTED)
        self._newest, self._last = 0, -math.inf

    def came(self, number: int, begun: float, now: float) -> None:
        """Take an inference that came back through the pipeline."""
        self._took.append(now - begun)
        self._newest, self._last = max(self._newest, number), now

    def answered(self, seconds: float) -> None:
        """Take the latency of an answer, infinite without results."""
        self._unreported.append(seconds)

    def unreported(self) -> tuple[float, ...]:
        """Return the latencies of the answers since the last call."""
        latencies = tuple(self._unreported)
        self._unreported.clear()
        return latencies

    def lateness(self, number: int, begun: float, now: float) -> str:
        """Say that an inference was overtaken long ago, or that nothing came back for long."""
        patience, flown, longest = self._patience, now - begun, max(self._took, default=0.0)
        if number < self._newest and flown > 2 * longest + patience.late_slack:
            return f'lost: {flown:.2f} s in flight, later ones came back'
        quiet = now - max(begun, self._last)
        usual = longest if self._took else patience.unknown
        if quiet <= patience.late_factor * usual + patience.late_slack:
            return ''
        return f'late: nothing came back for {quiet:.2f} s, one took {longest:.2f} s at most'
