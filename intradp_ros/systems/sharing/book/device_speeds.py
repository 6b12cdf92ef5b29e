# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How many times as long as profiled the devices of a session take now."""
from __future__ import annotations

from collections import deque
import math
from statistics import median
import threading

from intradp_ros.schedule.schedule import SIDES

#: A device that computes less than this part of an inference's compute says little.
LEAST_PART = 0.1
#: Beyond these a measurement is taken for one of them.
LEAST, MOST = 0.125, 16.0


class DeviceSpeeds:
    """
    Factors of both devices, from what their compute took in the last inferences.

    A factor is the median of the last five ones, so it follows a device
    that changes within three; where a device was not seen to compute for
    long, its factor's logarithm goes to 0 with a half-life of `forget`
    seconds: what was given up gets another chance.  Thread-safe.
    """

    def __init__(self, forget: float = 30.0) -> None:
        #: When, and the logarithm of a factor.
        self._seen = {side: deque[tuple[float, float]](maxlen=5) for side in SIDES}
        self._forget, self._lock = forget, threading.Lock()

    def note(self, side: str, measured: float, profiled: float, whole: float, now: float) -> None:
        """
        Take the seconds in which a device computed for an inference.

        `profiled` is what it should have taken, `whole` what it takes for all
        of the model: of much less than that a measurement is mostly noise.
        """
        if not (0 < measured < math.inf and LEAST_PART * whole <= profiled < math.inf
                and profiled > 0):
            return
        with self._lock:
            ratio = min(max(measured / profiled, LEAST), MOST)
            self._seen[side].append((now, math.log(ratio)))

    def factor(self, side: str, now: float) -> float:
        """Return how many times as long as profiled a device takes; 1 if that is not known."""
        with self._lock:
            seen = list(self._seen[side])
        if not seen:
            return 1.0
        newest, _ = seen[-1]
        left = 0.5 ** (max(0.0, now - newest) / self._forget)
        return math.exp(left * median(log for _, log in seen))

    def about(self, side: str, start: float, now: float) -> float | None:
        """
        Return the factor about the time of an inference that began at `start`.

        It is the median of what was measured just before, in it, and just
        after: what the device shows in this inference alone is not a matter of its
        speed.  None if what comes after is not known yet; if nothing was
        measured since, as `factor`.
        """
        with self._lock:
            seen = list(self._seen[side])
        first = next((k for k, (when, _) in enumerate(seen) if when >= start), None)
        if first is None:
            return self.factor(side, now)
        if first == len(seen) - 1:
            return None
        return math.exp(median(log for _, log in seen[max(0, first - 1):first + 2]))

    def reset(self) -> None:
        """Forget everything: another profile counts."""
        with self._lock:
            for seen in self._seen.values():
                seen.clear()
