# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Frames per second of a schedule with several inferences in flight.

Each frame keeps robot, link and server busy for some time; none of them can
do more than that at once, and no more frames are in flight than may be.  So
the time between two results is the longest of what each is busy for, and the
latency over the frames in flight (Little's law).  That is a bound: frames
in flight wait for each other, most where robot and server compute rows of
the same operators.
"""
from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

#: With several in flight the time between two results is so many times its bound (1.01 to 1.22 of
#: HED by rows, `bench/throughput.py`): they have to promise more than that.
OVERLAP_PAYS = 1.1


@dataclass(frozen=True, slots=True)
class Busy:
    """Seconds for which a frame keeps each busy; of the link the way that is busy for longer."""

    robot: float
    link: float
    server: float


def period(latency: float, busy: Busy, inflight: int) -> float:
    """Return the seconds between two results, with `inflight` inferences in flight."""
    return max(latency / inflight, busy.robot, busy.link, busy.server)


def best_period(latencies: Iterable[tuple[int, float, Busy]], inflight: int) -> tuple[int, float]:
    """
    Return the schedule id of the shortest period, and that period.

    Takes ids with latency and busy times; among equals the least latency wins.
    """
    periods = {(period(latency, busy, inflight), latency, index)
               for index, latency, busy in latencies}
    best, _, index = min(periods)
    return index, best
