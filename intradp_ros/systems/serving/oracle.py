# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What no policy can exceed, with all arrivals known."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving import oracle_kernels

Floats = NDArray[np.float64]


def bound(arrival: ArrayLike, deadline: ArrayLike, service: ArrayLike,
          seconds: Sequence[Sequence[float]], executors: float,
          holders: Sequence[float] | None = None) -> int:
    """
    Return a number of requests above which nothing can serve in time.

    `service` has the index of each request's service, `seconds[s][b - 1]` the time of a batch of
    b of service s, `executors` how many there are, and `holders[s]` how many of them hold s.

    Each request needs at least its share of the batch that is best by request, between arrival
    and deadline.  Such work, if it may be cut, is what sets of work can be done together: of
    these the greedy choice, the service that needs least first, has the most requests.

    :raises ValueError: if times are not numbers, or a request has a service that is not in
        `seconds`.
    """
    arrived, due = times(arrival, deadline)
    kind = np.asarray(service, np.int64)
    tables = [np.array(checked(row)) for row in seconds]
    if kind.shape != arrived.shape or (len(kind) and not 0 <= kind.min() <= kind.max()
                                       < len(tables)):
        raise ValueError(f'services are numbers below {len(tables)}, one for each request')
    work = np.array([(row / np.arange(1, len(row) + 1)).min() for row in tables])
    alone = np.array([row.min() for row in tables])
    order = np.argsort(arrived, kind='stable')
    order = order[(due - arrived + oracle_kernels.ROUNDING)[order] >= alone[kind[order]]]
    arrived, due, kind = arrived[order], due[order], kind[order]
    counted, total, before = kind >= len(work), 0.0, 0.0
    for s in np.argsort(work, kind='stable'):
        own = kind == s
        counted |= own
        done = _most_work(arrived[counted], due[counted], work[kind[counted]], executors)
        if holders is not None:
            done = min(done, before + _most_work(arrived[own], due[own], work[kind[own]],
                                                 holders[s]))
        total, before = total + (done - before) / work[s], done
    return math.floor(total * (1 + 1e-12) + 1e-6)


def _most_work(arrived: Floats, due: Floats, work: Floats, executors: float) -> float:
    if not len(arrived) or executors <= 0:
        return 0.0
    return float(_compiled()(arrived, due, work, float(executors)))


def times(arrival: ArrayLike, deadline: ArrayLike) -> tuple[Floats, Floats]:
    """Return seconds of arrivals and deadlines; ValueError if they are not."""
    arrived, due = np.asarray(arrival, float), np.asarray(deadline, float)
    if arrived.ndim != 1 or arrived.shape != due.shape:
        raise ValueError(f'arrivals and deadlines are rows of equal length, got shapes '
                         f'{arrived.shape} and {due.shape}')
    if not np.isfinite(arrived).all() or np.isnan(due).any():
        raise ValueError('arrivals and deadlines must be numbers')
    return arrived, due


def checked(seconds: Sequence[float]) -> list[float]:
    """Return times of batches by rows; ValueError if they are not."""
    if not len(seconds) or not min(seconds) > 0 or math.isinf(min(seconds)):
        raise ValueError(f'batches take seconds above 0, one of them not for ever; got {seconds}')
    return [float(one) for one in seconds]


@cache
def _compiled() -> Callable[..., Any]:
    """Return the loop: machine code, or plain where numba is not installed."""
    entries = (oracle_kernels.most_work,)
    return (machine_code((oracle_kernels,), entries, inline=False) or entries)[0]
