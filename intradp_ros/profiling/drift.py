# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Noticing that a device has become slower or faster than its profile says."""
from __future__ import annotations

from collections import deque
from dataclasses import replace
import math
from statistics import median

from intradp_ros.link.quantised_tracker import Steps
from intradp_ros.profiling.profile import Profile

#: Step of a meter that reports only what books do not know: they say what schedules take on
#: devices of half to four times their profiled seconds.
BEYOND_BOOKS = 4.0


class DriftMeter:
    """
    Compares what operators take with what a profile says.

    A throttled board, or a server that others use as well, takes longer by
    much the same factor everywhere.  The median over `window` inferences is
    the factor; it counts once it is more than three quarters of a step away
    from the one before.  Factors are powers of `step`, so that schedules for
    a factor that came before are found again.
    """

    def __init__(self, window: int = 20, step: float = 1.5) -> None:
        if window < 1:
            raise ValueError(f'a window must be 1 or more, got {window}')
        self._steps = Steps(step, 1.0)
        self._ratios: deque[float] = deque(maxlen=window)

    @property
    def factor(self) -> float:
        """How many times as long as by the profile operators take."""
        return self._steps.value

    def add(self, measured: float, expected: float) -> float | None:
        """
        Take one inference's seconds of compute; return the new factor if it has changed.

        What is not positive says nothing and is ignored.
        """
        if not (0 < measured < math.inf and 0 < expected < math.inf):
            return None
        self._ratios.append(measured / expected)
        if len(self._ratios) < (self._ratios.maxlen or 0):
            return None
        changed = self._steps.follow(median(self._ratios))
        if changed is not None:
            self._ratios.clear()
        return changed


def slowed(profile: Profile, factor: float) -> Profile:
    """Return the profile of a device that takes `factor` times as long for everything."""
    return replace(profile, scale=profile.scale * factor,
                   whole_seconds=profile.whole_seconds * factor,
                   least_seconds=profile.least_seconds * factor,
                   moving=profile.moving.scaled(factor),
                   joining=profile.joining.scaled(factor))
