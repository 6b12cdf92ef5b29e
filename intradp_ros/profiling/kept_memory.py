# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Keeps the memory of a process that infers for days where it was.

What inferences free stays with a prepared process (`prepare_process`), so
that the next one needs no new pages.  But where rows are late, or schedules
change, an inference computes rows of other counts than those before: oneDNN
makes a primitive for each new shape and keeps it, and these small blocks lie
between the large ones, so that the heap gets holes that the next inference's
tensors do not fit into.  It grew by half of the whole process that way,
nothing of it in use.
"""
from __future__ import annotations

from collections.abc import Callable
import math
import os
from pathlib import Path
import time

from intradp_ros.profiling.machine import trim_heap

#: Bytes by which memory may exceed that of usual inferences.
SLACK = 8 * 2**20
#: Of the time that giving memory back may take: pages that are missing cost time, too.
SHARE = 0.02
#: Seconds after which it is tried whether what is usual now need be more than it once was.
PATIENCE = 60.0
_PAGE = os.sysconf('SC_PAGE_SIZE')


class KeptMemory:
    """
    Gives memory back once inferences have left more of it unused than usual.

    What the first inference after a release left counts as usual, and that
    may have been a large one.  So where it was less after another release,
    it is released again after `PATIENCE` seconds.
    """

    def __init__(self, held: Callable[[], int] | None = None,
                 release: Callable[[], None] = trim_heap,
                 clock: Callable[[], float] = time.monotonic) -> None:
        self._held, self._release, self._clock = held or private_bytes, release, clock
        self._usual = self._held()  # bytes after the first usual inference since a release
        self._least: float = math.inf  # of these, ever
        self._begins = True  # there was none yet
        self._rests_until = float('-inf')
        self._released = self._clock()

    def look(self, *, usual: bool = True) -> bool:
        """
        Look how much there is, between inferences; return whether some was given back.

        After an inference that was not `usual` (it computed what another should
        have) what it left counts as too much.
        """
        held, start = self._held(), self._clock()
        if self._begins and usual:
            self._usual, self._begins = held, False
            self._least = min(self._least, held)
        again = start >= self._released + PATIENCE
        if start < self._rests_until \
                or held <= (min(self._least, self._usual) if again else self._usual) + SLACK:
            return False
        self._release()
        self._released = self._clock()
        self._begins, self._rests_until = True, start + (self._released - start) / SHARE
        return True


def private_bytes() -> int:
    """Return how much memory the process holds besides mapped files; 0 if it cannot be known."""
    try:
        _, resident, mapped, *_ = map(int, Path('/proc/self/statm').read_text().split())
    except OSError:  # not Linux
        return 0
    return (resident - mapped) * _PAGE
