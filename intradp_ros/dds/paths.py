# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The two ways of a channel, without ROS: what may be sent when, and what was measured."""
from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
import secrets
import threading
import time

from intradp_ros.link.rate import ReceiverRate
from intradp_ros.link.send_window import SendWindow
from intradp_ros.wire.frames import Chunk, Control, Frame
from intradp_ros.wire.queue import FrameQueue, payload_bytes

#: Sessions whose rate is estimated at a time; more come only of restarts, or of strangers.
MAX_SESSIONS = 8
#: Seconds for which a measurement is told to the sender.
NEW = 0.1
#: While chunks wait for the window, silence of the other side is looked for this often.
_EXPIRY_PERIOD = 0.05


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A frame whose turn it is; `sequence` names a chunk in its acknowledgement."""

    frame: Frame
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """
    What is known of the way out.

    `rate` is the last that the other side reported, `age` seconds ago;
    `lost` counts chunks that were not acknowledged in time.
    """

    rate: float
    age: float
    round_trip: float
    nbytes: int
    lost: int


class OutboundPath:
    """Frames on their way out: put in by anyone, taken by the thread that publishes them."""

    def __init__(self, window: SendWindow) -> None:
        self._window = window
        self._queue = FrameQueue()
        # From a random number, for several senders may share a topic of acknowledgements.
        self._sequence = secrets.randbits(48)
        self._nbytes = 0
        self._rated = float('-inf')
        self._closed = False
        self._changed = threading.Condition()

    def put(self, frame: Frame) -> None:
        """Queue a frame; ignored once closed."""
        with self._changed:
            if not self._closed:
                self._queue.put(frame)
                self._changed.notify()

    def abandon(self, session: int, inference: int) -> None:
        """Drop the waiting chunks of a session's inference."""
        with self._changed:
            self._queue.abandon(session, inference)

    def take(self) -> Outgoing | None:
        """Wait for the next frame that may be sent; None when closed and out of control frames."""
        with self._changed:
            while True:
                frame = self._queue.next()
                if isinstance(frame, Control):
                    return Outgoing(self._queue.pop())
                if self._closed:
                    return None
                if isinstance(frame, Chunk) and self._admits(frame):
                    return self._launch()
                self._changed.wait(None if frame is None else _EXPIRY_PERIOD)

    def acknowledged(self, sequence: int, rate: float) -> None:
        """Take an acknowledgement, with the rate its sender measures (0.0 if unknown)."""
        now = time.monotonic()
        with self._changed:
            if self._window.acknowledged(sequence, rate, now):
                if rate > 0.0:
                    self._rated = now
                self._changed.notify()

    def close(self) -> None:
        """Make `take` return None as soon as it has returned the waiting control frames."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def chunk_bytes(self) -> int:
        """Return how many bytes a chunk should have now."""
        with self._changed:
            return self._window.chunk_bytes

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait."""
        return self._queue.waiting

    def measured(self) -> Sent:
        """Return what is known now."""
        now = time.monotonic()
        with self._changed:
            self._window.expire(now)
            return Sent(self._window.last_rate, now - self._rated, self._window.round_trip(now),
                        self._nbytes, self._window.lost)

    def _admits(self, chunk: Chunk) -> bool:
        now = time.monotonic()
        self._window.expire(now)
        return self._window.fits(payload_bytes(chunk), now)

    def _launch(self) -> Outgoing:
        frame = self._queue.pop()
        self._sequence += 1
        self._window.sent(self._sequence, payload_bytes(frame), time.monotonic())
        self._nbytes += payload_bytes(frame)
        return Outgoing(frame, self._sequence)


class InboundPath:
    """Chunks that arrive: their rate, for each session by itself, and their bytes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._rates: OrderedDict[int, ReceiverRate] = OrderedDict()
        self._lock = threading.Lock()

    def arrived(self, session: int, nbytes: int, sent: int, arrival: int) -> float:
        """
        Take a chunk (times in ns); return the rate of its session's path, bytes per second.

        It is 0.0 if the last chunks told nothing of the rate: who hears it takes it for new.
        """
        with self._lock:
            rate = self._rates.setdefault(session, ReceiverRate())
            self._rates.move_to_end(session)
            if len(self._rates) > MAX_SESSIONS:
                self._rates.popitem(last=False)
            rate.arrived(arrival, nbytes, sent)
            self.nbytes += nbytes
            return rate.rate(arrival) if rate.age(arrival) < NEW else 0.0

    def measured(self, now: int) -> tuple[float, float]:
        """Return the rate of the session that sent last, 0.0 if unknown, and its age (s)."""
        with self._lock:
            latest = next(reversed(self._rates.values()), None)
            return (latest.rate(now), latest.age(now)) if latest else (0.0, float('inf'))
