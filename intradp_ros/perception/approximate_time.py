# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Messages of several topics that belong together by their stamps: a state machine."""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

T = TypeVar('T')


class ApproximateTime(Generic[T]):
    """
    Puts one message of each topic together where their stamps lie within `slop` seconds.

    A set is complete as soon as all topics have such a message; of several of
    a topic the latest is taken that is no later than the others.  No message is in two sets, and
    sets follow each other in time.  Choose a slop below half a period: then a
    message has one partner.  A topic whose stamps go back (a recording that
    begins anew) begins all anew.  `depth` messages of a topic may wait, the
    newest; `unmatched` counts those that found no partners.
    """

    def __init__(self, topics: int, slop: float, depth: int = 10) -> None:
        self._slop, self._depth = slop, depth
        self._waiting: Sequence[deque[tuple[float, T]]] = [deque() for _ in range(topics)]
        self._last = [float('-inf')] * topics
        self.unmatched = 0

    def take(self, topic: int, stamp: float, message: T) -> tuple[T, ...] | None:
        """Take a message; return the set that it completes, in the order of topics, or None."""
        if stamp < self._last[topic]:
            self._begin_anew()
        self._last[topic] = stamp
        waiting = self._waiting[topic]
        waiting.append((stamp, message))
        if len(waiting) > self._depth:
            self._drop(waiting, 1)
        return self._complete()

    def _complete(self) -> tuple[T, ...] | None:
        while all(self._waiting):
            latest = max(waiting[0][0] for waiting in self._waiting)
            for waiting in self._waiting:
                while waiting and latest - waiting[0][0] > self._slop:
                    self._drop(waiting, 1)
            if all(self._waiting) and max(w[0][0] for w in self._waiting) == latest:
                return tuple(self._last_until(waiting, latest) for waiting in self._waiting)
        return None

    def _last_until(self, waiting: deque[tuple[float, T]], stamp: float) -> T:
        self._drop(waiting, sum(when <= stamp for when, _ in waiting) - 1)
        return waiting.popleft()[1]

    def _drop(self, waiting: deque[tuple[float, T]], count: int) -> None:
        for _ in range(count):
            waiting.popleft()
        self.unmatched += count

    def _begin_anew(self) -> None:
        for waiting in self._waiting:
            self._drop(waiting, len(waiting))
        self._last = [float('-inf')] * len(self._last)
