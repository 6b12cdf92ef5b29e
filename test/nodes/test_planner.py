# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The planner: one plan for each pair of profiles, whatever else comes."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
import json
from pathlib import Path
import time

from node_processes import LATCHED
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from rclpy.parameter import Parameter
from small_models import Mobile, seeded, UNet
import torch
from torch import nn

from intradp_ros.core.limits import MAX_MODEL_TEXT as MOST
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.link.delay import ASSUMED_DELAY
from intradp_ros.msg import OperatorProfile, ScheduleBook
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, Announcer
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sharing.planner_node import MAX_PROFILES, PlannerNode
from intradp_ros.nodes.sharing.profile_publisher import (
    check_profile,
    check_server_profile,
    profile_message,
    ProfilePublisher,
)
from intradp_ros.profiling.drift import slowed
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import share_module, SharedModel
from intradp_ros.systems.sharing.book.book import ScheduleBook as Book
from intradp_ros.wire.texts import packed, unpacked

TIMEOUT = 90.0


@cache
def measured(make: Callable[[], nn.Module]) -> tuple[SharedModel, Profile]:
    """Measure a network."""
    source = torch.randn(1, 3, 32, 48)
    model = share_module(seeded(make, 32, 48), (source,))
    return model, measure_profile(model.split, (source,), budget=0.1)


def profiles_of(make: Callable[[], nn.Module]) -> list[OperatorProfile]:
    """Return what robot and server say of a network."""
    return [profile_message(role, *measured(make)) for role in ('robot', 'server')]


class Bench:
    """A planner, and a node that talks to it, in one executor."""

    def __init__(self, context: rclpy.Context) -> None:
        self.planner = PlannerNode(context=context, parameter_overrides=[
            Parameter('grid.points', value=1), Parameter('grid.low_mbps', value=100.0)])
        self.node = Node('bench', context=context)
        self.books: list[ScheduleBook] = []
        self.node.create_subscription(ScheduleBook, 'schedule_book', self.books.append, LATCHED)
        self.profiles = self.node.create_publisher(OperatorProfile, 'operator_profiles', LATCHED)
        self.executor = SingleThreadedExecutor(context=context)
        self.executor.add_node(self.planner)
        self.executor.add_node(self.node)

    def until(self, condition: Callable[[], bool]) -> None:
        """Let both nodes run until the condition holds."""
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, self.counts()
            self.executor.spin_once(0.05)

    def counts(self) -> dict[str, int]:
        """Return what the planner has rejected."""
        return dict(self.planner._receiver.rejections.by_cause())

    def busy(self) -> bool:
        """Return whether a book is being made."""
        return any(keeper.busy for keeper in self.planner._keepers.values())

    def made(self) -> int:
        """Return how many books were searched for."""
        return sum(keeper.made for keeper in self.planner._keepers.values())

    def close(self) -> None:
        self.executor.shutdown()
        self.planner.release()
        self.planner.destroy_node()
        self.node.destroy_node()


@pytest.fixture
def bench(context: rclpy.Context) -> Iterator[Bench]:
    bench = Bench(context)
    yield bench
    bench.close()


def test_plans_for_two_models_at_once(bench: Bench) -> None:
    """Each gets its book; a profile that comes again starts nothing; bad ones are counted."""
    pairs = [profiles_of(UNet), profiles_of(Mobile)]
    for message in (m for pair in pairs for m in pair):
        bench.profiles.publish(message)
    bench.planner.trigger_configure()
    bench.planner.trigger_activate()
    bench.until(lambda: len(bench.books) == 2)
    assert {b.digest for b in bench.books} == {pair[0].digest for pair in pairs}
    for message in bench.books:
        book = Book.from_json(unpacked(message.book, MOST))
        assert book.digest == message.digest and book.grid == (100.0,)
    bench.profiles.publish(pairs[0][0])
    bench.profiles.publish(OperatorProfile(role='robot'))
    bench.until(lambda: bench.counts() == {'profile': 1})
    assert not bench.busy()


def test_plans_for_the_delay_that_the_robot_measures(bench: Bench) -> None:
    """
    The server's is not asked for; what changes nothing leads to no other book.

    What does leads to the same schedules with what they take then: here all
    stays on the robot, which no other schedule could better.
    """
    robot, server = profiles_of(Mobile)
    server.delay = 3.0
    bench.profiles.publish(server)
    bench.profiles.publish(robot)
    bench.planner.trigger_configure()
    bench.planner.trigger_activate()
    bench.until(lambda: len(bench.books) == 1)
    assert bench.made() == 1
    robot.delay = 1.01 * ASSUMED_DELAY
    bench.profiles.publish(robot)
    bench.until(lambda: bench.planner._profiles['robot', '', robot.digest].delay == robot.delay)
    robot.delay = 0.02
    bench.profiles.publish(robot)

    def delays() -> list[float]:
        return [Book.from_json(unpacked(b.book, MOST)).delay for b in bench.books]

    bench.until(lambda: delays()[-1] == 0.02)
    assert bench.made() == 1
    assert list(dict.fromkeys(delays())) == [ASSUMED_DELAY, 0.02]  # the first one again and again
    assert list(dict.fromkeys(b.epoch for b in bench.books)) == [1, 2]
    robot.delay = float('nan')
    bench.profiles.publish(robot)
    bench.until(lambda: bench.counts() == {'profile': 1})


