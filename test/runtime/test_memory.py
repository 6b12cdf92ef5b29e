# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The link in memory: order, shaping, faults."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, Queue
import time

import pytest
import torch

from intradp_ros.runtime.transport.memory_channel import memory_pair, MemoryChannel
from intradp_ros.runtime.transport.session_channels import WrappedChannel
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame


def chunks_of(nbytes: int, inference: int = 1, chunk_bytes: int = 10_000) -> list[Chunk]:
    """Cut a transfer of that many bytes."""
    return list(cut_into_chunks(
        torch.arange(nbytes, dtype=torch.int64).to(torch.uint8), session=1, epoch=1,
        inference=inference, schedule=0, transfer=0, value=0, region=Region(0, 1),
        chunk_bytes=chunk_bytes))


def ping(number: int) -> Control:
    """Return a control frame with a number."""
    return Control(ControlKind.PING, inference=number)


@contextmanager
def joined(**options: float) -> Iterator[tuple[MemoryChannel, MemoryChannel, Queue[Frame]]]:
    """Yield both ends, and the queue of what the second receives."""
    robot, server = memory_pair(**options)
    received: Queue[Frame] = Queue()
    server.listen(received.put)
    try:
        yield robot, server, received
    finally:
        robot.close()
        server.close()


def take(received: Queue[Frame], count: int) -> list[Frame]:
    """Wait for that many frames."""
    return [received.get(timeout=60) for _ in range(count)]


def test_frames_arrive_in_order_and_unchanged() -> None:
    """The very frames come out, chunks and control each in order."""
    with joined() as (robot, _, received):
        chunks = chunks_of(100_000)
        for chunk in chunks:
            robot.send(chunk)
        assert take(received, len(chunks)) == chunks


def test_both_directions_carry() -> None:
    """The pair is symmetric."""
    with joined() as (robot, server, received):
        answers: Queue[Frame] = Queue()
        robot.listen(answers.put)
        robot.send(ping(1))
        server.send(ping(2))
        assert take(received, 1) == [ping(1)]
        assert take(answers, 1) == [ping(2)]


def test_sending_does_not_wait_for_a_slow_link_and_control_overtakes() -> None:
    """A second's worth of chunks is queued at once; control comes before most of them."""
    with joined(rate=1e5) as (robot, _, received):
        for chunk in chunks_of(100_000):
            robot.send(chunk)
        robot.send(ping(7))
        assert received.empty()
        frames = take(received, 3)
        assert ping(7) in frames
        assert sum(isinstance(frame, Chunk) for frame in frames) == 2


def test_the_rate_is_kept_and_measured() -> None:
    """Bytes never come faster than the rate, and both ends report what it was."""
    rate, chunks = 1e6, chunks_of(200_000)
    with joined(rate=rate, delay=0.02) as (robot, server, received):
        start = time.monotonic()
        for chunk in chunks:
            robot.send(chunk)
        take(received, len(chunks))
        assert time.monotonic() - start >= 200_000 / rate + 0.02
        report = robot.report()
        assert 0.5 * rate < report.send_rate < 1.5 * rate
        assert report.bytes_sent == 200_000
        assert report.age < 20.0
        back = server.report()
        assert back.bytes_received == 200_000
        assert back.receive_rate == pytest.approx(report.send_rate, rel=0.01)


def test_the_delay_is_in_the_round_trip() -> None:
    """Frames in both directions measure the delay of both."""
    with joined(delay=0.03) as (robot, server, received):
        answers: Queue[Frame] = Queue()
        robot.listen(answers.put)
        robot.send(ping(1))
        server.send(ping(2))
        take(received, 1)
        take(answers, 1)
        assert robot.report().round_trip >= 0.06


def test_abandoned_chunks_never_leave() -> None:
    """What still waits is withdrawn; other inferences go on."""
    with joined(rate=1e5) as (robot, _, received):
        for chunk in (*chunks_of(50_000, inference=1), *chunks_of(20_000, inference=2)):
            robot.send(chunk)
        robot.abandon(1, 1)
        frames = take(received, 2)
        while frames[-1].inference != 2 or len([f for f in frames if f.inference == 2]) < 2:
            frames += take(received, 1)
        assert sum(frame.inference == 1 for frame in frames) <= 1


def test_a_cut_link_loses_everything_until_restored() -> None:
    """Nothing that was sent while cut comes later."""
    with joined() as (robot, server, received):
        server.cut()
        robot.send(ping(1))
        with pytest.raises(Empty):
            received.get(timeout=0.2)
        server.restore()
        robot.send(ping(2))
        assert take(received, 1) == [ping(2)]


def test_a_failing_handler_does_not_stop_the_link(caplog: pytest.LogCaptureFixture) -> None:
    """Its error is logged, and the next frame is delivered."""
    robot, server = memory_pair()
    received: Queue[Frame] = Queue()

    def handler(frame: Frame) -> None:
        received.put(frame)
        raise RuntimeError('boom')

    server.listen(handler)
    robot.send(ping(1))
    robot.send(ping(2))
    assert take(received, 2) == [ping(1), ping(2)]
    robot.close()
    server.close()
    assert 'boom' in caplog.text


def test_a_closed_end_neither_sends_nor_receives() -> None:
    """Closing twice, from the handler too, is harmless."""
    with joined() as (robot, server, received):
        robot.send(ping(1))
        take(received, 1)
        server.close()
        server.close()
        robot.send(ping(2))
        server.send(ping(3))
        with pytest.raises(Empty):
            received.get(timeout=0.2)


def test_the_rate_can_be_changed_for_both_ways() -> None:
    """At the first rate a single chunk would take minutes, longer than `take` waits."""
    with joined(rate=50.0) as (robot, server, received):
        answers: Queue[Frame] = Queue()
        robot.listen(answers.put)
        server.set_rate(1e8)
        chunks = chunks_of(20_000)
        for chunk in chunks:
            robot.send(chunk)
            server.send(chunk)
        assert take(received, 2) == take(answers, 2) == chunks
        with pytest.raises(ValueError, match='cut'):
            robot.set_rate(0.0)


@pytest.mark.parametrize('options', [{'chunk_bytes': 0}, {'rate': 0.0}, {'delay': -1.0}])
def test_impossible_settings_are_refused(options: dict[str, float]) -> None:
    """The error names the values."""
    with pytest.raises(ValueError, match='must be positive'):
        memory_pair(**options)


def test_a_channel_around_another_passes_all_on() -> None:
    with joined(chunk_bytes=1234, rate=10.0) as (robot, _, received):
        around = WrappedChannel(robot)
        for chunk in chunks_of(5000, chunk_bytes=around.chunk_bytes):
            around.send(chunk)
        assert around.chunk_bytes == around.chunk_bytes_of(1) == robot.chunk_bytes == 1234
        assert around.waiting > 0 and around.rejected == robot.rejected
        around.abandon(1, 1)
        assert around.waiting == 0
        around.close()
        around.send(ping(1))
        with pytest.raises(Empty):
            received.get(timeout=0.1)


@pytest.mark.usefixtures('eager_switches')
def test_a_link_is_reported_while_chunks_arrive() -> None:
    """Anyone who asks, on any thread, gets a report: also while another run of chunks begins."""
    with joined(rate=50e6) as (robot, server, received):
        for _ in range(500):
            sent = chunks_of(30_000)
            for part in sent:
                robot.send(part)
            until = time.monotonic() + 3e-3
            while time.monotonic() < until:
                assert server.report().age >= 0
            assert all(received.get(timeout=60) for _ in sent)
