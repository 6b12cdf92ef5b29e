# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Letting a shaped link change its rate as a recorded one did."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
import threading
import time
from typing import Protocol

from intradp_lab.emulation.trace import LinkTrace

#: Seconds between two rates: what recordings resolve.
PERIOD = 0.1


class VariableLink(Protocol):
    """A link whose rate can be set while it carries data."""

    def set_rate(self, mbit: float) -> None:
        """Set the rate of both ways in 1e6 bits per second."""

    def cut(self) -> None:
        """Interrupt the link."""

    def restore(self) -> None:
        """Join it again."""


class Replay:
    """
    Sets a link's rate from a trace, in recorded order, in a thread of its own.

    After the last rate the trace begins again.  `lag` is by how many seconds
    the latest change came after its time, at worst.
    """

    def __init__(self, link: VariableLink, trace: LinkTrace,
                 failed: Callable[[Exception], None]) -> None:
        self.link, self.trace = link, trace.resampled(PERIOD)
        self.lag = 0.0
        self._failed = failed
        self._begin = time.monotonic()
        self._stop = threading.Event()
        self._set: float | None = None
        self._apply(self.trace.rate_at(0.0))
        self._thread = threading.Thread(target=self._run, name='link-replay', daemon=True)
        self._thread.start()

    @property
    def elapsed(self) -> float:
        """Seconds since the trace began."""
        return time.monotonic() - self._begin

    @property
    def mbps(self) -> float:
        """The rate that the link should have now."""
        return self.trace.rate_at(self.elapsed)

    def close(self) -> None:
        """Leave the link at the rate that it has."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        step = 1
        while not self._stop.wait(max(0.0, step * PERIOD - self.elapsed)):
            self.lag = max(self.lag, self.elapsed - step * PERIOD)
            try:
                self._apply(self.trace.rate_at((step + 0.5) * PERIOD))
            except Exception as error:  # reported to the one that runs the replay, which is over
                self._failed(error)
                return
            step = max(step + 1, int(self.elapsed / PERIOD))

    def _apply(self, mbps: float) -> None:
        if mbps == self._set:
            return
        if mbps == 0:
            self.link.cut()
        else:
            self.link.set_rate(mbps)
            if self._set == 0:
                self.link.restore()
        self._set = mbps


@contextmanager
def replaying(link: VariableLink, trace: LinkTrace) -> Iterator[Replay]:
    """
    Replay a trace on a link while the context lasts.

    An outage at the end is repaired.  If the link refused a rate meanwhile,
    its error is raised at the end.
    """
    errors: list[Exception] = []
    replay = Replay(link, trace, errors.append)
    try:
        yield replay
    finally:
        replay.close()
        if 0.0 in replay.trace.mbps:
            link.restore()
    if errors:
        raise errors[0]
