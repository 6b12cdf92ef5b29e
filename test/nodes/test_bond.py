# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The bond to a lifecycle manager, against a manager's end that is written by the protocol."""
from __future__ import annotations

from collections.abc import Callable, Iterator
import time
from typing import Any

import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from intradp_ros.nodes.common import bond
from intradp_ros.nodes.common.bond import bond_messages
from intradp_ros.nodes.common.lifecycle import ManagedNode

SUCCESS = TransitionCallbackReturn.SUCCESS
TIMEOUT = 60.0
NAME = 'watched'


class Watched(ManagedNode):
    """A node that does nothing."""

    def setup(self, parameters: dict[str, Any]) -> None:
        """Need nothing."""

    def start(self) -> None:
        """Do nothing."""


class Manager:
    """The other end: says that it lives, and keeps what the node says."""

    def __init__(self, context: rclpy.Context) -> None:
        self.status = pytest.importorskip('bond.msg').Status
        self.node = rclpy.create_node('manager', context=context)
        self.heard: list[Any] = []
        self.publisher = self.node.create_publisher(self.status, 'bond', 5)
        self.node.create_subscription(
            self.status, 'bond', lambda m: m.instance_id.startswith('manager') or
            self.heard.append(m), 100)

    def say(self, instance: str = 'manager 1', *, active: bool = True, name: str = NAME) -> None:
        self.publisher.publish(self.status(
            id=name, instance_id=instance, active=active, heartbeat_timeout=4.0,
            heartbeat_period=0.1))


class World:
    """A node and its manager."""

    def __init__(self, context: rclpy.Context, **parameters: Any) -> None:
        self.executor = SingleThreadedExecutor(context=context)
        self.manager = Manager(context)
        self.watched = Watched(NAME, context=context, parameter_overrides=[
            Parameter(name, value=value) for name, value in parameters.items()])
        for node in (self.manager.node, self.watched):
            self.executor.add_node(node)
        assert self.watched.trigger_configure() == SUCCESS

    def until(self, condition: Callable[[], Any]) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, self.manager.heard[-3:]
            self.executor.spin_once(timeout_sec=0.05)

    def close(self) -> None:
        self.watched.release()
        self.watched.destroy_node()
        self.manager.node.destroy_node()
        self.executor.shutdown()


@pytest.fixture
def world(context: rclpy.Context) -> Iterator[World]:
    world = World(context, autostart=False)
    yield world
    world.close()


def bonded(world: World, instance: str = 'manager 1') -> None:
    """Activate, and say that the manager lives until the node has heard it."""
    assert world.watched.trigger_activate() == SUCCESS
    world.until(lambda: world.manager.publisher.get_subscription_count() > 1)
    world.until(lambda: any(m.active for m in world.manager.heard))
    world.manager.say(instance)


def test_the_node_lives_under_its_name_while_it_is_active(world: World) -> None:
    bonded(world)
    said = world.manager.heard
    assert {m.id for m in said} == {NAME} and len({m.instance_id for m in said}) == 1
    assert said[-1].heartbeat_timeout == 4.0
    assert said[-1].heartbeat_period == pytest.approx(0.1)
    assert world.watched.trigger_deactivate() == SUCCESS
    world.until(lambda: not world.manager.heard[-1].active)


def test_a_manager_that_ends_is_answered_at_once(world: World) -> None:
    bonded(world)
    world.until(lambda: len(world.manager.heard) > 3)
    world.manager.say('manager 2', active=False)       # a third end ends nothing
    world.manager.say(active=False, name='other node')  # nor one of another bond
    count = len(world.manager.heard)
    world.until(lambda: len(world.manager.heard) > count + 3)
    assert world.manager.heard[-1].active
    world.manager.say(active=False)
    world.until(lambda: not world.manager.heard[-1].active)
    count = len(world.manager.heard)
    for _ in range(10):
        world.executor.spin_once(timeout_sec=0.05)
    assert len(world.manager.heard) == count  # nothing more is said
    bonded(world) if world.watched.trigger_deactivate() == SUCCESS else pytest.fail('active')
    world.until(lambda: world.manager.heard[-1].active)  # a new bond with the next activation


def test_another_manager_may_come_after_one_fell_silent(
        world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bond, 'PATIENCE', 0.3)
    bonded(world)
    world.until(lambda: any(not m.active for m in world.manager.heard))
    first = world.manager.heard[0].instance_id
    world.until(lambda: world.manager.heard[-1].active
                and world.manager.heard[-1].instance_id != first)
    world.manager.say('manager 2')
    world.manager.say('manager 2', active=False)
    world.until(lambda: not world.manager.heard[-1].active
                and world.manager.heard[-1].instance_id != first)


@pytest.mark.parametrize('parameters', [{'autostart': True},
                                        {'autostart': False, 'bond_heartbeat_period': 0.0}])
def test_without_a_manager_there_is_no_bond(context: rclpy.Context,
                                            parameters: dict[str, Any]) -> None:
    world = World(context, **parameters)
    try:
        assert world.watched.trigger_activate() == SUCCESS
        assert world.watched.count_publishers('bond') == 1  # the manager's own
    finally:
        world.close()


def test_without_the_package_the_node_says_so(world: World, monkeypatch: pytest.MonkeyPatch,
                                              capfd: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr('intradp_ros.nodes.common.lifecycle.bond_messages', lambda: None)
    assert world.watched.trigger_activate() == SUCCESS
    assert 'ros-$ROS_DISTRO-bond' in capfd.readouterr().err


def test_another_package_of_that_name_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__('sys').modules, 'bond.msg', __import__('types'))
    assert bond_messages() is None
