# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""For how long a server is left alone after a shared inference failed."""
from __future__ import annotations

import math

FIRST_PAUSE = 0.5  # seconds after a failure
LONGEST_PAUSE = 8.0  # seconds after failures in a row
FREE_SILENCES = 3  # in a row that end with the first answer
_MOST_DOUBLINGS = 30  # days of failures must not be more than a number holds


class SharingPause:
    """
    Decides by what was heard when to share again; times are seconds of one steady clock.

    A server that was silent and answers again is shared with at once: its
    host or the link was busy for a moment.  One that fails while it answers
    is left alone, with each failure in a row for twice as long; so is one
    that fell silent in more than `FREE_SILENCES` shared inferences in a row,
    as pings that get through do not mean that tensors do.  So inferences
    that all fail are ever fewer, down to one in `LONGEST_PAUSE`.
    """

    def __init__(self) -> None:
        self.until = -math.inf  # when the pause ends
        self._failures = 0  # in a row that cost a pause
        self._silences = 0  # in a row that cost none
        self._may_end = self._counted = False  # at the next answer; whether the last one cost one

    @property
    def length(self) -> float:
        """Seconds of the pause after the next failure that costs one."""
        return min(FIRST_PAUSE * 2.0 ** min(self._failures, _MOST_DOUBLINGS), LONGEST_PAUSE)

    def failed(self, silent: bool, now: float) -> bool:
        """
        Take a failure; return whether the first answer ends the pause.

        `silent` means that nothing at all was heard for a while.
        """
        self.until = now + self.length
        self._may_end = self._silences < FREE_SILENCES
        self._counted = not (silent and self._may_end)
        if self._counted:
            self._failures += 1
        else:
            self._silences += 1
        return not self._counted

    def answered(self, silent: bool) -> bool:
        """
        Take an answer to a ping; return whether it ends the pause.

        `silent` is as for `failed`, before the failure or since.
        """
        ends, self._may_end = silent and self._may_end, False
        if ends:
            self.until = -math.inf
        if ends and self._counted:  # it shows only now that it was a silence
            self._failures, self._silences = self._failures - 1, self._silences + 1
        return ends

    def succeeded(self) -> None:
        """Take a shared inference that both sides finished."""
        self._failures = self._silences = 0
