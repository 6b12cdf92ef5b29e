# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The rate that plans are judged by while the air changes: a low one of the last moments."""
from __future__ import annotations

from collections import deque

import numpy as np

#: By how much a rate moves before plans are looked at again.
MOVED = 0.05


class RateOutlook:
    """
    Rates as they were seen; `horizon` are the seconds that are remembered.

    A plan that just meets its target at the rate of this moment misses it at
    the next.  So it is judged by the `share`-quantile of what was seen lately;
    plans that stand that leave room for the rest.
    """

    def __init__(self, horizon: float = 2.0, share: float = 0.1) -> None:
        self._horizon, self._share = horizon, share
        self._seen: deque[tuple[float, float]] = deque()

    def saw(self, rate: float, now: float) -> None:
        """Take a rate in bytes per second."""
        self._seen.append((now, rate))
        while self._seen[0][0] < now - self._horizon:
            self._seen.popleft()

    def rate(self, now: float) -> float:
        """Return the rate to plan for; 0 before anything was seen."""
        rates = [rate for _, rate in self._seen]
        return float(np.quantile(rates, self._share)) if rates else 0.0
