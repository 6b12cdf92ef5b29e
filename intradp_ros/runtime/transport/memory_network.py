# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet's network in memory: media with rates and delays, shared by all who send.

Chunks go through the media of their path one after another, as the topology
says; a path that names a medium twice takes its time twice.  A medium serves
chunks in order of their arrival, and no sender has more than a window of
them in flight (`link/departures.py`), so that those who send at once get
equal parts.  Of its own chunks a sender launches the most urgent first.
Control frames take the delay of the path and none of its rate.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
import heapq
from itertools import count
import logging
import math
import queue
import threading
import time

from intradp_ros.cluster.topology import Medium, Topology
from intradp_ros.core.steady import Steady
from intradp_ros.link.departures import Departure, next_departure
from intradp_ros.link.rate import ReceiverRate
from intradp_ros.runtime.transport.channel import LinkReport
from intradp_ros.runtime.transport.peer_channel import PeerHandler
from intradp_ros.wire.frames import Control, Frame
from intradp_ros.wire.queue import FrameQueue, payload_bytes

_LOG = logging.getLogger(__name__)

#: Bytes of a chunk where nothing else is said.
CHUNK_BYTES = 30_000
#: Chunks of a path that are in flight at least: one in each medium, and one that waits there.
LEAST_WINDOW = 4
MOST_WINDOW = 10_000


@dataclass
class _Station:
    """A medium, and when it has served what it was given."""

    medium: Medium
    free: float = 0.0

    def serve(self, nbytes: int, now: float) -> float:
        """Return when so many bytes that come now are through."""
        self.free = max(self.free, now) + nbytes / self.medium.bytes_per_second
        return self.free


@dataclass
class _Way:
    """What one device sends to another."""

    source: str
    target: str
    stations: tuple[_Station, ...]
    delay: float
    window: int
    queue: FrameQueue = field(default_factory=FrameQueue)
    rate: ReceiverRate = field(default_factory=ReceiverRate)
    filled: float = 0.0  # when the queue was last filled from empty
    in_flight: int = 0
    sent: int = 0
    launched: int = 0  # the sender's launches when it launched last
    received: int = 0
    landed: float = -math.inf  # when a chunk was there last


class MemoryNetwork:
    """
    The network of a topology; `channel` gives a device its `PeerChannel`.

    :raises ValueError: if `chunk_bytes` is not positive.
    """

    def __init__(self, topology: Topology, chunk_bytes: int = CHUNK_BYTES) -> None:
        if chunk_bytes < 1:
            raise ValueError(f'chunk_bytes must be positive, got {chunk_bytes}')
        self.chunk_bytes = chunk_bytes
        stations = {m.name: _Station(m) for m in topology.media}
        self._ways = {ends: self._way(topology, ends, tuple(stations[name] for name in path))
                      for ends, path in topology.paths.items()}
        self._channels = {name: MemoryPeerChannel(self, name) for name in topology.names}
        self._down: set[str] = set()
        self._events: list[tuple[float, int, Callable[[float], None]]] = []
        self._numbers, self._launches = count(), count(1)
        self._closed = False
        self._wake = threading.Condition()
        self._thread = threading.Thread(target=self._run, name='memory-network', daemon=True)
        self._thread.start()

    def _way(self, topology: Topology, ends: tuple[str, str], stations: tuple[_Station, ...],
             ) -> _Way:
        delay, window = topology.delay(*ends), LEAST_WINDOW * max(1, len(stations))
        if delay:
            window += int(min(MOST_WINDOW, topology.rate(*ends) * 2 * delay / self.chunk_bytes))
        return _Way(*ends, stations, delay, window)

    def channel(self, name: str) -> MemoryPeerChannel:
        """Return a device's channel; ValueError if the topology has no such device."""
        if name not in self._channels:
            raise ValueError(f'there is no device {name!r}; there are {", ".join(self._channels)}')
        return self._channels[name]

    def join(self, name: str) -> MemoryPeerChannel:
        """Return a channel of somebody who is none of the devices, whom all reach at once."""
        for other in tuple(self._channels):
            for ends in ((name, other), (other, name)):
                self._ways[ends] = _Way(*ends, (), 0.0, LEAST_WINDOW)
        self._channels[name] = MemoryPeerChannel(self, name)
        return self._channels[name]

    def cut(self, name: str) -> None:
        """Lose whatever arrives at a device or comes from it, until `restore`."""
        self._down.add(name)

    def restore(self, name: str) -> None:
        """Join a device again."""
        self._down.discard(name)

    def close(self) -> None:
        """Stop carrying frames, and end all threads."""
        with self._wake:
            self._closed = True
            self._wake.notify()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for channel in self._channels.values():
            channel.close()

    def send(self, source: str, target: str, frame: Frame, urgency: float = 0.0) -> None:
        """Queue a frame; ValueError where no path leads."""
        way = self._ways.get((source, target))
        if way is None:
            raise ValueError(f'no path leads from {source!r} to {target!r}')
        with self._wake:
            now = time.monotonic()
            if isinstance(frame, Control):
                self._at(now + way.delay, lambda _: self._arrive(way, frame))
            else:
                way.filled = way.filled if len(way.queue) else now
                way.queue.put(frame, urgency)
                self._launch(source, now)
            self._wake.notify()

    def abandon(self, source: str, session: int, inference: int) -> None:
        """Drop chunks of an inference that one device has still to send."""
        with self._wake:
            for way in self._ways.values():
                if way.source == source:
                    way.queue.abandon(session, inference)

    def report(self, name: str, peer: str) -> LinkReport:
        """Return what is known of the link between two devices."""
        out, back = self._ways[name, peer], self._ways[peer, name]
        with self._wake:  # chunks land on another thread
            now = time.monotonic_ns()
            return LinkReport(
                send_rate=out.rate.rate(now), receive_rate=back.rate.rate(now),
                round_trip=out.delay + back.delay, age=out.rate.age(now),
                receive_age=back.rate.age(now), bytes_sent=out.sent,
                bytes_received=back.received, acknowledged=time.monotonic() - out.landed)

    def _at(self, when: float, event: Callable[[float], None]) -> None:
        heapq.heappush(self._events, (when, next(self._numbers), event))

    def _launch(self, source: str, now: float) -> None:
        ways = [way for way in self._ways.values() if way.source == source]
        while found := next_departure(
                [_departure(number, way) for number, way in enumerate(ways) if len(way.queue)],
                sum(way.in_flight for way in ways)):
            way = ways[found.peer]
            frame, queued = way.queue.pop(), way.filled
            way.in_flight += 1
            way.sent += payload_bytes(frame)
            way.launched = next(self._launches)
            self._hop(way, frame, queued, 0, now)

    def _hop(self, way: _Way, frame: Frame, queued: float, hop: int, now: float) -> None:
        """Let a chunk go through the next medium of its path, or be there."""
        if hop == len(way.stations):
            self._at(now + way.delay, lambda at: self._land(way, frame, queued, at))
            return
        through = way.stations[hop].serve(payload_bytes(frame), now)
        self._at(through, lambda at: self._hop(way, frame, queued, hop + 1, at))

    def _land(self, way: _Way, frame: Frame, queued: float, now: float) -> None:
        way.in_flight -= 1
        nbytes = payload_bytes(frame)
        if not self._down.intersection((way.source, way.target)):
            way.received, way.landed = way.received + nbytes, now
            way.rate.arrived(int(now * 1e9), nbytes, int(queued * 1e9))
        self._arrive(way, frame)
        self._launch(way.source, now)

    def _arrive(self, way: _Way, frame: Frame) -> None:
        if not self._down.intersection((way.source, way.target)):
            self._channels[way.target].inbox.put((way.source, frame))

    def _run(self) -> None:
        steady = Steady('a network in memory')
        with self._wake:
            while not self._closed:
                now = time.monotonic()
                while self._events and self._events[0][0] <= now:
                    due, _, event = heapq.heappop(self._events)
                    steady.do(partial(event, due), None)
                wait = self._events[0][0] - time.monotonic() if self._events else None
                if wait is None or wait > 0:
                    self._wake.wait(wait)


