# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The time in which this process could hear: its own stops are nobody's silence."""
from __future__ import annotations

import threading


class AwakeClock:
    """
    Counts the seconds in which the process ran, by how often its threads look at it.

    A busy host may stop a process for seconds; what was sent to it meanwhile
    still waits to be read when it goes on.  Of the time between two looks no
    more counts than `step` seconds, so somebody has to look more often than
    that; the heartbeat does.  Thread-safe.

    Raises
    ------
    ValueError
        If `step` is not positive.

    """

    def __init__(self, now: float, step: float) -> None:
        if not step > 0:
            raise ValueError(f'step must be positive seconds, got {step}')
        self._looked, self._awake, self._step = now, 0.0, step
        self._looking = threading.Lock()

    def read(self, now: float) -> float:
        """Return the seconds awake since the beginning; `now` is on a steady clock."""
        with self._looking:
            self._awake += min(max(0.0, now - self._looked), self._step)
            self._looked = max(self._looked, now)
            return self._awake
