# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the page's listener takes of messages, and that a topic which costs too much is left."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import json
import math
from pathlib import Path
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from node_processes import own_domain
import rclpy

from intradp_ros.msg import FleetState, InferenceStats, InferenceTimeline
from intradp_ros.nodes.common.plain_messages import plain, TEXT
from intradp_ros.nodes.sharing.view_listener import LASTING, MUTED, SETTLING, ViewListener
from intradp_ros.report.view.observed import Observed


def test_messages_are_plain_and_cut() -> None:
    found = plain(InferenceStats(latency_ms=math.nan, strategy='x' * 9999, inference=3))
    assert found['latency_ms'] is None and len(found['strategy']) == TEXT
    array = plain(DiagnosticArray(status=[DiagnosticStatus(
        level=DiagnosticStatus.WARN, name='/a', values=[KeyValue(key='missing', value='b')])]))
    assert array['status'][0]['level'] == 1
    assert len(plain(FleetState(plan='y' * 9999, alive=['a']))['plan']) == 9999
    seen = Observed()
    seen.take('DiagnosticArray', '/diagnostics', json.loads(json.dumps(array)), 1.0)
    [[machine]] = [b['machines'] for s in seen.view({}, 1.5)['sections'] for b in s['blocks']]
    assert (machine['name'], machine['role'], machine['state']) == ('/a', 'coordinator', 'warns')


class Clock:
    def __init__(self) -> None:
        self.now, self.used = 100.0, 0.0


@contextmanager
def listening(clock: Clock) -> Iterator[tuple[Any, ViewListener]]:
    context = rclpy.Context()
    rclpy.init(context=context)
    try:
        node = rclpy.create_node('robot', context=context)
        yield node, ViewListener(rclpy.create_node('view', context=context),
                                 lambda: clock.now, lambda: clock.used)
    finally:
        context.try_shutdown()


def until_heard(listener: ViewListener, clock: Clock, publish: Any, kind: str) -> list[Any]:
    end, found = time.monotonic() + 60, []
    while not any(each[0] == kind for each in found):
        assert time.monotonic() < end, found
        publish()
        clock.now += 0.6
        time.sleep(0.02)
        found += listener.look()
    return found


def test_a_topic_that_costs_too_much_is_left_for_a_while(tmp_path: Path) -> None:
    clock = Clock()
    with own_domain(tmp_path), listening(clock) as (node, listener):
        flood = node.create_publisher(InferenceStats, '/flood/stats', 100)
        calm = node.create_publisher(InferenceStats, '/calm/stats', 10)

        def publish() -> None:
            clock.used += 0.3  # half a core
            calm.publish(InferenceStats(latency_ms=1.0))
            for _ in range(20):
                flood.publish(InferenceStats(strategy='x' * 4000, latency_ms=1.0))
        begun = clock.now
        found = until_heard(listener, clock, publish, 'Notice')
        assert [each[1] for each in found if each[0] == 'Notice'] == ['/flood/stats']
        assert clock.now - begun >= SETTLING
        left, publish_before = clock.now, clock.used
        topics = [each[1] for _ in range(3) for each in until_heard(
            listener, clock, publish, 'InferenceStats') if each[0] == 'InferenceStats']
        assert {*topics} == {'/calm/stats'} and clock.now - left < MUTED
        clock.now += max(MUTED, 1.2 / LASTING)  # it may have cost as much as two looks
        clock.used = publish_before
        end = time.monotonic() + 60
        while '/flood/stats' not in topics:
            assert time.monotonic() < end
            topics += [each[1] for each in until_heard(listener, clock, publish,
                                                       'InferenceStats')]


def test_what_is_measured_for_us_is_taken_on_a_wish_and_rarely(
        tmp_path: Path) -> None:
    clock = Clock()
    with own_domain(tmp_path), listening(clock) as (node, listener):
        timelines = node.create_publisher(InferenceTimeline, '/robot/timeline', 10)
        stats = node.create_publisher(InferenceStats, '/robot/stats', 10)

        def publish() -> None:
            stats.publish(InferenceStats(latency_ms=1.0))
            timelines.publish(InferenceTimeline(lane=['robot'], kind=['compute'], start=[0.0],
                                                name=['x' * 100_000], stop=[0.1]))
        until_heard(listener, clock, publish, 'InferenceStats')
        assert timelines.get_subscription_count() == 0
        listener.wishes = frozenset({'timelines'})
        until_heard(listener, clock, publish, 'InferenceTimeline')
        begun = clock.now
        until_heard(listener, clock, publish, 'InferenceTimeline')
        assert clock.now - begun >= 9.0  # 100 kB at 10 kB/s
