# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Frames of one robot's sensor: in order over all executors, the newest first where that is wanted.

A state machine without clock; who has it calls it under a lock.
"""
from __future__ import annotations

from dataclasses import dataclass, field
import math
from typing import Generic, TypeVar

End = TypeVar('End')
#: Frames of one stream that may be in flight.
MOST_FRAMES = 256


class StreamError(ValueError):
    """A frame that a stream does not take; the text says why."""


@dataclass
class Stream(Generic[End]):
    """
    A stream of frames, numbered upwards; `keep` is 'all' or 'newest', `rate` in frames per second.

    Ends are handed out in the order of the frames: one that is there early waits for those before
    it, each of which has an end of its own, at the latest when its time is over.
    """

    keep: str = 'all'
    rate: float = math.inf
    _order: dict[int, list[End]] = field(default_factory=dict)
    _waiting: list[int] = field(default_factory=list)
    _newest: int = -1
    _level: float = 1.0
    _since: float = -math.inf

    def came(self, frame: int, now: float) -> tuple[list[int], bool]:
        """
        Take a frame; return the waiting ones that it replaces, and whether it is above the rate.

        :raises StreamError: if it is not newer than the last, or too many are in flight.
        """
        if frame <= self._newest:
            raise StreamError(f'frame {frame} came after frame {self._newest}: number frames '
                              'upwards')
        if len(self._order) >= MOST_FRAMES:
            raise StreamError(f'{MOST_FRAMES} frames of this stream are in flight')
        self._newest = frame
        self._order[frame] = []
        replaced = list(self._waiting) if self.keep == 'newest' else []
        self._waiting.append(frame)
        return replaced, self._above_rate(now)

    def started(self, frame: int) -> None:
        """Note that a frame is being computed: no newer one replaces it."""
        if frame in self._waiting:
            self._waiting.remove(frame)

    def ended(self, frame: int, end: End) -> list[tuple[int, End]]:
        """Take the end of a frame; return what may be handed out now, in order."""
        if self._order.get(frame, [end]):
            return []
        self.started(frame)
        self._order[frame].append(end)
        out = []
        for first, ends in list(self._order.items()):
            if not ends:
                break
            out.append((first, ends[0]))
            del self._order[first]
        return out

    @property
    def idle(self) -> bool:
        """Return whether no frame is in flight."""
        return not self._order

    def _above_rate(self, now: float) -> bool:
        """Say whether frames come faster than declared: these give way first. One may be early."""
        if math.isinf(self.rate):
            return False
        self._level = min(2.0, self._level + (now - self._since) * self.rate) \
            if now > self._since else self._level
        self._since = max(now, self._since)
        above = self._level < 1.0
        self._level -= not above
        return above
