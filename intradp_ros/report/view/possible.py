# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What sites can do at most of what they are asked for: a linear program."""
from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

#: Executors times services above which nothing is said: the program would take too long.
MOST = 1000
Executor = tuple[str, int]


def possible(offered: Mapping[str, float], rates: Mapping[tuple[Executor, str], float],
             ) -> float | None:
    """
    Return the answers a second that no choice of sites can exceed; None for too many executors.

    :param offered: requests a second, by service.
    :param rates: answers a second of an executor that serves one service only.
    """
    if len(rates) > MOST:
        return None
    return _most(tuple(sorted(offered.items())), tuple(sorted(
        (pair, rate) for pair, rate in rates.items() if pair[1] in offered)))


@lru_cache(64)
def _most(offered: tuple[tuple[str, float], ...],
          rates: tuple[tuple[tuple[Executor, str], float], ...]) -> float:
    from scipy.optimize import linprog  # it takes long, and few pages need it
    if not rates:
        return 0.0
    executors = sorted({executor for (executor, _), _ in rates})
    # The share of its time that an executor spends on a service, of each pair.
    rows = [[float(executor == one) for (executor, _), _ in rates] for one in executors] \
        + [[rate * (service == one) for (_, service), rate in rates] for one, _ in offered]
    found = linprog([-rate for _, rate in rates], rows,
                    [1.0] * len(executors) + [count for _, count in offered])
    return round(float(-found.fun), 9)