def _departure(number: int, way: _Way) -> Departure:
    """Return what waits first on a way; a window counts chunks here."""
    head = next(way.queue.heads())
    return Departure(number, way.queue.urgency(head.session), 1, way.in_flight, way.window,
                     way.launched, fits=way.in_flight < way.window,
                     air=way.stations[0].medium.name if way.stations else '')


class MemoryPeerChannel:
    """A device's channel of a `MemoryNetwork`; a `PeerChannel`."""

    def __init__(self, network: MemoryNetwork, name: str) -> None:
        self._network, self._name = network, name
        self._handler: PeerHandler | None = None
        self._closed = False
        self.inbox: queue.SimpleQueue[tuple[str, Frame] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._deliver, name=f'inbox-{name}', daemon=True)
        self._thread.start()

    @property
    def name(self) -> str:
        """The device whose channel this is."""
        return self._name

    def open(self, peers: Iterable[str], *, stay: bool = False) -> None:
        """Do nothing: all ways are there."""

    def send(self, peer: str, frame: Frame, urgency: float = 0.0) -> None:
        """Queue one frame; of chunks to all peers the smallest urgency number leaves first."""
        if not self._closed:
            self._network.send(self._name, peer, frame, urgency)

    def abandon(self, session: int, inference: int) -> None:
        """Drop chunks of a session's inference that still wait, to any peer."""
        self._network.abandon(self._name, session, inference)

    def chunk_bytes(self, peer: str) -> int:
        """Return the bytes of a chunk."""
        return self._network.chunk_bytes

    def listen(self, handler: PeerHandler) -> None:
        """Call `handler` with every frame from now on."""
        self._handler = handler

    def report(self, peer: str) -> LinkReport:
        """Return what is known of the link with a peer now."""
        return self._network.report(self._name, peer)

    def rejected(self) -> Mapping[str, Mapping[str, int]]:
        """Return nothing: frames need no decoding here."""
        return {}

    def doubted(self, peer: str) -> bool:
        """Say that nobody else speaks here."""
        return False

    def conflicts(self) -> Mapping[str, str]:
        """Return nothing: nobody else speaks here."""
        return {}

    @property
    def aside(self) -> bool:
        """Say that nobody else has this name here."""
        return False

    def close(self) -> None:
        """Stop; later sends are ignored."""
        self._closed, self._handler = True, None
        self.inbox.put(None)

    def _deliver(self) -> None:
        while (arrived := self.inbox.get()) is not None:
            handler = self._handler
            if handler is None:
                continue
            try:
                handler(*arrived)
            except Exception:  # the thread must go on, as that of a network channel does
                _LOG.exception('The handler of %s failed on a frame of %s', self._name, arrived[0])
