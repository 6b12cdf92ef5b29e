# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Record the latency of a real robot's frames while its link is cut, for a picture of the README.

A robot (slowed) and a server in two network namespaces share HED on a video; the link is cut for
a moment.  Every image that is published and every inference becomes a row.  Needs root, as
`make demo` does:

    python tools/record_outage.py doc/images/outage.csv
"""
from __future__ import annotations

from contextlib import suppress
import csv
from pathlib import Path
import sys
import time
from typing import Any

from shared_video import COMMON, SETUP_TIMEOUT, shared_video

from intradp_ros.core.processes import Command

RATE_HZ = 2.0
BEFORE, CUT, AFTER = 8.0, 5.0, 9.0  # seconds
SETTLE = 10.0
#: What the first line of the file says of its rows.
COLUMNS = ('seconds', 'latency_ms', 'shared', 'by_rows', 'robot_finished')


def main(path: Path) -> None:
    """Run the nodes, cut the link, and write what happened."""
    with shared_video('96x224', RATE_HZ) as (link, start):
        time.sleep(SETTLE)
        listener = start(Command('listener', [sys.executable, __file__, '--listen', str(path)],
                                 link.exec_prefix('robot'), (), COMMON))
        listener.wait_for_line('listening', SETUP_TIMEOUT)
        time.sleep(BEFORE)
        cut = time.time()
        link.cut()
        time.sleep(CUT)
        link.restore()
        restored = time.time()
        time.sleep(AFTER)
        listener.stop()
        with path.open('a') as file:
            file.write(f'# link cut from {cut:.2f} to {restored:.2f}\n')


def listen(path: Path) -> None:
    """Write a row for each image (without a latency) and each inference, until stopped."""
    import rclpy
    from rclpy.executors import ExternalShutdownException
    from rclpy.node import Node
    from sensor_msgs.msg import Image

    from intradp_ros.msg import InferenceStats

    def seconds(message: Any) -> str:
        stamp = message.header.stamp
        return f'{stamp.sec + stamp.nanosec / 1e9:.3f}'

    rclpy.init()
    node = Node('outage_listener')
    with path.open('w', newline='') as file:
        rows = csv.writer(file, lineterminator='\n')
        rows.writerow(COLUMNS)
        node.create_subscription(
            Image, 'image', lambda image: rows.writerow([seconds(image), '', '', '', '']), 50)
        node.create_subscription(
            InferenceStats, 'inference_node/stats',
            lambda s: rows.writerow([seconds(s), f'{s.latency_ms:.0f}', int(s.shared),
                                     int(s.by_rows), int(s.recovered)]), 50)
        print('listening', flush=True)
        with suppress(KeyboardInterrupt, ExternalShutdownException):
            rclpy.spin(node)


if __name__ == '__main__':
    if sys.argv[1] == '--listen':
        listen(Path(sys.argv[2]))
    else:
        main(Path(sys.argv[1]).resolve())
