# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Subscribes to what an inference node publishes, and keeps what is seen of it."""
from __future__ import annotations

import threading
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
from rclpy.event_handler import SubscriptionEventCallbacks
from rclpy.node import Node

from intradp_ros.msg import InferenceStats, InferenceTimeline, LinkState, SharingEvent
from intradp_ros.nodes.common.lifecycle import LATCHED
from intradp_ros.nodes.common.plain_messages import plain
from intradp_ros.report.view.blocks import Block
from intradp_ros.report.view.observed import Observed

_STATS = 'intradp_ros/msg/InferenceStats'
_DEPTH = 50


def robots_of(node: Node) -> list[str]:
    """Return the names of the nodes that publish figures of inferences."""
    return sorted(topic.rpartition('/')[0] for topic, kinds in node.get_topic_names_and_types()
                  if _STATS in kinds and topic.endswith('/stats'))


class RobotWatch:
    """
    Watches one robot through somebody else's node, which others may spin in any thread.

    The timeline is asked for only while `timelines` is set: robot and server
    then measure and send it.
    """

    def __init__(self, node: Node, robot: str) -> None:
        """Subscribe to the topics of `robot`, a fully qualified node name."""
        self._node, self._lock, self._robot = node, threading.Lock(), robot
        self._observed = Observed()
        self._timeline: Any = None
        self._newest: Any = None
        above = robot.rpartition('/')[0]
        self._subscriptions = [
            self._subscribe(InferenceStats, f'{robot}/stats', _DEPTH),
            self._subscribe(LinkState, f'{robot}/link', _DEPTH),
            self._subscribe(SharingEvent, f'{robot}/events', LATCHED),
            *(self._subscribe(DiagnosticArray, topic, _DEPTH)
              for topic in sorted({'/diagnostics', f'{above}/diagnostics'}))]

    @property
    def timelines(self) -> bool:
        """Whether timelines are asked for."""
        return self._timeline is not None

    @timelines.setter
    def timelines(self, wanted: bool) -> None:
        if wanted and self._timeline is None:
            self._timeline = self._subscribe(InferenceTimeline, f'{self._robot}/timeline', 1)
        elif not wanted and self._timeline is not None:
            self._node.destroy_subscription(self._timeline)
            self._timeline = None

    def blocks(self) -> tuple[list[tuple[str, str]], list[Block]]:
        """Return rows about the robot and its link, and what a view shows of its frames."""
        with self._lock:
            if self._newest is not None:  # most are never looked at
                self._observed.take('InferenceTimeline', f'{self._robot}/timeline',
                                    plain(self._newest), time.monotonic())
                self._newest = None
            sections = self._observed.view({}, time.monotonic())['sections']
        maps = [block for section in sections if section['id'] == 'map'
                for block in section['blocks']]
        rows = [('robot', f'{what["name"]}, {what["state"]}: {"; ".join(what["lines"])}')
                for block in maps for what in block['machines'] if what['name'] == self._robot]
        rows += [('link', medium['text']) for block in maps for medium in block['media']
                 if medium['name'] == f'link of {self._robot}']
        return rows, [block for section in sections if section['id'].startswith('sharing')
                      for block in section['blocks']]

    def close(self) -> None:
        """Stop watching."""
        self.timelines = False
        for subscription in self._subscriptions:
            self._node.destroy_subscription(subscription)
        self._subscriptions = []

    def _subscribe(self, kind: type, topic: str, qos: Any) -> Any:
        def taken(message: Any) -> None:
            with self._lock:
                if kind is InferenceTimeline:
                    self._newest = message
                else:
                    self._observed.take(kind.__name__, topic, plain(message), time.monotonic())

        # Who spins waits for a subscription's events, too, and ends with an error when these
        # are destroyed at a wrong moment (rclpy 9): without events there is no such moment.
        return self._node.create_subscription(
            kind, topic, taken, qos,
            event_callbacks=SubscriptionEventCallbacks(use_default_callbacks=False))
