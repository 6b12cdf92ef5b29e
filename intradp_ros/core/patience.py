# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How long to wait for other processes: seconds of a machine that has time for them.

A process that shares two cores with ten others takes five times as long for what it does; who
waits for it a fixed time by the clock takes a busy machine for a failure.
"""
from __future__ import annotations

from collections.abc import Callable
import os
from pathlib import Path
import time

#: The least part of a second that counts for one; whatever runs, waiting ends.
_LEAST = 0.05
#: Seconds between two looks at what else runs.
_LOOK = 0.02


class Patience:
    """
    Seconds to wait, counted in proportion to the part of the machine that a process gets.

    With as many runnable threads as cores, or fewer, they are those of the clock.

    :param now: seconds of a clock; `share`: the part of a core that a thread gets now.
    """

    def __init__(self, seconds: float, now: Callable[[], float] = time.monotonic,
                 share: Callable[[], float] | None = None) -> None:
        self.seconds = self._left = seconds
        self._now, self._share = now, share or share_of_core
        self._looked = now()

    @property
    def over(self) -> bool:
        """Whether they have passed; to be asked several times a second."""
        now = self._now()
        if now - self._looked < _LOOK:
            return self._left < 0
        self._left -= (now - self._looked) * max(_LEAST, min(1.0, self._share()))
        self._looked = now
        return self._left < 0


def share_of_core() -> float:
    """Return the part of a core that each runnable thread of this machine gets at present."""
    try:
        running = int(Path('/proc/loadavg').read_text().split()[3].partition('/')[0])
    except (OSError, ValueError, IndexError):
        return 1.0
    return (os.cpu_count() or 1) / max(1, running)
