# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What sites can do at most of what they are asked for: a linear program."""
from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

import numpy as np

from intradp_ros.planning.fluid import most_answered

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
        (pair, rate) for pair, rate in rates.items() if pair[1] in offered and rate > 0)))


@lru_cache(64)
def _most(offered: tuple[tuple[str, float], ...],
          rates: tuple[tuple[tuple[Executor, str], float], ...]) -> float:
    names = {service: row for row, (service, _) in enumerate(offered)}
    numbers = {executor: n for n, executor in enumerate({pair[0]: None for pair, _ in rates})}
    return round(most_answered(
        np.array([numbers[executor] for (executor, _), _ in rates]),
        np.array([names[service] for (_, service), _ in rates]),
        np.array([rate for _, rate in rates]), np.array([count for _, count in offered])), 9)
