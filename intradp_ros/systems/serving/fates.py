# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What became of the requests of a site, by service: each is counted once, where it came in."""
from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intradp_ros.runtime.requests.infer_requests import InferFate

#: Newest ends of which times are kept.
KEPT = 512


@dataclass
class ServiceFates:
    """
    Counts of one service.

    `transfers`: to other sites, `wasted` those for an answer that was not in time; `promised`:
    of those in time, how many ended when they were predicted to, or before.
    """

    counts: dict[InferFate, int] = field(default_factory=lambda: dict.fromkeys(InferFate, 0))
    asked: int = 0
    transfers: int = 0
    wasted: int = 0
    promised: int = 0
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=KEPT))

    @property
    def lost(self) -> int:
        """Return requests that have ended without a fate, below 0 those with more than one."""
        return self.asked - sum(self.counts.values())

    def described(self, in_flight: int) -> Mapping[str, Any]:
        """Return plain figures; `in_flight` are those that have no fate yet."""
        seconds = sorted(self.seconds)
        return {
            'asked': self.asked, **{fate.value: count for fate, count in self.counts.items()},
            'in_flight': in_flight, 'lost': self.lost - in_flight,
            'transfers': self.transfers, 'wasted_transfers': self.wasted,
            'kept_promises': self.promised,
            'p50_ms': _ms(seconds, 0.5), 'p95_ms': _ms(seconds, 0.95)}


def _ms(seconds: list[float], share: float) -> float | None:
    return 1e3 * seconds[min(len(seconds) - 1, int(share * len(seconds)))] if seconds else None
