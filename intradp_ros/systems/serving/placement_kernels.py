# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The loop of the greedy placement, for machine code or plain Python."""
from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]

#: Gains, requests per second, below which nothing is placed.
LEAST = 1e-9


class Demand(NamedTuple):
    """
    What is asked for, and what lanes (executors) can do.

    `asked[i, s]`: requests for service s that come to site i, in a second.  `rate[n, s]`: how
    many of them lane n answers in a second if it does nothing else; 0 where it cannot.
    `nbytes[s]` is what a service takes of a device's memory on each of its lanes, `room[d]` what
    a device has.  `device[n]` and `site[n]`: where a lane is.  `travels[s]`: whether requests may
    be answered at another site in time.  `shares[s, t]`: whether both may be on one lane.
    `close`: what an answer at the own site counts more than another, so that ties save transfers.
    `by_memory`: whether gains count by byte.
    """

    asked: Floats
    rate: Floats
    nbytes: Floats
    room: Floats
    device: Ints
    site: Ints
    travels: Flags
    shares: Flags
    close: float
    by_memory: bool


class Left(NamedTuple):
    """
    What is not used up while services are placed.

    `home[i, s]` and `all_[s]`: requests per second that nobody answers yet; `lane[n]`: share of a
    lane's time; `room[d]`: bytes.  `placed[n, s]`.
    """

    home: Floats
    all_: Floats
    lane: Floats
    room: Floats
    placed: Flags


def gain(d: Demand, left: Left, lane: int, service: int) -> float:
    """Return what a placement adds; it never grows while others are made."""
    if left.placed[lane, service] or d.nbytes[service] > left.room[d.device[lane]]:
        return 0.0
    most = left.lane[lane] * d.rate[lane, service]
    own = min(left.home[d.site[lane], service], left.all_[service], most)
    answered = min(left.all_[service], most) if d.travels[service] else own
    if answered <= LEAST:
        return 0.0
    for other in range(len(d.nbytes)):
        if left.placed[lane, other] and not d.shares[service, other]:
            return 0.0
    value = answered + d.close * own
    if d.by_memory and d.nbytes[service] > 0:
        value /= d.nbytes[service]
    return float(value)


def put(d: Demand, left: Left, lane: int, service: int) -> float:
    """Place a service on a lane that takes what it can of the requests; return how many."""
    left.placed[lane, service] = True
    left.room[d.device[lane]] -= d.nbytes[service]
    most = left.lane[lane] * d.rate[lane, service]
    own = min(left.home[d.site[lane], service], left.all_[service], most)
    answered = min(left.all_[service], most) if d.travels[service] else own
    left.home[d.site[lane], service] -= own
    left.all_[service] -= answered
    if d.rate[lane, service] > 0:
        left.lane[lane] -= answered / d.rate[lane, service]
    return float(answered)


def greedy(d: Demand, left: Left) -> float:
    """
    Make the placement of the largest gain, as long as one gains; return requests per second.

    Gains never grow, so one that is still the largest after it was counted anew is the largest
    of all.  Equal gains go to the first lane, then to the first service.
    """
    services = len(d.nbytes)
    heap = [(0.0, 0) for _ in range(0)]
    for lane in range(len(left.lane)):
        for service in range(services):
            value = gain(d, left, lane, service)
            if value > 0.0:
                heap.append((-value, lane * services + service))
    heapify(heap)
    total = 0.0
    while len(heap) > 0:
        value, at = heappop(heap)
        lane, service = at // services, at % services
        now = gain(d, left, lane, service)
        if now <= 0.0:
            continue
        if len(heap) > 0 and (-now, at) > heap[0]:
            heappush(heap, (-now, at))
            continue
        total += put(d, left, lane, service)
    return total
