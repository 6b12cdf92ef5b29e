# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Several robots on one server: every result exact, fair turns, load reported, nothing left."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, ExitStack
from dataclasses import replace
import threading
import time

import numpy as np
import pytest
from sharing import (
    assert_equal,
    ENDLESS,
    FixedRate,
    hand_made_book,
    infer_until_shared,
    SOURCE,
    TIMEOUT,
)
import torch
from waiting import wait_for

from intradp_lab.emulation.emulated_device import DeviceClock, emulated
from intradp_lab.testbed.joined_channel import JoinedChannel
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.choice import ScheduleChoice
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, Path
from intradp_ros.systems.sharing.session.connection import State
from intradp_ros.systems.sharing.session.followed_server import validated_load
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)
from intradp_ros.wire.frames import MalformedFrameError

RATES = (5.0, 20.0, 50.0, 100.0)


class Site:
    """A server, and robots with links of their own that come and go."""

    def __init__(self, model: SharedModel, **options: int) -> None:
        self.channel, self.book = JoinedChannel(), hand_made_book(model)
        self.server = OffloadServer(self.channel, {model.digest: model}, lambda text: None,
                                    **options)

    @contextmanager
    def robot(self, model: SharedModel, mbps: float) -> Iterator[RobotClient]:
        near, far = memory_pair(rate=mbps * 125e3)
        self.channel.join(far)
        try:
            with closing(RobotClient(model, near, FixedRate(100.0), lambda text: None,
                                     patience=ENDLESS)) as robot:
                robot.use_book(self.book)
                yield robot
                robot.connection.close()  # says good-bye, which takes its time on a slow link
                wait_for(lambda: robot.connection.session not in self.server.sessions)
        finally:
            self.channel.part(far)


def at_once(*works: Callable[[], object]) -> None:
    """Do things at the same time; raise what they raise."""
    failed: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:  # of another thread: the test must hear of it
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failed:
        raise failed[0]


def session_threads() -> set[threading.Thread]:
    """Return the threads that belong to sessions and robots, of other tests too."""
    return {t for t in threading.enumerate()
            if t.name.startswith(('session-', 'books-', 'executor-', 'connection', 'memory-link'))}


def test_four_robots_on_four_links(model: SharedModel, wanted: torch.Tensor) -> None:
    """All of them get exact results by whatever schedule; no session remains, and no thread."""
    before = session_threads()
    site = Site(model)

    def infer(mbps: float) -> None:
        with site.robot(model, mbps) as robot:
            for strategy in (SHARED, OFFLOAD, LOCAL, SHARED):
                for _ in range(3):
                    if strategy == LOCAL:
                        assert_equal(robot.infer((SOURCE,), strategy=LOCAL).outputs, wanted)
                    else:
                        infer_until_shared(robot, (SOURCE,), wanted, strategy)

    with closing(site.server):
        for _ in range(3):
            at_once(*(lambda mbps=mbps: infer(mbps) for mbps in RATES))
            wait_for(lambda: not site.server.sessions)
        wait_for(lambda: not session_threads() - before), session_threads() - before
        assert site.server.processor.load == 0.0


def on_device(model: SharedModel, seconds: float) -> SharedModel:
    """Return a model on an emulated device, each operator of which takes so many seconds."""
    return emulated(model, [np.full(op.rows + 1, seconds) for op in model.split.operators],
                    DeviceClock())


def test_the_processor_is_shared_and_its_load_reported(model: SharedModel) -> None:
    """Both robots that only offload get as many frames, and hear that there is another one."""
    site, frames, loads = Site(on_device(model, 3e-3)), [0, 0], [0.0, 0.0]
    ready = threading.Barrier(2)

    def infer(number: int) -> None:
        with site.robot(on_device(model, 0.0), 1000.0) as robot:
            assert robot.connection.wait_ready(TIMEOUT)
            ready.wait(TIMEOUT)
            end = time.monotonic() + 3.0
            while time.monotonic() < end:
                frames[number] += robot.infer((SOURCE,), strategy=OFFLOAD).stats.shared
            ready.wait(TIMEOUT)
            loads[number] = robot.connection.clock.load
            ready.wait(TIMEOUT)

    with closing(site.server):
        at_once(lambda: infer(0), lambda: infer(1))
    assert min(frames) >= 5 and max(frames) - min(frames) <= 2
    assert all(1.2 < load <= 2.0 for load in loads), loads


def test_a_robot_that_finds_no_room_stays_alone_and_is_served_later(
        model: SharedModel, wanted: torch.Tensor) -> None:
    """It knows why; its results are right meanwhile."""
    site = Site(model, max_sessions=1)
    with closing(site.server), ExitStack() as second_is_there:
        with site.robot(model, 100.0) as first:
            infer_until_shared(first, (SOURCE,), wanted)
            second = second_is_there.enter_context(site.robot(model, 100.0))
            wait_for(lambda: second.connection.state is State.REFUSED)
            assert second.connection.refusal.startswith('all 1 sessions of this server are in use')
            outcome = second.infer((SOURCE,))
            assert not outcome.stats.shared
            assert_equal(outcome.outputs, wanted)
            infer_until_shared(first, (SOURCE,), wanted)
        infer_until_shared(second, (SOURCE,), wanted)


@pytest.mark.parametrize('stated', [
    0.99, -1.0, float('nan'), float('inf'), 1e9, '2', None, [], {}])
def test_impossible_loads_are_malformed(stated: object) -> None:
    with pytest.raises(MalformedFrameError, match='a load of'):
        validated_load(stated)


def test_the_load_decides_what_is_chosen(model: SharedModel) -> None:
    """Where the server is not for itself what it needs is more; then it does less."""
    book, choice = hand_made_book(model), ScheduleChoice()
    much, little = (LatencyModel((Path(robot, server, 1e-3, 0.0),), (robot, server))
                    for robot, server in ((0.01, 0.1), (0.15, 0.05)))
    alone = LatencyModel((Path(1.0, 0.0, 0.0, 0.0),), (1.0, 0.0))
    known = {LOCAL: alone, OFFLOAD: much, SHARED: little}
    book = ScheduleBook(book.digest, book.axis, 0.0, 0.0, tuple(
        replace(e, anywhere=known[e.strategy], strategy=LOCAL if e.strategy == LOCAL else SHARED)
        for e in book.entries if e.strategy in known))
    chosen = []
    for choice.load in (1.0, 3.0, 100.0):
        index = choice.choose(1, book, 100.0, SHARED, lambda: 0.0)
        assert index is not None
        chosen.append((book.entries[index].anywhere, choice.predicted(book, index, 100.0)))
    assert chosen == [(much, pytest.approx(0.11, abs=1e-4)),
                      (little, pytest.approx(0.3, abs=1e-4)), (alone, 1.0)]
