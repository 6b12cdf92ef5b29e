# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The two ways of a channel, without ROS: what may be sent when, and what was measured."""
from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
import threading
import time

from intradp_ros.link.departures import Departure, next_departure
from intradp_ros.link.rate import ReceiverRate
from intradp_ros.link.send_window import SendWindow
from intradp_ros.wire.frames import Chunk, Control, Frame
from intradp_ros.wire.queue import FrameQueue, payload_bytes

#: Sessions that have a window and a rate of their own; of more, the one that sent or came least
#: lately is forgotten.
MAX_SESSIONS = 64
#: Seconds for which a measurement is reported to the sender.
NEW = 0.1
#: A peer that acknowledged nothing for so many seconds more than usual holds back no other.
STILL = 0.02
#: While chunks wait for the window, silence of the other side is looked for this often.
_EXPIRY_PERIOD = 0.05


@dataclass(frozen=True, slots=True)
class DueFrame:
    """A frame whose turn it is; `sequence` names a chunk in its acknowledgement."""

    frame: Frame
    sequence: int = 0


@dataclass(frozen=True, slots=True)
class Sent:
    """
    What is known of the way out.

    `rate` is the last that the other side reported, `age` seconds ago;
    `lost` counts chunks that were not acknowledged in time; one was
    `acknowledged` so many seconds ago.
    """

    rate: float
    age: float
    round_trip: float
    nbytes: int
    lost: int
    acknowledged: float = float('inf')


@dataclass
class _Way:
    """What leaves of one session; `sequence` is that of its last chunk."""

    window: SendWindow
    sequence: int
    rated: float = float('-inf')


class SharedMedium:
    """
    The ways out of one sender to several peers, which leave one after another (`departures.py`).

    All of them share its lock.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self._paths: dict[OutboundPath, int] = {}  # with the number of each one's last launch
        self._launches = 0

    def join(self, path: OutboundPath) -> None:
        """Let a way out take part, with the lock held."""
        self._paths[path] = 0

    def leave(self, path: OutboundPath) -> None:
        """Let it take part no more."""
        self._paths.pop(path, None)
        self.wake()

    def launched(self, path: OutboundPath) -> None:
        """Hear that a chunk was launched."""
        self._launches += 1
        if path in self._paths:
            self._paths[path] = self._launches
        self.wake()

    def is_next(self, path: OutboundPath) -> bool:
        """Return whether it is a way's turn; if not, wake the one whose turn it is."""
        return self._wake_next() is path

    def wake(self) -> None:
        """Let the way whose turn it is go on."""
        self._wake_next()

    def _wake_next(self) -> OutboundPath | None:
        now, paths = time.monotonic(), tuple(self._paths)
        in_flight = sum(path.in_flight(now) for path in paths)
        found = next_departure([departure for number, path in enumerate(paths)
                                if (departure := path.departure(number, self._paths[path], now))],
                               in_flight)
        if found is None:
            return None
        paths[found.peer].wake()
        return paths[found.peer]


