# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The optimum of one executor and one service whose deadlines come in the order of the arrivals.

So equal relative ones do.  Then a batch of the best schedule may be taken to hold neighbours: if
it skips a request that nothing serves, that one can take the place of an earlier one (it is there
by the time at which the batch starts, and may end later); if another batch holds it, the two can
change places.  So the earliest end of k of the first j requests follows from that of fewer.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
import math
import sys
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving.oracle import checked, times
from intradp_ros.systems.serving.oracle_kernels import ROUNDING


def exact(arrival: ArrayLike, deadline: ArrayLike, seconds: Sequence[float]) -> int:
    """
    Return how many requests one executor can serve in time, batches not being interrupted.

    `arrival` and `deadline` are seconds of one clock, `seconds[b - 1]` the time of a batch of
    b (infinite where there is none).  It takes n^2 steps for each size of a batch.

    :raises ValueError: if the deadlines do not come in the order of the arrivals, or times are not
        numbers.
    """
    arrived, due = times(arrival, deadline)
    order = np.lexsort((due, arrived))
    arrived, due = arrived[order], due[order]
    if (np.diff(due) < 0).any():
        raise ValueError('the exact optimum is known for deadlines in the order of the arrivals '
                         'only: ask for bound() instead')
    table = np.array([math.inf, *checked(seconds)])
    found: int = _compiled()(arrived, due, table) if len(arrived) else 0
    return found


def most_in_time(arrival: NDArray[np.float64], deadline: NDArray[np.float64],
                 seconds: NDArray[np.float64]) -> int:
    """
    Return how many of n requests one executor can serve in time at most.

    `seconds[b]` is the time of a batch of b.  Both `arrival` and `deadline` rise.
    `least[j % (largest + 1), k]` is the earliest end of k of the first j requests.
    """
    count, largest = len(arrival), len(seconds) - 1
    least = np.full((largest + 1, count + 1), np.inf)
    least[0, 0] = -np.inf
    best = 0
    for j in range(1, count + 1):
        row, before = least[j % (largest + 1)], least[(j - 1) % (largest + 1)]
        for k in range(min(j, best + largest) + 1):
            ends = before[k]
            for b in range(1, min(largest, k) + 1):
                then = max(least[(j - b) % (largest + 1), k - b], arrival[j - 1]) + seconds[b]
                if then < ends and then <= deadline[j - b] + ROUNDING:
                    ends = then
            row[k] = ends
        for k in range(best, min(j, best + largest) + 1):
            if row[k] < np.inf:
                best = k
    return best


@cache
def _compiled() -> Callable[..., Any]:
    """Return the loop: machine code, or plain where numba is not installed."""
    entries = (most_in_time,)
    return (machine_code((sys.modules[__name__],), entries, inline=False) or entries)[0]
