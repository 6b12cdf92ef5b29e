# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the least takes to get to the other side."""
from __future__ import annotations

from collections import deque
import math

from intradp_ros.link.quantised_tracker import Steps

#: Seconds that frames are taken to need one way until it is measured.
ASSUMED_DELAY = 1e-3
#: Seconds for which planning waits for the first measurement.
DELAY_PATIENCE = 5.0
#: What of the delay the middleware and both sides' threads take (two nodes on one machine).
OWN_DELAY = 0.4e-3
#: Seconds that plans take a transfer to need beyond its bytes (doc/planning.md says why).
ASSUMED_OVERHEAD = 0.5e-3
_STEP, _ENOUGH = 1.5, 20


class DelayMeter:
    """
    Measures the one-way delay by the round trips of small frames.

    It is half of the shortest of the last `window` round trips, since others
    waited behind tensors, or for a processor; the first `_ENOUGH` of them will
    do, as nothing is shared before there is a plan.  `delay` is what was
    assumed times a power of `_STEP`, and moves once it is clearly another.
    """

    def __init__(self, window: int = 100) -> None:
        if window < 1:
            raise ValueError(f'a window must be 1 or more, got {window}')
        self._steps, self._enough = Steps(_STEP, ASSUMED_DELAY), min(_ENOUGH, window)
        self._trips: deque[float] = deque(maxlen=window)
        self._known = False

    @property
    def delay(self) -> float:
        """Seconds one way."""
        return self._steps.value

    def add(self, round_trip: float) -> float | None:
        """
        Take one round trip (seconds); return the delay if it has changed, or is known now.

        What is not positive says nothing and is ignored.
        """
        if not 0 < round_trip < math.inf:
            return None
        self._trips.append(round_trip)
        if len(self._trips) < self._enough:
            return None
        first, self._known = not self._known, True
        changed = self._steps.follow(min(self._trips) / 2)
        return self.delay if first else changed
