# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The plugin as rqt finds, loads and ends it, with real topics and Qt without a screen."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from importlib import import_module
import os
from pathlib import Path
import sys
import time
from types import ModuleType
from typing import Any
from xml.etree import ElementTree

from matplotlib.figure import Figure
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node

from intradp_ros.msg import InferenceStats, InferenceTimeline, SharingEvent
from intradp_ros.nodes.common.lifecycle import LATCHED
from intradp_ros.rqt.robot_watch import robots_of, RobotWatch

SHARE = Path(sys.prefix, 'share', 'intradp_ros')
TIMEOUT = 60.0
PERIOD = 0.1  # between inferences


class Robot:
    """A node that publishes what an inference node does."""

    def __init__(self, context: rclpy.Context, name: str) -> None:
        self.node = rclpy.create_node(name, context=context)
        self._next = 0.0
        self.stats = self.node.create_publisher(InferenceStats, '~/stats', 10)
        self.timelines = self.node.create_publisher(InferenceTimeline, '~/timeline', 10)
        self.events = self.node.create_publisher(SharingEvent, '~/events', LATCHED)
        self.events.publish(SharingEvent(kind='outage', inference=3, text='the link was cut'))

    def infer(self) -> None:
        """Publish what an inference gives, as often as a robot would."""
        if (now := time.monotonic()) < self._next:
            return
        self._next = now + PERIOD
        self.stats.publish(InferenceStats(
            strategy='shared', schedule=2, shared=True, by_rows=True, latency_ms=40.0,
            alone_ms=80.0))
        self.timelines.publish(InferenceTimeline(
            lane=['robot', 'server'], kind=['compute'] * 2, name=['conv', 'conv'],
            start=[0.0, 0.01], stop=[0.02, 0.03]))


class Context:
    """What rqt hands to a plugin: its node, and where widgets go."""

    def __init__(self, node: Node) -> None:
        self.node, self.widgets = node, []

    def serial_number(self) -> int:
        return 2

    def add_widget(self, widget: Any) -> None:
        self.widgets.append(widget)


class Settings(dict):
    """Settings as rqt keeps them."""

    def set_value(self, key: str, value: Any) -> None:
        self[key] = value

    def value(self, key: str, default: Any) -> Any:
        return self.get(key, default)


