# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the robot waits for the server before it finishes an inference alone."""
from __future__ import annotations

from dataclasses import dataclass

#: Seconds between which the slack is that is not given: other threads of a busy machine may take
#: their turn meanwhile, and nobody should wait longer for nothing.
LEAST_SLACK, MOST_SLACK = 0.1, 0.25
#: Seconds above which no prediction is believed, and how many times as long as the robot takes
#: alone where sharing need not be faster (it saves energy, say).
LONGEST_WAIT, TIMES_ALONE = 60.0, 10.0


def believable(predicted: float, alone: float, *, faster: bool) -> float:
    """
    Return the seconds of a prediction that waiting may count on: a book may say anything.

    `alone` is what the robot itself measured that it takes by itself (0: not
    yet); `faster` tells that sharing was chosen because it takes less.
    """
    most = min(LONGEST_WAIT, alone * (1.0 if faster else TIMES_ALONE) or LONGEST_WAIT)
    return min(predicted, most)


@dataclass(frozen=True, slots=True)
class PatiencePolicy:
    """
    Limits in seconds.

    `silence`: nothing at all was heard from the server; at least three
    round trips and the time of a few chunks are always granted.
    `late_factor`, `late_slack`: how far an inference may run past what its
    schedule predicts; None for as long as the robot takes alone, so that
    waiting in vain costs no more than giving up too soon (`LEAST_SLACK` to
    `MOST_SLACK`).  `deadline`: hard limit from the start of the inference, 0
    for none.
    """

    silence: float = 0.3
    late_factor: float = 2.0
    late_slack: float | None = None
    deadline: float = 0.0

    def reason_to_stop(self, *, elapsed: float, predicted: float, alone: float, quiet: float,
                       round_trip: float, chunk_time: float) -> str | None:
        """
        Return why the robot should stop waiting, or None to go on.

        `alone` is what it takes for an inference by itself, 0 if that is not known.
        """
        silence = max(self.silence, 3 * round_trip + 4 * chunk_time)
        if quiet > silence:
            return f'server silent for {quiet * 1e3:.0f} ms'
        if self.deadline and elapsed > self.deadline:
            return f'deadline of {self.deadline * 1e3:.0f} ms passed'
        slack = self.late_slack
        if slack is None:
            slack = min(max(alone or MOST_SLACK, LEAST_SLACK), MOST_SLACK)
        late = predicted * self.late_factor + slack
        if elapsed > late:
            return f'late: {elapsed * 1e3:.0f} ms, predicted {predicted * 1e3:.0f} ms'
        return None
