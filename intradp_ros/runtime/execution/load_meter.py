# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How many want a processor at a time, and what that means for each of them.

Who wants it while `n - 1` others do gets one part in `n` of it.  Others come
and go by themselves, so what is to be expected of them is the part of the
time for which they wanted it lately.  (In a queue that serves all in turn the
mean number that an arrival finds; Kleinrock, Queueing Systems 2, 4.4.)
"""
from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
import math

#: Seconds in which what is remembered fades to a third.
MEMORY = 2.0


@dataclass
class _Wanted:
    """For which part of the time a party wanted the processor, up to `at`."""

    part: float
    at: float
    wants: bool = False

    def until(self, now: float, memory: float) -> float:
        """Return that part, with the most recent time weighing most."""
        goal = float(self.wants)
        return goal + (self.part - goal) * math.exp(-max(0.0, now - self.at) / memory)


@dataclass
class LoadMeter:
    """A state machine over (event, time in seconds); a processor computes `lanes` at a time."""

    lanes: int = 1
    memory: float = MEMORY
    _parties: dict[Hashable, _Wanted] = field(default_factory=dict)

    def wants(self, party: Hashable, wanted: bool, now: float) -> None:
        """Take note that a party wants the processor from now on, or no more."""
        known = self._parties.setdefault(party, _Wanted(0.0, now))
        known.part, known.at, known.wants = known.until(now, self.memory), now, wanted

    def forget(self, party: Hashable) -> None:
        """Forget a party that has gone."""
        self._parties.pop(party, None)

    def load(self, now: float, *, without: Hashable = None) -> float:
        """Return how many parties want the processor, in the mean; save for one."""
        return sum(known.until(now, self.memory)
                   for party, known in self._parties.items() if party != without)

    def factor(self, party: Hashable, now: float) -> float:
        """Return how many times as long as alone a party has to expect to compute."""
        return max(1.0, (1.0 + self.load(now, without=party)) / self.lanes)
