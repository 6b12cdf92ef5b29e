# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp trace`` records a robot's next frames over DDS, and says why where none come."""
from __future__ import annotations

import json
import os
from pathlib import Path
import subprocess
import sys
import threading

import rclpy
from rclpy.context import Context
from rclpy.executors import SingleThreadedExecutor
from rclpy.node import Node
from std_msgs.msg import Header

from intradp_ros.msg import InferenceTimeline
from intradp_ros.nodes.common.lifecycle import RELIABLE
from intradp_ros.nodes.sensors.result_messages import timeline_message
from intradp_ros.runtime.transport.timeline import Event

DOMAIN = 1 + os.getpid() % 100
SPANS = (Event('robot', 'compute', 'conv2d', 0.0, 0.01),
         Event('uplink', 'transfer', 'x[0:4]', 0.002, 0.004),
         Event('server', 'compute', 'conv2d', 0.004, 0.009))


def trace(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command where ROS can write no log, as on a disk that may only be read."""
    return subprocess.run(
        [sys.executable, '-m', 'intradp_ros.cli.main', 'trace', '-o', str(folder / 'trace.json'),
         '--json', *words], cwd=folder, capture_output=True, text=True, timeout=120, check=False,
        env={**os.environ, 'ROS_DOMAIN_ID': str(DOMAIN), 'ROS_LOG_DIR': '/proc/no'})


def test_frames_of_a_robot(tmp_path: Path) -> None:
    context = Context()
    rclpy.init(context=context, domain_id=DOMAIN)
    node = Node('inference', namespace='/r1', context=context)
    publisher = node.create_publisher(InferenceTimeline, '~/timeline', RELIABLE)
    count = iter(range(1_000_000))

    def publish() -> None:
        number = next(count)
        message = timeline_message(Header(), number, SPANS)
        if number % 3 == 0:  # no timeline ends before it begins
            message.stop = [-1.0] * len(SPANS)
        publisher.publish(message)

    node.create_timer(0.05, publish)
    executor = SingleThreadedExecutor(context=context)
    executor.add_node(node)
    spinning = threading.Thread(target=executor.spin)
    spinning.start()
    try:
        done = trace(tmp_path, '--frames', '4', '--seconds', '30')
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout)
        assert said['frames'] == 4 and said['rejected'] >= 1
        events = json.loads((tmp_path / 'trace.json').read_text())['traceEvents']
        spans = [event for event in events if event['ph'] == 'X']
        assert len(spans) == 4 * len(SPANS) and len({e['args']['frame'] for e in spans}) == 4
        assert [round(e['dur']) for e in spans[:3]] == [10000, 2000, 5000]
        wrong = trace(tmp_path, '/r1/other', '--seconds', '8')
        assert wrong.returncode == 2 and '/r1/inference' in wrong.stderr
    finally:
        executor.shutdown()
        spinning.join()
        node.destroy_node()
        context.shutdown()


def test_where_no_robot_is_the_next_step_is_named(tmp_path: Path) -> None:
    done = trace(tmp_path, '--namespace', '/nobody', '--seconds', '0.5')
    assert done.returncode == 2 and 'intradp status' in done.stderr
    assert not (tmp_path / 'trace.json').exists()