class OutboundPath:
    """
    Frames on their way out: put in by anyone, taken by the thread that publishes them.

    Each session has a window of its own, made by `window`: who is slow holds
    up nobody else.  Sessions with room in their window take turns.  With an
    `air` it is one of several ways out that take turns.  Chunks wait while
    nobody listens: what is published then is lost.
    """

    def __init__(self, window: Callable[[], SendWindow], air: SharedMedium | None = None,
                 listened: Callable[[], bool] = lambda: True) -> None:
        self._new_window = window
        self._ways: OrderedDict[int, _Way] = OrderedDict()  # the one that sent last at the end
        self._queue = FrameQueue()
        self._nbytes = 0
        self._forgotten = 0  # the last number of those sessions that were forgotten
        self._closed = False
        self._air, self._listened = air, listened
        self._changed = threading.Condition(air.lock if air else None)
        if air:
            with air.lock:
                air.join(self)

    def put(self, frame: Frame, urgency: float = 0.0) -> None:
        """Queue a frame, of chunks the one of the smallest number first; ignored once closed."""
        with self._changed:
            if not self._closed:
                self._queue.put(frame, urgency)
                self._changed.notify()

    def abandon(self, session: int, inference: int) -> None:
        """Drop the waiting chunks of a session's inference."""
        with self._changed:
            self._queue.abandon(session, inference)

    def take(self) -> DueFrame | None:
        """Wait for the next frame that may be sent; None when closed and out of control frames."""
        with self._changed:
            while True:
                frame = self._queue.next()
                if isinstance(frame, Control):
                    return DueFrame(self._queue.pop())
                if self._closed:
                    return None
                admitted = self._admitted()
                if admitted and (self._air is None or self._air.is_next(self)):
                    return self._launch(admitted.session)
                self._changed.wait(None if frame is None else _EXPIRY_PERIOD)

    def acknowledged(self, session: int, sequence: int, rate: float) -> None:
        """Take an acknowledgement, with the rate its sender measures (0.0 if unknown)."""
        now = time.monotonic()
        with self._changed:
            way = self._ways.get(session)
            if way and way.window.acknowledged(sequence, rate, now):
                if rate > 0.0:
                    way.rated = now
                if self._air:
                    self._air.wake()
                self._changed.notify()

    def close(self) -> None:
        """Make `take` return None as soon as it has returned the waiting control frames."""
        with self._changed:
            self._closed = True
            if self._air:
                self._air.leave(self)
            self._changed.notify()

    def wake(self) -> None:
        """Let the thread that takes look again; with the lock held, as the next two."""
        self._changed.notify()

    def in_flight(self, now: float) -> int:
        """Return the bytes that are in flight, of all sessions."""
        for way in self._ways.values():
            way.window.expire(now)
        return sum(way.window.in_flight for way in self._ways.values())

    def departure(self, peer: int, launched: int, now: float) -> Departure | None:
        """Return the chunk that leaves next on this way, and whether its window takes it."""
        admitted = self._admitted()
        chunk = admitted or next(self._queue.heads(), None)
        if chunk is None:
            return None
        way = self._ways.get(chunk.session)
        return Departure(peer, self._queue.urgency(chunk.session), payload_bytes(chunk),
                         way.window.in_flight if way else 0,
                         way.window.limit(now) if way else 0, launched,
                         fits=admitted is not None, moves=way is not None and _moves(way, now))

    def chunk_bytes(self, session: int | None = None) -> int:
        """Return how many bytes a chunk of a session, or of the last one, should have now."""
        with self._changed:
            way = self._last if session is None else self._ways.get(session)
            return (way.window if way else self._new_window()).chunk_bytes

    @property
    def waiting(self) -> int:
        """Bytes of chunks that wait."""
        return self._queue.waiting

    def measured(self) -> Sent:
        """Return what is known now: of the session that sent last, but bytes and lost of all."""
        now = time.monotonic()
        with self._changed:
            for way in self._ways.values():
                way.window.expire(now)
            lost = sum(way.window.lost for way in self._ways.values())
            last = self._last
            if last is None:
                return Sent(0.0, float('inf'), 0.0, self._nbytes, lost)
            return Sent(last.window.last_rate, now - last.rated, last.window.round_trip(now),
                        self._nbytes, lost, last.window.age(now))

    @property
    def _last(self) -> _Way | None:
        return next(reversed(self._ways.values()), None)

    def _admitted(self) -> Chunk | None:
        """Return the first chunk of the session whose turn it is of those with room."""
        admitted = next(filter(self._admits, self._queue.heads()), None)
        return admitted if admitted and self._listened() else None

    def _admits(self, chunk: Chunk) -> bool:
        way = self._ways.get(chunk.session)
        if way is None:
            return True
        now = time.monotonic()
        way.window.expire(now)
        return way.window.fits(payload_bytes(chunk), now)

    def _launch(self, session: int) -> DueFrame:
        frame = self._queue.pop_chunk(session)
        way = self._ways.get(session) or _Way(self._new_window(), self._forgotten)
        self._ways[session] = way
        self._ways.move_to_end(session)
        if len(self._ways) > MAX_SESSIONS:
            self._forgotten = max(self._forgotten, self._ways.popitem(last=False)[1].sequence)
        way.sequence += 1
        way.window.sent(way.sequence, payload_bytes(frame), time.monotonic())
        self._nbytes += payload_bytes(frame)
        if self._air:
            self._air.launched(self)
        return DueFrame(frame, way.sequence)


def _moves(way: _Way, now: float) -> bool:
    """Return whether what is in flight was waited for no longer than twice a full window takes."""
    rate = way.window.rate(now)
    usual = way.window.limit(now) / rate if rate > 0 else 0.0
    return way.window.silence(now) < 2 * usual + STILL


class InboundPath:
    """Chunks that arrive: their rate, for each session by itself, and their bytes."""

    def __init__(self) -> None:
        self.nbytes = 0
        self._rates: OrderedDict[int, ReceiverRate] = OrderedDict()
        self._lock = threading.Lock()

    def arrived(self, session: int, nbytes: int, sent: int, arrival: int) -> float:
        """
        Take a chunk (times in ns); return the rate of its session's path, bytes per second.

        It is 0.0 if the last chunks showed nothing of the rate: who receives it takes it for new.
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
