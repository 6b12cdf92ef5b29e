# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Messages of several topics that belong together by their stamps: a state machine."""
from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar('T')
#: Messages of a topic in a row that come too late for their sets: then its clock went back.
_LATE_IN_A_ROW = 3


@dataclass
class _Topic(Generic[T]):
    """What waits of a topic in the order of stamps, its last stamps as they came, its last set."""

    depth: int
    waiting: list[tuple[float, T]] = field(default_factory=list)
    came: deque[float] = field(init=False)
    used: float = float('-inf')
    late: int = 0

    def __post_init__(self) -> None:
        self.came = deque(maxlen=self.depth + 1)


class ApproximateTime(Generic[T]):
    """
    Puts one message of each topic together where their stamps lie within `slop` seconds.

    A set is complete as soon as all topics have such a message; of several of
    a topic the latest is taken that is no later than the others.  No message
    is in two sets, and sets follow each other in time.  Choose a slop below
    half a period: then a message has one partner.

    A message may come some places late (middleware and networks reorder): it
    takes its place by its stamp, or is left alone if a later set is complete.
    A topic whose stamps go back behind all of its last ones (a recording that
    begins anew) begins all anew.  `depth` messages of a topic may wait, the
    newest; `unmatched` counts those that found no partners.
    """

    def __init__(self, topics: int, slop: float, depth: int = 10) -> None:
        self._slop, self._depth = slop, depth
        self._topics: Sequence[_Topic[T]] = [_Topic(depth) for _ in range(topics)]
        self.unmatched = 0

    def take(self, topic: int, stamp: float, message: T) -> tuple[T, ...] | None:
        """Take a message; return the set that it completes, in the order of topics, or None."""
        of = self._topics[topic]
        of.late = of.late + 1 if stamp < of.used else 0
        if of.came and (stamp < min(of.came) or of.late >= _LATE_IN_A_ROW):
            self._begin_anew()
        of.came.append(stamp)
        if stamp < of.used:
            self.unmatched += 1
            return None
        of.waiting.insert(bisect_right(of.waiting, stamp, key=lambda item: item[0]),
                          (stamp, message))
        if len(of.waiting) > self._depth:
            self._drop(of, 1)
        return self._complete()

    def _complete(self) -> tuple[T, ...] | None:
        """Return the earliest set; what waits before it may still find a partner that is late."""
        first = [0] * len(self._topics)
        while all(n < len(of.waiting) for n, of in zip(first, self._topics)):
            latest = max(of.waiting[n][0] for n, of in zip(first, self._topics))
            behind = [n for n, (at, of) in enumerate(zip(first, self._topics))
                      if latest - of.waiting[at][0] > self._slop]
            if not behind:
                return tuple(self._last_until(of, latest) for of in self._topics)
            for n in behind:
                first[n] += 1
        return None

    def _last_until(self, of: _Topic[T], stamp: float) -> T:
        self._drop(of, sum(when <= stamp for when, _ in of.waiting) - 1)
        of.used, message = of.waiting.pop(0)
        return message

    def _drop(self, of: _Topic[T], count: int) -> None:
        del of.waiting[:count]
        self.unmatched += count

    def _begin_anew(self) -> None:
        for of in self._topics:
            self._drop(of, len(of.waiting))
            of.came.clear()
            of.used, of.late = float('-inf'), 0
