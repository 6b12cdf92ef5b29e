# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A plain listener that writes what it hears to a bag (ROS 2, SQLite), by `rosbags`.

It uses no setting of this package's transport, as any other node would.
``ros2 bag play`` and Foxglove read the bag, and so does `read_bag`.
"""
from __future__ import annotations

from collections import Counter
import importlib
from pathlib import Path
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSProfile

from intradp_ros.nodes.common.bags import BagWriter

_DEPTH = 200


class Recorder(Node):
    """Subscribes to `topics` (each a name and a type) and writes them to the bag `output`."""

    def __init__(self) -> None:
        super().__init__('recorder_node')
        topics: list[str] = self.declare_parameter(
            'topics', ['image sensor_msgs/msg/Image']).value
        self.bag = BagWriter(Path(self.declare_parameter('output', 'bag').value))
        self.heard: Counter[str] = Counter()
        for name, kind in (text.split() for text in topics):
            self._listen(self.resolve_topic_name(name), kind)
        self.create_timer(0.5, self._report)

    def _listen(self, topic: str, kind: str) -> None:
        write = self.bag.topic(topic, kind)

        def take(data: bytes) -> None:
            write(self.get_clock().now().nanoseconds, data)
            self.heard[topic] += 1

        self.create_subscription(_class_of(kind), topic, take, QoSProfile(depth=_DEPTH),
                                 raw=True)

    def _report(self) -> None:
        counts: Any = ' '.join(f'{topic}={count}' for topic, count in sorted(self.heard.items()))
        print(f'heard {counts}', flush=True)


def _class_of(kind: str) -> Any:
    """Return the class of a type such as ``sensor_msgs/msg/Image``."""
    package, _, name = kind.split('/')
    return getattr(importlib.import_module(f'{package}.msg'), name)


def main(args: list[str] | None = None) -> None:
    """Run the recorder until it is told to stop; the bag is whole then."""
    rclpy.init(args=args)
    recorder = Recorder()
    print('listening', flush=True)
    try:
        rclpy.spin(recorder)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        recorder.bag.close()
        recorder.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
