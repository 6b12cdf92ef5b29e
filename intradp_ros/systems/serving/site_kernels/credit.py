# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What each service achieved: fates by service, and frames in time against frames required."""
from __future__ import annotations

from intradp_ros.systems.serving.site_arrays import Ints


def count(counters: Ints, service: int, fate: int) -> None:
    """Count the one fate of a request; `counters` has a row for each service."""
    counters[service, fate] += 1


def frame_credit(in_time: int, seconds: float, rate: float) -> float:
    """
    Return what frames of a stream are worth, in frames.

    120 frames in time in 4 s are 30 per second; where 60 are required each counts half.
    """
    if seconds <= 0 or rate <= 0:
        return 0.0
    return in_time * min(1.0, in_time / seconds / rate)
