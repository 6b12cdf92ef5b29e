# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What an inference should have taken, by the speeds that devices turned out to have meanwhile.

When it began they were not known: a device that just became slow makes every
schedule look bad.  What is learned of schedules must not be what is learned
of devices already.
"""
from __future__ import annotations

from dataclasses import dataclass
import time

from intradp_ros.schedule.schedule import SIDES
from intradp_ros.systems.sharing.book.book import Entry
from intradp_ros.systems.sharing.book.device_speeds import DeviceSpeeds


@dataclass(frozen=True, slots=True)
class LatencySample:
    """
    What an inference that began at `start` took (seconds of a steady clock).

    `expected` are the seconds that it should have taken at the speeds that
    devices were thought to have, late rows and all, `predicted` those without
    late rows at `mbps`.
    """

    start: float
    latency: float
    expected: float
    predicted: float
    mbps: float


def seconds_at(entry: Entry, mbps: float, speeds: tuple[float, float]) -> float:
    """Return what an entry takes at a rate, on a robot and a server that are so much slower."""
    known = entry.anywhere
    return known.seconds(mbps, *speeds) if known else entry.predicted


def in_hindsight(entry: Entry, took: LatencySample, speeds: DeviceSpeeds,
                 load: float) -> float | None:
    """
    Return the seconds that an inference should have taken; None if not known yet.

    `load` is how many times as long the server then computed because of others.
    """
    if entry.anywhere is None or took.predicted <= 0:
        return took.expected
    now = time.monotonic()
    robot, server = (speeds.about(side, took.start, now) if seconds > 0 else 1.0
                     for side, seconds in zip(SIDES, entry.anywhere.busy))
    if robot is None or server is None:
        return None
    then = seconds_at(entry, max(took.mbps, 1e-9), (robot, load * server))
    return took.expected * then / took.predicted
