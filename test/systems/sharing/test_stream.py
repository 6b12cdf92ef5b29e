# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Several inferences of a robot in flight: exact, in order, none lost, more of them a second."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
import time
from typing import Any

import pytest
from sharing import (
    assert_equal,
    ENDLESS,
    FixedRate,
    hand_made_book,
    SHORT,
    TIMEOUT,
    with_kernels,
)
from small_models import seeded, UNet
import torch
from waiting import wait_for

from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.memory_channel import memory_pair, MemoryChannel
from intradp_ros.runtime.transport.session_channels import SessionChannels
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.choice import ScheduleChoice
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, Path
from intradp_ros.systems.sharing.book.throughput import best_period, Busy, period
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer
from intradp_ros.systems.sharing.session.stream import InferenceStream, MAX_INFLIGHT
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.frames import Control, ControlKind


def picture(seed: int) -> torch.Tensor:
    """Return an input that no other frame has."""
    return torch.randn(1, 3, 32, 48, generator=torch.Generator().manual_seed(seed))


@dataclass
class Site:
    """A stream with a server at the end of a link, and what was delivered."""

    stream: InferenceStream
    server: OffloadServer
    end: MemoryChannel
    delivered: list[Outcome] = field(default_factory=list)

    def take(self, future: Future[Outcome]) -> None:
        """Keep a result."""
        self.delivered.append(future.result())

    def ask(self, seeds: range, strategy: str = SHARED) -> None:
        """Ask for the results of pictures."""
        for seed in seeds:
            self.stream.submit((picture(seed),), self.take, strategy=strategy)


@contextmanager
def site(model: SharedModel, inflight: int, *, delay: float = 0.0,
         patience: PatiencePolicy = ENDLESS, book: ScheduleBook | None = None,
         kind: type[RobotClient] = RobotClient, served: SharedModel | None = None,
         ) -> Iterator[Site]:
    """Provide a stream that has agreed with a server on a book."""
    near, far = memory_pair(delay=delay)

    def client(channel: Channel, number: int) -> RobotClient:
        return kind(model, channel, FixedRate(100.0), lambda text: None, patience=patience,
                    stream=number)

    models = {model.digest: served or model}
    with closing(OffloadServer(far, models, lambda text: None)) as server, \
            closing(InferenceStream(near, inflight, client)) as stream:
        stream.use_book(book or hand_made_book(model))
        assert all(each.connection.wait_ready(TIMEOUT) for each in stream.clients)
        yield Site(stream, server, near)


def assert_answered(found: Site, count: int) -> None:
    """Check that each frame was answered once, in order, with its own picture's result."""
    found.stream.wait()
    assert [outcome.stats.inference for outcome in found.delivered] == list(range(1, count + 1))
    network = seeded(UNet, 32, 48)
    with torch.no_grad():
        for seed, outcome in enumerate(found.delivered):
            assert_equal(outcome.outputs, network(picture(seed)))


@pytest.mark.parametrize('inflight', [1, 3])
def test_results_are_exact_and_in_order(model: SharedModel, inflight: int) -> None:
    with site(model, inflight) as found:
        for number, strategy in enumerate((SHARED, OFFLOAD, LOCAL, SHARED)):
            found.ask(range(10 * number, 10 * number + 10), strategy)
        assert_answered(found, 40)
        shared = [outcome.stats.shared for outcome in found.delivered]
        assert shared == [True] * 20 + [False] * 10 + [True] * 10
        assert len(found.server.sessions) == len(found.stream.numbers) == inflight
        assert found.server.rejections.total == 0
        assert [each.foreign for each in found.stream.clients] == [0] * inflight
    wait_for(lambda: not found.stream.channels.sessions)


@pytest.mark.parametrize('broken', [
    lambda found: found.server.close(), lambda found: found.end.cut()])
def test_all_that_are_in_flight_are_answered_without_the_server(
        model: SharedModel, broken: Callable[[Site], None]) -> None:
    """It goes while three frames are on their way; these and all later ones come in order."""
    with site(model, 3, patience=SHORT, delay=0.05) as found:
        found.ask(range(4), OFFLOAD)
        broken(found)
        found.ask(range(4, 12), OFFLOAD)
        assert_answered(found, 12)
        assert sum(outcome.stats.recovered for outcome in found.delivered) >= 1


def test_frames_per_second_of_a_link_with_a_delay(model: SharedModel) -> None:
    """While one frame is on its way, others are too; no more of them than may be."""
    seconds = {}
    for inflight in (1, 3):
        with site(model, inflight, delay=0.15) as found:
            begin = time.monotonic()
            found.ask(range(9), OFFLOAD)
            assert len(found.delivered) >= 9 - inflight
            assert_answered(found, 9)
            seconds[inflight] = time.monotonic() - begin
    assert seconds[1] >= 9 * 0.3
    assert seconds[3] < 0.7 * seconds[1]


