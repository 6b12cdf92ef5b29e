# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the robot waits for the server: deadlines and silence, then it finishes alone."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import time

from intradp_ros.systems.sharing.judge.lateness import AT_ONCE, LateThreshold

#: Seconds between which the slack is that is not given: other threads of a busy machine may take
#: their turn meanwhile, and nobody should wait longer for nothing.
LEAST_SLACK, MOST_SLACK = 0.1, 0.25
#: By which part of what was predicted, or of what the robot takes alone, an inference is late when
#: the robot begins to work on by itself, if it takes that many seconds alone: beginning too early
#: costs no more than the operator at hand when the rows come.  A shorter inference is late by
#: half of the slack: a busy machine and its transport delay it by as much as it takes.
_LATE, _LONG = 0.05, 0.2
#: Seconds above which no prediction is believed, and how many times as long as the robot takes
#: alone where sharing need not be faster (it saves energy, say).
LONGEST_WAIT, TIMES_ALONE = 60.0, 10.0

#: The robot does not begin to work on so many seconds before an inference should end, or after:
#: preparing own work takes some milliseconds, for which the rows would have to wait.
_NEAR = 5e-3


def clamped_prediction(predicted: float, alone: float, *, faster: bool) -> float:
    """
    Return the seconds of a prediction that waiting may count on: a book may say anything.

    `alone` is what the robot itself measured that it takes by itself (0: not
    yet); `faster` means that sharing was chosen because it takes less.
    """
    most = min(LONGEST_WAIT, alone * (1.0 if faster else TIMES_ALONE) or LONGEST_WAIT)
    return min(predicted, most)


@dataclass(frozen=True, slots=True)
class PatiencePolicy:
    """
    Limits in seconds.

    `silence`: nothing at all was heard from the server; at least three
    round trips and the time of a few chunks are always granted.  From half
    of it on the robot works by itself.
    `late_factor`, `late_slack`: how far an inference may run past what its
    schedule predicts; None for as long as the robot takes alone, so that
    waiting in vain costs no more than giving up too soon (`LEAST_SLACK` to
    `MOST_SLACK`).  `deadline`: hard limit from the start of the inference, 0
    for none.  `away`: a silent server is not counted on any more; until then
    its host may only be busy, or the link cut for a moment, and a robot that
    works meanwhile loses little.
    """

    silence: float = 0.3
    late_factor: float = 2.0
    late_slack: float | None = None
    deadline: float = 0.0
    away: float = 2.0

    def silent_after(self, round_trip: float, chunk_time: float) -> float:
        """Return the seconds without any frame after which the server counts as silent."""
        return max(self.silence, 3 * round_trip + 4 * chunk_time)

    def away_after(self, round_trip: float, chunk_time: float) -> float:
        """Return the seconds of silence after which the server is not counted on."""
        return max(self.away, self.silent_after(round_trip, chunk_time))

    def _slack(self, alone: float) -> float:
        if self.late_slack is not None:
            return self.late_slack
        return min(max(alone or MOST_SLACK, LEAST_SLACK), MOST_SLACK)

    def margin(self, predicted: float, alone: float) -> float:
        """Return the seconds by which an inference is late when the robot works on."""
        least = self._slack(alone) / 2
        if self.late_slack is None and alone >= _LONG:
            least = min(least, _LATE * alone)
        return max(_LATE * predicted * (self.late_factor - 1), least)

    def lateness(self, predicted: float, alone: float) -> LateThreshold:
        """Return from when on an inference is late by what was predicted of it."""
        margin = self.margin(predicted, alone)
        return LateThreshold(predicted + margin, margin)

    def reason_to_work(self, *, ran: float, waited: float, predicted: float, alone: float,
                       quiet: float, round_trip: float, chunk_time: float,
                       at_once: bool = False) -> str | None:
        """
        Return why the robot, which waits anyway, should work on by itself meanwhile, or None.

        The server is quiet for half of what counts as silence, or the
        inference and the wait at hand (`waited`) are late by a margin; what
        was late before, and came, is not a reason.  Or it was chosen to work
        `at_once` when it waits, and the end is not near.  Otherwise as
        `reason_to_stop`.
        """
        if quiet > self.silent_after(round_trip, chunk_time) / 2:
            return f'server silent for {quiet * 1e3:.0f} ms'
        begins = at_once and abs(predicted - ran) > _NEAR
        late = AT_ONCE if begins else self.lateness(predicted, alone)
        if ran > late.ran and waited > late.waited:
            return f'late: {ran * 1e3:.0f} ms, predicted {predicted * 1e3:.0f} ms'
        return None

    def reason_to_stop(self, *, elapsed: float, ran: float, predicted: float, alone: float,
                       quiet: float, round_trip: float, chunk_time: float) -> str | None:
        """
        Return why the robot should stop waiting, or None to go on.

        Of the seconds `elapsed` since the inference began the robot's process
        ran for `ran`: the server is not late, nor silent (`quiet`), for what
        the robot itself was stopped.  `alone` is what it takes for an
        inference by itself, 0 if that is not known.
        """
        if quiet > self.away_after(round_trip, chunk_time):
            return f'server silent for {quiet * 1e3:.0f} ms'
        if self.deadline and elapsed > self.deadline:
            return f'deadline of {self.deadline * 1e3:.0f} ms passed'
        late = predicted * self.late_factor + self._slack(alone)
        if ran > late:
            return f'late: {ran * 1e3:.0f} ms, predicted {predicted * 1e3:.0f} ms'
        return None


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """
    What the robot sees of the server at a moment.

    `agreed` means that both have a common book; `awake` counts the seconds
    for which the robot's process ran, `quiet` those of them in which nothing
    was heard; a chunk has `chunk_bytes` now.
    """

    patience: PatiencePolicy
    agreed: bool
    awake: float
    quiet: float
    chunk_bytes: int


@dataclass(frozen=True)
class WaitPolicy:
    """
    How long an inference that began at `start` waits, when the robot was `awake` seconds.

    It should take `predicted` seconds, and `alone` by the robot itself (0: not
    known), over a link of a round trip in seconds and a rate in bytes per
    second.  `at_once` means that the robot works on whenever it waits, `silent`
    that the server was when the inference began.
    """

    server_status: Callable[[], ServerStatus]
    start: float
    awake: float
    predicted: float
    alone: float
    round_trip: float
    rate: float
    at_once: bool = False
    silent: bool = False

    def stop(self, _waited: float) -> str | None:
        """Return why the inference is given up, None to wait on."""
        status = self.server_status()
        if not status.agreed:
            return 'the server no longer knows this session'
        return status.patience.reason_to_stop(elapsed=time.monotonic() - self.start,
                                              **self._figures(status, self._quiet(status)))

    def work(self, waited: float) -> str | None:
        """Return why the robot works on after so many seconds of a wait, None to go on waiting."""
        status = self.server_status()
        quiet = status.quiet if self.silent else self._quiet(status)
        return status.patience.reason_to_work(waited=waited, at_once=self.at_once,
                                              **self._figures(status, quiet))

    def _quiet(self, status: ServerStatus) -> float:
        """Return the seconds of this inference in which nothing was heard."""
        return min(status.quiet, status.awake - self.awake)

    def _figures(self, status: ServerStatus, quiet: float) -> dict[str, float]:
        return {'ran': status.awake - self.awake, 'predicted': self.predicted,
                'alone': self.alone, 'quiet': quiet, 'round_trip': self.round_trip,
                'chunk_time': status.chunk_bytes / self.rate}
