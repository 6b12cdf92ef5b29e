# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which numbers of a sender were seen: a message that comes again is nothing new."""
from __future__ import annotations

#: Numbers below the highest that may still come: messages overtake each other.
WINDOW = 1024
_SEEN = (1 << WINDOW) - 1


class ReplayWindow:
    """
    Sequence numbers of one sender, as in RFC 4303 (appendix A2).

    Each is taken once; those that are far below the highest never.  A sender counts from 1 for
    each run or connection, never by a clock.  `late` says that the first that comes is the first
    that was meant for this receiver: no lower one is taken.
    """

    def __init__(self, *, late: bool = False) -> None:
        self._highest = -1
        self._before = _SEEN if late else 1
        self._seen = 0  # bit k: the highest less k

    def take(self, number: int) -> bool:
        """Return whether a number is new; it is not from then on."""
        ahead = number - self._highest
        if self._highest < 0:
            self._highest, self._seen = number, self._before
            return True
        if ahead >= WINDOW:
            self._highest, self._seen = number, 1
            return True
        if ahead > 0:
            self._highest, self._seen = number, (self._seen << ahead | 1) & _SEEN
            return True
        if -ahead >= WINDOW or self._seen >> -ahead & 1:
            return False
        self._seen |= 1 << -ahead
        return True
