# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Two channels joined in memory, for a first try without a network and for tests.

The link between them can be given a rate and a delay: bytes then leave one
after another at that rate, each direction for itself, as on a full-duplex
link.  Its rate can be changed, and it can be cut and restored.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
import logging
import threading
import time

from intradp_ros.link.filters import RecentMin
from intradp_ros.link.rate import ReceiverRate
from intradp_ros.runtime.transport.channel import LinkReport
from intradp_ros.wire.frames import Chunk, Control, Frame
from intradp_ros.wire.queue import FrameQueue, payload_bytes

_LOG = logging.getLogger(__name__)

Handler = Callable[[Frame], None]


@dataclass(frozen=True, slots=True)
class _Flight:
    """A frame in flight; `queued` is when the queue it stood in was last filled from empty."""

    frame: Frame
    queued: float
    start: float
    due: float


class _Measured:
    """
    What the end of one direction measures; times in seconds, rates in bytes per second.

    Frames arrive on one thread, and others ask.
    """

    def __init__(self) -> None:
        self.nbytes = 0
        self._rate = ReceiverRate()
        self._latency = RecentMin(10.0)
        self._lock = threading.RLock()

    def arrived(self, flight: _Flight, now: float) -> None:
        """Take the arrival of a frame."""
        nbytes = payload_bytes(flight.frame)
        with self._lock:
            if isinstance(flight.frame, Chunk):
                self._rate.arrived(int(now * 1e9), nbytes, int(flight.queued * 1e9))
                self.nbytes += nbytes
            rate = self.rate(now)
            own = nbytes / rate if rate else 0.0
            self._latency.update(max(0.0, now - flight.start - own), now)

    def rate(self, now: float) -> float:
        with self._lock:
            return self._rate.rate(int(now * 1e9))

    def age(self, now: float) -> float:
        with self._lock:
            return self._rate.age(int(now * 1e9))

    def latency(self, now: float) -> float:
        with self._lock:
            return self._latency.value(now) or 0.0


class _Direction:
    """One way of the link, with the thread that carries frames along it."""

    def __init__(self, name: str, rate: float | None, delay: float, up: threading.Event) -> None:
        self.handler: Handler | None = None
        self.measured = _Measured()
        self.bytes_sent = 0
        self._rate = rate
        self._delay = delay
        self._up = up
        self._queue = FrameQueue()
        self._filled = 0.0  # when the queue was last filled from empty
        self._free = 0.0  # when the link has taken the bytes it was given
        self._flying: deque[_Flight] = deque()
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def put(self, frame: Frame) -> None:
        with self._wake:
            if not len(self._queue):
                self._filled = time.monotonic()
            self._queue.put(frame)
            self._wake.notify()

    def waiting(self) -> int:
        """Return the bytes of chunks that wait."""
        with self._wake:
            return self._queue.waiting

    def abandon(self, session: int, inference: int) -> None:
        with self._wake:
            self._queue.abandon(session, inference)

    def set_rate(self, rate: float) -> None:
        with self._wake:
            self._rate = rate
            self._wake.notify()

    def close(self) -> None:
        with self._wake:
            self._closed = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _run(self) -> None:
        while (flight := self._await_arrival()) is not None:
            if self._up.is_set():
                self._deliver(flight)

    def _await_arrival(self) -> _Flight | None:
        """Wait for the next frame to arrive; None when closed."""
        with self._wake:
            while not self._closed:
                now = time.monotonic()
                self._transmit(now)
                if self._flying and self._flying[0].due <= now:
                    return self._flying.popleft()
                self._wake.wait(self._time_to_next_event(now))
        return None

    def _transmit(self, now: float) -> None:
        """Give the link what it can have taken by now, without losing time between frames."""
        while len(self._queue) and max(self._free, self._filled) <= now:
            frame = self._queue.pop()
            start = max(self._free, self._filled)
            nbytes = payload_bytes(frame)
            self._free = start + (nbytes / self._rate if self._rate else 0.0)
            self._flying.append(_Flight(frame, self._filled, start, self._free + self._delay))
            self.bytes_sent += nbytes

    def _time_to_next_event(self, now: float) -> float | None:
        events = [self._flying[0].due] if self._flying else []
        if len(self._queue):
            events.append(self._free)
        return max(0.0, min(events) - now) if events else None

    def _deliver(self, flight: _Flight) -> None:
        self.measured.arrived(flight, time.monotonic())
        handler = self.handler
        if handler is None:
            return
        try:
            handler(flight.frame)
        except Exception:  # the thread must go on, as that of a network channel does
            _LOG.exception('The handler of a channel failed on %s', type(flight.frame).__name__)


class MemoryChannel:
    """One end of a `memory_pair`; a `Channel`."""

    def __init__(
        self, chunk_bytes: int, out: _Direction, back: _Direction, up: threading.Event,
    ) -> None:
        self.chunk_bytes = chunk_bytes
        self._out = out
        self._back = back
        self._up = up
        self._closed = False
        self.rejected: Mapping[str, int] = {}  # frames need no decoding here

    def chunk_bytes_of(self, session: int) -> int:
        """Return the bytes of a chunk: all sessions use the one link."""
        return self.chunk_bytes

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait to be sent."""
        return self._out.waiting()

    def send(self, frame: Chunk | Control) -> None:
        """Queue one frame."""
        if not self._closed:
            self._out.put(frame)

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait in the queue."""
        self._out.abandon(session, inference)

    def listen(self, handler: Handler) -> None:
        """Call `handler` with every frame from now on."""
        self._back.handler = handler

    def report(self) -> LinkReport:
        """Return what is known of the link now."""
        now = time.monotonic()
        there, here = self._out.measured, self._back.measured
        return LinkReport(
            send_rate=there.rate(now), receive_rate=here.rate(now),
            round_trip=there.latency(now) + here.latency(now), age=there.age(now),
            receive_age=here.age(now), bytes_sent=self._out.bytes_sent, bytes_received=here.nbytes)

    def close(self) -> None:
        """Stop; later sends are ignored."""
        self._closed = True
        self._back.handler = None
        self._out.close()

    def set_rate(self, rate: float) -> None:
        """
        Set the bytes of tensor data per second in each direction, from the next frame on.

        :raises ValueError: if it is not positive.
        """
        if not rate > 0:
            raise ValueError(f'rate must be positive, got {rate}; use cut() for an outage')
        self._out.set_rate(rate)
        self._back.set_rate(rate)

    def cut(self) -> None:
        """Lose whatever arrives, in both directions, until `restore`."""
        self._up.clear()

    def restore(self) -> None:
        """Mend the link that `cut` cut."""
        self._up.set()


def memory_pair(
    chunk_bytes: int = 30_000, rate: float | None = None, delay: float = 0.0,
) -> tuple[MemoryChannel, MemoryChannel]:
    """
    Return two channels, each the other's far side.

    `rate` is in bytes of tensor data per second in each direction (None: as
    fast as memory), `delay` in seconds one way.

    :raises ValueError: if a setting is not positive (`delay` may be 0).
    """
    if chunk_bytes < 1 or delay < 0 or (rate is not None and rate <= 0):
        raise ValueError('chunk_bytes and rate must be positive and delay not negative, '
                         f'got {chunk_bytes}, {rate}, {delay}')
    up = threading.Event()
    up.set()
    there = _Direction('memory-link-there', rate, delay, up)
    back = _Direction('memory-link-back', rate, delay, up)
    return (MemoryChannel(chunk_bytes, there, back, up),
            MemoryChannel(chunk_bytes, back, there, up))