def test_what_has_changed_is_published_again() -> None:
    """Profile and delay go together, whichever of them has changed."""
    model, profile = measured(Mobile)
    sent: list[tuple[float, float]] = []

    class Topic:
        def publish(self, message: OperatorProfile) -> None:
            sent.append((Profile.from_json(unpacked(message.profile, MOST)).scale, message.delay))

    published = ProfilePublisher(Topic(), 'robot', model, profile, print)
    published.delayed(ASSUMED_DELAY)
    published.begin()
    published.delayed(0.5)
    published.drifted(slowed(profile, 2.0))
    scale = profile.scale
    assert sent == [(scale, ASSUMED_DELAY), (scale, 0.5), (2.0 * scale, 0.5)]


def test_an_inactive_planner_plans_nothing(bench: Bench) -> None:
    """Deactivated it forgets; activated again it finds the profiles that are still there."""
    pair = profiles_of(Mobile)
    for message in pair:
        bench.profiles.publish(message)
    bench.planner.trigger_configure()
    bench.planner.trigger_activate()
    bench.until(bench.busy)
    bench.planner.trigger_deactivate()
    assert not bench.busy() and not bench.books
    bench.planner.trigger_activate()
    bench.until(lambda: len(bench.books) == 1)


def test_strange_profiles_displace_the_oldest(bench: Bench) -> None:
    """However many come, no more are kept than a few."""
    (robot, _) = profiles_of(Mobile)
    bench.planner.trigger_configure()
    for number in range(3 * MAX_PROFILES):
        digest = f'{number:064x}'
        profile = packed(unpacked(robot.profile, MOST).replace(robot.digest, digest))
        message = OperatorProfile(role='robot', digest=digest, device=robot.device,
                                  graph=robot.graph, profile=profile)
        check_profile(message)
        bench.planner._take_profile(message)
    assert len(bench.planner._profiles) == MAX_PROFILES


def test_arguments_of_other_types_are_refused() -> None:
    """Rules compute with the arguments of a graph that arrived, which may be anything."""
    profile = profiles_of(lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2)))[0]
    check_profile(profile)
    graph = json.loads(unpacked(profile.graph, MOST))
    pool = next(o for o in graph['operators'] if 'max_pool' in json.dumps(o))
    good = json.dumps(pool)
    assert '[2, 2]' in good
    bad = json.dumps(graph).replace(good, good.replace('[2, 2]', '[null, null]'))
    profile.graph = packed(bad)
    with pytest.raises(ValueError, match='cannot be split'):
        check_profile(profile)


@pytest.mark.parametrize('delay', [-1e-9, 10.1, float('inf'), float('nan')])
def test_delays_that_no_link_has_are_refused(delay: float) -> None:
    split = measured(Mobile)[0].split
    for profile in profiles_of(Mobile):
        check_profile(profile)
        profile.delay = delay
        with pytest.raises(ValueError, match='the delay'):
            check_profile(profile)
        with pytest.raises(ValueError, match='the delay'):
            check_server_profile(profile, split)


@pytest.mark.slow
def test_with_a_key_recordings_start_no_plan(context: rclpy.Context, tmp_path: Path) -> None:
    """Profiles of senders that answer do, and the planner answers for its schedule table."""
    key = SharedKey.generate()
    key.save(tmp_path / 'key')
    planner = PlannerNode(context=context, parameter_overrides=[
        Parameter('grid.points', value=1), Parameter('grid.low_mbps', value=100.0),
        Parameter('key_file', value=str(tmp_path / 'key'))])
    sides = ManagedNode('sides', context=context)
    receiver, books = Receiver(sides), list[ScheduleBook]()
    publisher = sides.publish_on(OperatorProfile, 'operator_profiles', LATCHED)
    recorded, check = profiles_of(Mobile), AnnouncementCheck(key)
    for message in recorded:  # of a process that has ended
        Announcer(key).announce(publisher, message)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(planner)
    executor.add_node(sides)
    try:
        planner.trigger_configure()
        planner.trigger_activate()
        end = time.monotonic() + 3.0
        while time.monotonic() < end:
            executor.spin_once(0.05)
        assert not planner._profiles and not planner._receiver.rejections.by_cause()

        def take(message: ScheduleBook) -> None:
            if check(message):
                books.append(message)

        receiver.subscribe(ScheduleBook, 'schedule_book', take, LATCHED, 'book')
        check.ask_on(sides, receiver, ScheduleBook, 'schedule_book', take, 'book')
        announcer = Announcer(key)
        announcer.answer_on(sides, receiver, OperatorProfile, 'operator_profiles')
        for message in recorded:
            announcer.announce(publisher, message)
        end = time.monotonic() + TIMEOUT
        while not books:
            assert time.monotonic() < end, (planner._receiver.last, receiver.last)
            executor.spin_once(0.05)
    finally:
        executor.shutdown()
        for node in (planner, sides):
            node.release()
            node.destroy_node()
