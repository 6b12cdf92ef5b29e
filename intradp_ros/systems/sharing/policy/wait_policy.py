# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Why one shared inference is given up, or worked on while rows are awaited."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import time

from intradp_ros.systems.sharing.policy.patience import PatiencePolicy


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
