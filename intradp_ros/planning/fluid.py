# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What executors can answer at most if requests could be cut at will: a linear program."""
from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]


def most_answered(executors: npt.NDArray[Any], rows: npt.NDArray[Any], rates: Floats,
                  offered: Floats) -> float:
    """
    Return the answers a second that no division of the executors' time can exceed.

    Each place is a service on an executor: its executor's number, the row of `offered` (requests
    a second) that it answers, and its rate (answers a second, above 0) if it had all the time.
    The program is exact, for hundreds of executors at most.
    """
    if not len(rates):
        return 0.0
    from scipy.optimize import linprog  # they take long to import, and few need them
    from scipy.sparse import coo_array
    lanes, lane = np.unique(executors, return_inverse=True)
    used, row = np.unique(rows, return_inverse=True)
    one, number = np.ones(len(rates)), np.arange(len(rates))
    matrix = coo_array((np.concatenate([1 / rates, one]), (
        np.concatenate([lane, len(lanes) + row]), np.concatenate([number, number]))),
        shape=(len(lanes) + len(used), len(rates)))
    solved = linprog(-one, matrix.tocsr(), np.concatenate([np.ones(len(lanes)), offered[used]]),
                     method='highs')
    return float(-solved.fun)
