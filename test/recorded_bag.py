# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A bag as `ros2 bag record -a` writes it beside a robot and a fleet, with figures of our own."""
from __future__ import annotations

from pathlib import Path

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import numpy as np
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image
from std_msgs.msg import String

from intradp_ros.msg import FleetState, InferenceStats, InferenceTimeline
from intradp_ros.nodes.common.bags import BagWriter

BEGIN, SECOND = 1_700_000_000 * 10**9, 10**9


def values(k: int) -> Image:
    pixels = np.linspace(0, k + 1, 6 * 8, dtype=np.float32).reshape(6, 8)
    return Image(height=6, width=8, encoding='32FC1', step=32, data=pixels.tobytes())


def recorded(path: Path, seconds: int = 20) -> Path:
    """Record a robot, of which a device is lost after ten seconds."""
    writer = BagWriter(path)
    topics = {topic: writer.topic(topic, kind) for topic, kind in (
        ('/diagnostics', 'diagnostic_msgs/msg/DiagnosticArray'),
        ('/chatter', 'std_msgs/msg/String'),
        ('/robot/stats', 'intradp_ros/msg/InferenceStats'),
        ('/robot/timeline', 'intradp_ros/msg/InferenceTimeline'),
        ('/robot/debug_image', 'sensor_msgs/msg/Image'), ('/camera', 'sensor_msgs/msg/Image'),
        ('/fleet/state', 'intradp_ros/msg/FleetState'))}
    for k in range(seconds):
        status = DiagnosticStatus(name='/robot', message='sharing', values=[
            KeyValue(key='inferences', value=str(k))])
        for topic, message in (
                ('/chatter', String(data='x')), ('/camera', values(k)),
                ('/diagnostics', DiagnosticArray(status=[status])),
                ('/robot/stats', InferenceStats(inference=k, latency_ms=40.5 + k)),
                ('/robot/timeline', InferenceTimeline(
                    inference=k, lane=['robot'], kind=['compute'], name=['conv2d'], start=[0.0],
                    stop=[0.01])),
                ('/robot/debug_image', values(k)),
                ('/fleet/state', FleetState(
                    expected=['a', 'b'], alive=['a', 'b'][:1 + (k < 10)],
                    trouble=['b refuses: too hot'] * (k >= 10)))):
            topics[topic](BEGIN + k * SECOND, serialize_message(message))
    writer.close()
    return path
