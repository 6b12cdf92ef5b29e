# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A plain listener that writes what it hears to a bag (ROS 2, SQLite), by `rosbags`.

It uses no setting of this package's transport, as any other node would.  What has
the frame id `ignored` is counted and not written: by it those who publish know that
they are heard.
``ros2 bag play`` and Foxglove read the bag, and so does `read_bag`.
"""
from __future__ import annotations

from collections import Counter
import importlib
from pathlib import Path
import struct
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from rclpy.qos import QoSProfile

from intradp_ros.nodes.common.bags import BagWriter

_DEPTH = 200
#: Where a serialised header has its frame id: behind four bytes that say how, and the stamp.
_FRAME_ID = 12


class Recorder(Node):
    """Subscribes to `topics` (each a name and a type) and writes them to the bag `output`."""

    def __init__(self) -> None:
        super().__init__('recorder_node')
        topics: list[str] = self.declare_parameter(
            'topics', ['image sensor_msgs/msg/Image']).value
        self.bag = BagWriter(Path(self.declare_parameter('output', 'bag').value))
        self.ignored: str = self.declare_parameter('ignored', '').value
        self.heard: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        for name, kind in (text.split() for text in topics):
            self._listen(self.resolve_topic_name(name), kind)
        self.create_timer(0.5, self._report)

    def _listen(self, topic: str, kind: str) -> None:
        write = self.bag.topic(topic, kind)

        def take(data: bytes) -> None:
            if self.ignored and frame_id(data) == self.ignored:
                self.left_out[topic] += 1
                return
            write(self.get_clock().now().nanoseconds, data)
            self.heard[topic] += 1

        self.create_subscription(_class_of(kind), topic, take, QoSProfile(depth=_DEPTH),
                                 raw=True)

    def _report(self) -> None:
        for name, counts in (('ignored', self.left_out), ('heard', self.heard)):
            print(name, *(f'{topic}={count}' for topic, count in sorted(counts.items())),
                  flush=True)


def frame_id(data: bytes) -> str:
    """Return the frame id of a serialised message that begins with a header."""
    order = '<' if data[1] & 1 else '>'
    (length,) = struct.unpack_from(f'{order}I', data, _FRAME_ID)
    start = _FRAME_ID + 4
    return bytes(data[start:start + max(0, length - 1)]).decode(errors='replace')


def _class_of(kind: str) -> Any:
    """Return the class of a type such as ``sensor_msgs/msg/Image``."""
    package, _, name = kind.split('/')
    return getattr(importlib.import_module(f'{package}.msg'), name)


def main(args: list[str] | None = None) -> None:
    """Run the recorder until a signal stops it; the bag is whole then."""
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
