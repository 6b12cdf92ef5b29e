# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Records the timelines that a robot publishes while somebody subscribes; for ``intradp trace``.

``python -m intradp_ros.nodes.sharing.timeline_recorder NAMESPACE ROBOT FRAMES SECONDS`` prints one
line of JSON: the robots that publish timelines, and the frames that came of ROBOT (empty: of the
only one) as lists of number, begin in seconds, and spans.
"""
from __future__ import annotations

import json
import sys
import time
from typing import Any

import rclpy
from rclpy.node import Node

from intradp_ros.msg import InferenceTimeline
from intradp_ros.nodes.common.lifecycle import RELIABLE
from intradp_ros.nodes.common.unused_overrides import NO_LOG_FILE
from intradp_ros.runtime.transport.timeline import published_events

_KIND = 'intradp_ros/msg/InferenceTimeline'
_POLL = 0.1


class TimelineRecorder:
    """A node that keeps the timelines of one robot."""

    def __init__(self, namespace: str) -> None:
        self.node = Node('intradp_trace', namespace=namespace, start_parameter_services=False)
        self.frames: list[tuple[int, float, list[Any]]] = []
        self.rejected = 0

    def robots(self) -> list[str]:
        """Return the full names of the nodes that publish timelines."""
        space = self.node.get_namespace().rstrip('/') + '/'
        return sorted(topic.rpartition('/')[0]
                      for topic, kinds in self.node.get_topic_names_and_types()
                      if _KIND in kinds and topic.endswith('/timeline')
                      and topic.startswith(space) and self.node.count_publishers(topic))

    def record(self, robot: str, frames: int, seconds: float) -> list[str]:
        """
        Spin until so many frames of a robot came, or the seconds are over; return the robots seen.

        Without a name the first second shows which robots there are; of several none is recorded.
        """
        begun = time.monotonic()
        found, subscription = self.robots(), None
        while len(self.frames) < frames and time.monotonic() < begun + seconds:
            rclpy.spin_once(self.node, timeout_sec=_POLL)
            found = self.robots()
            wanted = robot or (found[0] if len(found) == 1
                               and time.monotonic() > begun + min(1.0, seconds / 2) else '')
            if subscription is None and wanted:
                subscription = self.node.create_subscription(
                    InferenceTimeline, f'{wanted}/timeline', self._take, RELIABLE)
        return found

    def _take(self, message: InferenceTimeline) -> None:
        if spans := published_events(message):
            begin = time.monotonic() - max(span.stop for span in spans)
            self.frames.append((message.inference, begin, [span.to_list() for span in spans]))
        else:
            self.rejected += 1


def main() -> None:
    """Record and print."""
    namespace, robot, frames, seconds = sys.argv[1:]
    rclpy.init(args=NO_LOG_FILE)
    recorder = TimelineRecorder(namespace)
    found = recorder.record(robot, int(frames), float(seconds))
    print(json.dumps({'robots': found, 'rejected': recorder.rejected,
                      'frames': recorder.frames[:int(frames)]}), flush=True)
    recorder.node.destroy_node()
    rclpy.try_shutdown()


if __name__ == '__main__':
    main()