@pytest.fixture
def rqt(application: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand in for the base class of plugins: no wheel carries rqt."""
    from qtpy import QtCore

    class Plugin(QtCore.QObject):
        def __init__(self, context: Any) -> None:
            super().__init__()

    package, module = ModuleType('rqt_gui_py'), ModuleType('rqt_gui_py.plugin')
    module.Plugin = Plugin  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, 'rqt_gui_py', package)
    monkeypatch.setitem(sys.modules, 'rqt_gui_py.plugin', module)


def plugin_class() -> Any:
    """Return the class that package.xml and plugin.xml, as installed, lead to."""
    exported = ElementTree.parse(SHARE / 'package.xml').find('export/rqt_gui')
    assert exported is not None
    described = Path(exported.get('plugin', '').replace('${prefix}', str(SHARE)))
    (entry,) = ElementTree.parse(described).getroot().iter('class')
    assert entry.get('base_class_type') == 'rqt_gui_py::Plugin'
    assert entry.findtext('qtgui/label')
    module, _, name = entry.get('type', '').rpartition('.')
    return getattr(import_module(module), name)


@pytest.fixture
def spun(context: rclpy.Context) -> Iterator[tuple[SingleThreadedExecutor, Node]]:
    """Return an executor, and rqt's node."""
    executor, node = SingleThreadedExecutor(context=context), rclpy.create_node(
        'rqt', context=context)
    executor.add_node(node)
    yield executor, node
    executor.shutdown()
    node.destroy_node()


@pytest.fixture
def robots(context: rclpy.Context) -> Iterator[Callable[[str], Robot]]:
    """Return what makes robots; they are gone after the test, however that ends."""
    made = []

    def make(name: str) -> Robot:
        made.append(Robot(context, name))
        return made[-1]
    yield make
    for robot in made:
        robot.node.destroy_node()


def test_the_plugin_shows_a_robot(rqt: None, application: Any, robots: Callable[[str], Robot],
                                  spun: tuple[SingleThreadedExecutor, Node]) -> None:
    """Rows, events that were before, history and timeline; kept for the next start."""
    executor, node = spun
    robot, given = robots('robot'), Context(node)
    before = {s.topic_name for s in node.subscriptions}
    plugin = plugin_class()(given)
    (widget,) = given.widgets
    widget.resize(700, 700)
    widget.show()

    def until(condition: Any, what: str) -> None:
        end = time.monotonic() + TIMEOUT
        while not condition():
            assert time.monotonic() < end, f'waited in vain for {what}'
            robot.infer()
            executor.spin_once(0.02)
            application.processEvents()

    until(lambda: widget.robot == '/robot', 'the robot')
    until(lambda: 'both by rows' in widget._values['now'].text()
          if widget._values else False, 'its figures')
    assert widget._values['gain over local'].text() == '2.00 times as fast'
    assert widget._values['schedule'].text() == 'shared 2'
    assert widget._values['latency, median'].text() == '40 ms'
    until(lambda: widget._events.count(), 'what happened before')
    assert 'the link was cut' in widget._events.item(0).text()
    until(lambda: widget._history.pixmap() and not widget._history.pixmap().isNull(),
          'the history')
    assert robot.timelines.get_subscription_count() == 0  # it costs: only when it is asked for
    widget.timelines = True
    until(lambda: widget._timeline.pixmap() and not widget._timeline.pixmap().isNull(),
          'the timeline')
    settings = Settings()
    plugin.save_settings(None, settings)
    plugin.shutdown_plugin()
    assert {s.topic_name for s in node.subscriptions} == before
    again = plugin_class()(Context(node))
    again.restore_settings(None, settings)
    assert (again._widget.robot, again._widget.timelines) == ('/robot', True)
    again.shutdown_plugin()


class Interrupted(SingleThreadedExecutor):
    """Calls a function while it gathers what it waits for, as if another thread had."""

    def __init__(self, context: rclpy.Context, entities: int, call: Callable[[], None]) -> None:
        super().__init__(context=context)
        self.left, self.call = entities, call

    def can_execute(self, entity: Any) -> bool:
        self.left -= 1
        if not self.left:
            self.call()
        return super().can_execute(entity)


def test_watching_ends_at_any_moment_of_whoever_spins(context: rclpy.Context) -> None:
    """Rqt spins its node in a thread; a user chooses another robot or closes the plugin."""
    node, entities = rclpy.create_node('rqt', context=context), 0
    while True:
        entities += 1
        watch = RobotWatch(node, '/robot')
        executor = Interrupted(context, entities, watch.close)
        executor.add_node(node)
        executor.create_task(lambda: None)
        for _ in range(2):  # the task ends the first
            executor.spin_once(0.01)
        executor.remove_node(node)
        executor.shutdown()
        if executor.left > 0:
            break
    watch.close()
    node.destroy_node()
    assert entities > 5


def test_robots_are_found_by_what_they_publish(robots: Callable[[str], Robot],
                                               spun: tuple[SingleThreadedExecutor, Node],
                                               ) -> None:
    executor, node = spun
    for name in ('two', 'one'):
        robots(name)
    end = time.monotonic() + TIMEOUT
    while robots_of(node) != ['/one', '/two']:
        assert time.monotonic() < end, robots_of(node)
        executor.spin_once(0.05)


class Painter(Executor):
    """Draws nothing: says of each picture that it took `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.drawings = seconds, 0

    def submit(self, *given: Any, **named: Any) -> Future[Any]:
        self.drawings += 1
        done: Future[Any] = Future()
        done.set_result((1, 1, bytes(4), self.seconds))
        return done


@pytest.mark.parametrize('seconds', [0.01, 5.0])
def test_drawing_never_takes_much_of_a_processor(application: Any, seconds: float) -> None:
    """A robot that infers all the time must not make rqt draw all the time."""
    from intradp_ros.rqt.sharing_widget import DRAW_EVERY, DRAW_SHARE, Picture

    painter = Painter(seconds)
    picture = Picture(painter)
    picture.show()
    looks = [0.5 * number for number in range(1000)]
    for now in looks:
        picture.draw(Figure, object(), now)
        picture.take()
    assert painter.drawings > 1
    assert (painter.drawings - 1) * max(DRAW_EVERY, seconds / DRAW_SHARE) <= looks[-1]
    picture.close()


def test_what_was_drawn_or_is_not_seen_is_not_drawn(application: Any) -> None:
    from intradp_ros.rqt.sharing_widget import Picture

    painter, spans = Painter(0.0), object()
    picture = Picture(painter)
    picture.draw(Figure, spans, 0.0)
    assert painter.drawings == 0  # not shown
    picture.show()
    for now in (10.0, 20.0):
        picture.draw(Figure, spans, now)
        picture.take()
    assert painter.drawings == 1
    picture.close()


def test_with_no_robot_it_says_what_it_looked_for(application: Any) -> None:
    from intradp_ros.cli.view import PORT
    from intradp_ros.rqt.sharing_widget import PAGE, SharingWidget
    widget = SharingWidget(lambda: [], lambda name: pytest.fail('nothing is to be watched'))
    try:
        widget.show()
        widget.refresh()
        said = widget._nothing
        assert said.isVisible() and 'intradp_ros/msg/InferenceStats' in said.text()
        assert f'ROS domain {os.environ.get("ROS_DOMAIN_ID", "0")}' in said.text()
        assert PAGE.endswith(f':{PORT}')
    finally:
        widget.close_watch()
