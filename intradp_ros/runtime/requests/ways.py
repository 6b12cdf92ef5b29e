# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The ways between a robot and its gateways, which a request's time has to leave room for."""
from __future__ import annotations

from dataclasses import dataclass, replace
import math

from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate

#: Share of the newest time in that of the ways; share of a request's time that they take at most:
#: who asks no more measures no more, and would never hear that the ways are short again.
NEWEST, MOST_WAYS = 0.2, 0.5


@dataclass
class Ways:
    """Seconds that request and answer are under way, as they were measured last."""

    seconds: float = 0.0

    def left(self, deadline: float, now: float) -> float:
        """Return for how many seconds from now a gateway may take, infinite without a deadline."""
        left = deadline - now
        if math.isfinite(left):
            left -= min(self.seconds, MOST_WAYS * max(0.0, left))
        return max(0.0, left)

    def measure(self, sent: float, end: InferEnd, now: float) -> None:
        """Learn from an answer that says how long the gateway had the request."""
        if math.isfinite(end.finished):
            self.seconds += NEWEST * (max(0.0, now - sent - end.finished) - self.seconds)


def in_time(end: InferEnd, deadline: float, now: float) -> InferEnd:
    """Return an end, as late and without its tensors where it comes too late."""
    if end.fate is InferFate.IN_TIME and now > deadline:
        return replace(end, fate=InferFate.LATE, reason='late: on the way back', tensors={})
    return end
