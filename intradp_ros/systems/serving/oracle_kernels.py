# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The loop of the oracle, for machine code or plain Python."""
from __future__ import annotations

from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

#: What rounding of sums of seconds may amount to.
ROUNDING = 1e-9


def most_work(arrival: NDArray[np.float64], deadline: NDArray[np.float64],
              work: NDArray[np.float64], executors: float) -> float:
    """
    Return the most seconds of work that are done between the jobs' arrivals and deadlines.

    `executors` seconds are done in a second.  Jobs may be cut at will, and be on several
    executors at once: of those that are there, the one with the earliest deadline goes first,
    and no other order does more.  `arrival` rises; there is a job.
    """
    waiting = [(deadline[0], work[0])]
    now, done, k = arrival[0], 0.0, 1
    while k < len(arrival) or len(waiting) > 0:
        if len(waiting) == 0:
            now = max(now, arrival[k])
        while k < len(arrival) and arrival[k] <= now:
            heappush(waiting, (deadline[k], work[k]))
            k += 1
        until, left = heappop(waiting)
        whole = now + left / executors
        stop = min(until, whole)
        if k < len(arrival):
            stop = min(stop, arrival[k])
        if stop <= now:
            continue
        part = left if stop == whole else (stop - now) * executors
        done += part
        if stop < whole and stop < until:
            heappush(waiting, (until, left - part))
        now = stop
    return done
