# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Requests as rows of arrays."""
from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Requests that are made at once, or are in a file: an hour of 1,000 in a second, and more.
MAX_REQUESTS = 5_000_000


class Arrivals(NamedTuple):
    """
    Requests in the order of their time, one in each row.

    `time`: seconds, of the first byte at the first gateway.  `remaining`: seconds that are left
    then.  `site` and `service`: indices.  `priority`: higher ones go first.  `stream`: -1 for
    none.  `number`: what random draws follow from.
    """

    time: Floats
    site: Ints
    service: Ints
    remaining: Floats
    priority: Ints
    stream: Ints
    number: Ints

    @property
    def deadline(self) -> Floats:
        """Return by when each answer is due, seconds of the clock of `time`."""
        return self.time + self.remaining


def arrivals(time: ArrayLike, remaining: ArrayLike, site: ArrayLike = 0, service: ArrayLike = 0,
             priority: ArrayLike = 0, stream: ArrayLike = -1, number: ArrayLike | None = None,
             ) -> Arrivals:
    """Return requests sorted by time; what is the same for all may be a single number."""
    when = np.asarray(time, np.float64)
    order = np.argsort(when, kind='stable')

    def floats(values: ArrayLike) -> Floats:
        return np.broadcast_to(np.asarray(values, np.float64), when.shape)[order].copy()

    def ints(values: ArrayLike) -> Ints:
        return np.broadcast_to(np.asarray(values, np.int64), when.shape)[order].copy()

    return Arrivals(when[order], ints(site), ints(service), floats(remaining), ints(priority),
                    ints(stream), np.arange(len(when)) if number is None else ints(number))


def merged(*parts: Arrivals) -> Arrivals:
    """Return the requests of several in the order of their time, numbered anew."""
    columns = [np.concatenate(one) for one in zip(*parts)]
    order = np.argsort(columns[0], kind='stable')
    found = Arrivals(*(one[order] for one in columns))
    return found._replace(number=np.arange(len(order)))


def _check(rate: float, count: float) -> None:
    if not 0 < rate < math.inf or not 0 <= count <= MAX_REQUESTS:
        raise ValueError(f'{count:g} requests at {rate:g} in a second: rates are finite and above '
                         f'0, and there are at most {MAX_REQUESTS} requests')


def poisson(rate: float, count: int, seed: int) -> Floats:
    """Return times of independent requests, `rate` of them in a second in the mean."""
    _check(rate, count)
    return np.cumsum(np.random.default_rng(seed).exponential(1 / rate, count))


def streams_of_robots(robots: int, rate: float, seconds: float, seed: int, jitter: float = 0.0,
                      ) -> tuple[Floats, Ints]:
    """
    Return times of frames, and of which robot each is.

    Each robot sends `rate` frames in a second, from a random time on; a frame comes late by a
    random part of the period, at most `jitter` of it.
    """
    rng = np.random.default_rng(seed)
    _check(rate, robots * seconds * rate)
    frames = np.arange(math.ceil(seconds * rate))
    late = rng.uniform(0, max(jitter, 0.0), (robots, len(frames)))
    when = (frames + rng.uniform(0, 1, (robots, 1)) + late) / rate
    robot = np.broadcast_to(np.arange(robots)[:, None], when.shape)
    order = np.argsort(when, axis=None, kind='stable')
    return when.ravel()[order], robot.ravel()[order].astype(np.int64)