def test_the_link_is_busy_for_what_crosses(model: SharedModel) -> None:
    """
    Of both ways the busier one counts, or their sum on shared air; the server's load counts.

    Not for what values are in memory: encoded they may be a tenth of it.
    """
    known = LatencyModel((Path(0.1, 0.2, 5.0, 0.0),), (0.1, 0.2), crossing=(3.0, 2.0))
    made, choice = hand_made_book(model), ScheduleChoice()
    choice.load = 2.0
    book = replace(made, entries=(replace(made.entries[0], anywhere=known),))
    assert choice.busy(book, 0, 10.0) == Busy(0.1, 0.3, 0.4)
    assert choice.busy(replace(book, shared_air=True), 0, 10.0) == Busy(0.1, 0.5, 0.4)


@pytest.mark.parametrize('busy, in_turn', [(0.0095, True), (0.006, False)])
def test_where_several_in_flight_gain_little_each_waits_for_those_before(
        model: SharedModel, busy: float, in_turn: bool) -> None:
    """
    By the book a frame takes 10 ms; several keep robot and server busy for 9.5 or 6 ms each.

    Schedules are judged by what frames took that were in flight alone.
    """
    together, noted = [0], []

    class Counting(RobotClient):
        inflight = 0

        def _infer_shared(self, *given: Any) -> Outcome:
            Counting.inflight += 1
            together.append(Counting.inflight)
            try:
                return super()._infer_shared(*given)
            finally:
                Counting.inflight -= 1

    with site(model, 3, book=book_with_speeds(model, busy), delay=0.01, kind=Counting) as found:
        for client in found.stream.clients:
            client.choice.note = (
                lambda entry, took: noted.append(entry))
        found.ask(range(12))
        assert_answered(found, 12)
        assert all(outcome.stats.shared for outcome in found.delivered)
    assert (max(together) == 1) is in_turn and len(noted) == 12 * in_turn


def test_the_server_computes_the_oldest_frame_first(model: SharedModel) -> None:
    """In turns all three would end at once, and the server be idle until the next ones came."""
    def slow(kernel: Any) -> Any:
        def run(*given: Any) -> Any:
            time.sleep(0.005)
            return kernel(*given)

        return run

    with site(model, 3, served=with_kernels(model, slow)) as found:
        found.ask(range(3), OFFLOAD)
        assert_answered(found, 3)
        assert found.server.processor.factor('another') > 1.0
        assert found.server.processor.load < 1.1  # three sessions are one party
    seconds = [outcome.stats.latency for outcome in found.delivered]
    assert min(seconds) < 0.6 * max(seconds)


def book_with_speeds(model: SharedModel, busy: float) -> ScheduleBook:
    """Return a book whose schedules take 10 ms at any speed, alone 20, of which each is busy."""
    made = hand_made_book(model)
    return replace(made, entries=tuple(
        replace(entry, anywhere=LatencyModel(
            (Path(entry.predicted, 0.0, 0.0, 0.0),),
            (0.02, 0.0) if entry.strategy == LOCAL else (busy, busy), crossing=(0.01, 0.01)))
        for entry in made.entries))


@pytest.mark.parametrize('inflight', [0, MAX_INFLIGHT + 1])
def test_impossible_counts_are_refused(inflight: int) -> None:
    near, far = memory_pair()
    with closing(near), closing(far), pytest.raises(ValueError, match=f'got {inflight}'):
        InferenceStream(near, inflight, lambda channel, number: pytest.fail('none is made'))


def test_frames_go_to_the_session_that_they_are_for() -> None:
    """Those of nobody are counted; the channel closes with the last session."""
    near, far = memory_pair()
    far.listen(far.send)  # an echo
    channels, came = SessionChannels(near), {5: list[int](), 6: list[int]()}
    opened = {session: channels.of_a_session() for session in came}
    for session, channel in opened.items():
        channel.listen(lambda frame, session=session:
                       came[session].append(frame.session))
        channel.send(Control(ControlKind.PING, session))
    wait_for(lambda: came == {5: [5], 6: [6]})
    far.send(Control(ControlKind.PONG, 7))
    wait_for(lambda: channels.foreign == 1)
    opened[5].close()
    opened[6].send(Control(ControlKind.PING, 6))
    wait_for(lambda: came == {5: [5], 6: [6, 6]})
    opened[6].close()
    far.close()
    near.send(Control(ControlKind.PING, 6))
    assert came == {5: [5], 6: [6, 6]} and not channels.sessions


def test_the_schedule_of_most_frames_a_second() -> None:
    """One at a time the least latency wins, later whatever keeps nobody busy for long."""
    shared, offload = (0.3, Busy(0.28, 0.05, 0.28)), (0.5, Busy(0.0, 0.15, 0.2))
    found = [(4, *shared), (9, *offload)]
    assert [period(*shared, 1), period(*offload, 1)] == [0.3, 0.5]
    assert best_period(found, 1) == (4, 0.3)
    assert best_period(found, 2) == (9, 0.25)
    assert best_period(found, 3) == (9, 0.2)
    assert best_period([(1, 0.3, Busy(0.2, 0, 0)), (2, 0.2, Busy(0.2, 0, 0))], 8) == (2, 0.2)
