# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A robot with several inferences in flight: for frames per second instead of the least latency.

While one inference is on the link or on the server, the next ones compute.
Each of them has a session of its own, with all that belongs to it: its
inferences are answered whatever becomes of the others.  The robot's
processor is one: the oldest that can compute does; so it is on the server.
Where several in flight would give no more results a second, each begins when
those before it have ended.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
import secrets
import threading

import torch

from intradp_ros.runtime.execution.processor import Processor
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.session_channels import SessionChannels
from intradp_ros.runtime.transport.timeline import Event, with_send_times
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.session.robot import ALONE, Concurrency, RobotClient
from intradp_ros.systems.sharing.strategies import SHARED
from intradp_ros.wire.frames import Stamp

#: Inferences in flight at most: each holds an input, its rows, and a session of the server.
MAX_INFLIGHT = 8
Deliver = Callable[['Future[Outcome]'], None]


class InferenceStream:
    """
    Runs inferences of one model, up to `inflight` at a time; results come in the order of asking.

    `client` makes a robot's client on a channel, of the stream of a number.  Streams may follow
    one another on the channels of sessions that one of them made.
    `submit` belongs to one thread; it waits while as many inferences are under
    way, or not delivered, as there may be.

    :raises ValueError: if `inflight` is not 1 to `MAX_INFLIGHT`.
    """

    def __init__(self, channel: Channel | SessionChannels, inflight: int,
                 client: Callable[[Channel, int], RobotClient]) -> None:
        if not 1 <= inflight <= MAX_INFLIGHT:
            raise ValueError(f'1 to {MAX_INFLIGHT} inferences may be in flight, got {inflight}')
        self.channels = channel if isinstance(channel, SessionChannels) else \
            SessionChannels(channel)
        number = secrets.randbits(63) | 1
        self.clients = tuple(
            client(self.channels.of_a_session(), number) for _ in range(inflight))
        for other in self.clients[1:]:
            other.sent, other.received = self.clients[0].sent, self.clients[0].received
        self._processor = Processor()
        self._free = threading.Semaphore(inflight)
        self._idle = deque(self.clients)
        self._inflight: deque[tuple[Future[Outcome], Deliver]] = deque()
        self._delivering = threading.Lock()
        self._pool = ThreadPoolExecutor(inflight, 'inference')
        self._asked = 0
        self._last = deque[Future[Outcome]](maxlen=inflight - 1)  # that may be in flight with one

    def use_book(self, book: ScheduleBook) -> None:
        """Take a new schedule book; raises as `RobotClient.use_book`."""
        for client in self.clients:
            client.use_book(book)

    def submit(self, inputs: Sequence[torch.Tensor], deliver: Deliver, *, strategy: str = SHARED,
               stamp: Stamp = Stamp()) -> None:
        """
        Begin an inference as soon as there is room; `deliver` is called with what became of it.

        That is called on threads of the stream, one at a time, in the order of
        asking; it must not raise.  For arguments see `RobotClient.infer`.
        """
        self._free.acquire()
        self._asked += 1
        client = self._idle.popleft()
        among = ALONE if len(self.clients) == 1 else Concurrency(
            len(self.clients), self._processor.turns('robot'), partial(_follow, tuple(self._last)))
        future = self._pool.submit(self._infer, client, self._asked, among, inputs, strategy,
                                   stamp)
        self._last.append(future)
        self._inflight.append((future, deliver))
        future.add_done_callback(partial(self._ended, client))

    def wait_for_room(self) -> None:
        """Wait until another inference could begin at once."""
        self._free.acquire()
        self._free.release()

    @property
    def numbers(self) -> frozenset[int]:
        """Numbers of the sessions."""
        return frozenset(client.connection.session for client in self.clients)

    @property
    def foreign(self) -> int:
        """Frames that came for other sessions."""
        return self.channels.foreign + sum(client.foreign for client in self.clients)

    def timeline(self, outcome: Outcome) -> tuple[Event, ...]:
        """
        Return what was measured in an inference that is being delivered.

        Of several in flight, what the robot measured; of one at a time, also
        what the server did (`RobotClient.timeline`).
        """
        if len(self.clients) == 1:
            return self.clients[0].timeline(outcome)
        return tuple(with_send_times(outcome.events))

    def wait(self) -> None:
        """Wait until all that was asked for is delivered."""
        for _ in self.clients:
            self._free.acquire()
        self._free.release(len(self.clients))

    def close(self) -> None:
        """End all sessions, after the inferences that are in flight."""
        self._pool.shutdown()
        for client in self.clients:
            client.close()

    def _infer(self, client: RobotClient, number: int, among: Concurrency,
               inputs: Sequence[torch.Tensor], strategy: str, stamp: Stamp) -> Outcome:
        outcome = client.infer(inputs, strategy=strategy, stamp=stamp, among=among)
        return replace(outcome, stats=replace(outcome.stats, inference=number))

    def _ended(self, client: RobotClient, _future: Future[Outcome]) -> None:
        """Deliver what is next in order, and its followers that have ended."""
        self._idle.append(client)
        with self._delivering:
            while self._inflight and self._inflight[0][0].done():
                future, deliver = self._inflight[0]
                deliver(future)
                self._inflight.popleft()
                self._free.release()


def _follow(before: Sequence[Future[Outcome]]) -> bool:
    """Wait until others have ended; return whether any had not."""
    running = [future for future in before if not future.done()]
    wait(running)
    return bool(running)
