# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The link's rate as its receiver sees it, also when traffic comes in short bursts.

Only time in which the link was busy shows its rate.  A chunk that was sent
before its predecessor had arrived waited in a queue, and the time between
the two arrivals is the time its bytes took; one that was sent later found
the link idle, and the time before it says nothing.  After an interruption
says nothing either what should have been there before its end: a transport
that keeps the order delivers at once what it held back for a lost message.
Whether a chunk waited follows from the sending times: their offset to the receiver's clock is the
smallest delay seen, less the time of the chunk's own bytes.

A link that is faster than its sender never has a queue.  Chunks that were
handed over at `STREAMING` or faster count as back to back even so; the rate
is then that of the sender, which is all that a transfer can get.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

#: Bytes per second at which a sender is taken to send without pause.
STREAMING = 10e6
_NS = 1_000_000_000
#: An idle time below this part of a gap is not worth breaking a run for.
_TOLERANCE = 0.1
_FEWEST = 3
#: Nanoseconds of a run, after which another begins, and of runs that are not too old.
_SEGMENT, _MEMORY = 50_000_000, 400_000_000
#: Delays of chunks that are remembered.
_DELAYS = 64
#: A shorter run with fewer bytes shows delays of single messages, not of the link.
SHOWS_RATE_BYTES, SHOWS_RATE_NS = 4096, 20_000_000
#: A gap this many times longer than the rate explains is taken for an interruption.
_OUTAGE = 8.0


@dataclass(slots=True)
class _Run:
    """Chunks that arrived back to back; `nbytes` are those that came within the span."""

    start: int
    end: int
    nbytes: int = 0

    @property
    def shows_rate(self) -> bool:
        """Whether the run is large or long enough to show the link's rate."""
        return self.nbytes >= SHOWS_RATE_BYTES or (
            self.nbytes > 0 and self.end - self.start >= SHOWS_RATE_NS)


class ReceiverRate:
    """
    Rate of a path in bytes per second from the arrivals of chunks.

    Times are nanoseconds.  Sending times may be on another clock than
    arrivals, with any offset.  The estimate is the mean over the time that the
    link was busy in the last `horizon` seconds, or in the last three runs of
    chunks if there are fewer, but of none that ended `_MEMORY` before the
    newest; runs of a few bytes, or much smaller than the
    largest, are too noisy to take part.  (The largest of the runs would be too high, by the
    noise of their arrivals; a sender may filter so for its window.)  A long horizon
    hears too late of a link that collapses; who wants a calmer rate has predictors.

    One thread at a time may use it.
    """

    def __init__(self, horizon: float = 0.1) -> None:
        self._horizon = int(horizon * _NS)
        self._runs: deque[_Run] = deque()
        self._current: _Run | None = None
        self._sent = 0
        self._doubted = False
        self._resumed = 0  # when the last interruption ended
        self._delays: deque[tuple[int, int]] = deque(maxlen=_DELAYS)

    def arrived(self, arrival: int, nbytes: int, sent: int) -> None:
        """Take the arrival of a chunk."""
        self._delays.append((arrival - sent, nbytes))
        streaming = 0 <= sent - self._sent <= nbytes * _NS / STREAMING
        self._sent = sent
        run = self._current
        if run is None or arrival < run.end:
            self._start_run(arrival)
            return
        own = _NS / rate if (rate := self.rate(run.end)) else 0.0  # ns of a byte, if known
        usual = nbytes * own
        path = self._path(own)
        held_back = sent + path + usual <= self._resumed
        busy = streaming or self._waited(sent + path - run.end, arrival - run.end)
        if held_back or not busy:
            self._start_run(arrival)
            return
        if self._outage(arrival - run.end, usual):
            self._resumed = arrival
            self._start_run(arrival)
            return
        run.end = arrival
        run.nbytes += nbytes
        if run.end - run.start >= _SEGMENT:
            self._start_run(arrival)

    def rate(self, now: int) -> float:
        """Return the estimate, however old; 0.0 as long as too little came back to back."""
        since = self._newest - _MEMORY
        known = [run for run in self._runs if run.end >= since]
        recent = [run for run in known if run.end >= now - self._horizon]
        runs = recent if len(recent) >= _FEWEST else known[-_FEWEST:]
        if self._current is not None and self._current.shows_rate:
            runs.append(self._current)
        enough = max((run.nbytes for run in runs), default=0) / 2
        clear = [run for run in runs if run.nbytes >= enough]
        span = sum(run.end - run.start for run in clear)
        return sum(run.nbytes for run in clear) * _NS / span if span else 0.0

    def age(self, now: int) -> float:
        """Return how many seconds ago something showed the rate; infinite if nothing did."""
        return (now - self._newest) / _NS if self._newest else math.inf

    @property
    def _newest(self) -> int:
        """When something showed the rate for the last time, 0 if never."""
        if self._current is not None and self._current.shows_rate:
            return self._current.end
        return self._runs[-1].end if self._runs else 0

    def _path(self, own: float) -> float:
        """Return the shortest time from sending to arrival, less that of the bytes."""
        return min(delay - nbytes * own for delay, nbytes in self._delays)

    @staticmethod
    def _waited(idle: float, gap: int) -> bool:
        """Return whether the chunk was queued behind its predecessor, `gap` before it."""
        return idle <= _TOLERANCE * gap

    def _outage(self, gap: int, usual: float) -> bool:
        """Return whether a gap is far longer than usual; the second in a row is the new usual."""
        self._doubted = 0.0 < _OUTAGE * usual < gap and not self._doubted
        return self._doubted

    def _start_run(self, arrival: int) -> None:
        if self._current is not None and self._current.shows_rate:
            self._runs.append(self._current)
        self._current = _Run(arrival, arrival)
        while len(self._runs) > _FEWEST and self._runs[0].end < arrival - self._horizon:
            self._runs.popleft()
