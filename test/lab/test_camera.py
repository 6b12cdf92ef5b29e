# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The camera and the recorder of the demonstrations: what counts begins when all have met."""
from __future__ import annotations

from pathlib import Path
import re
import signal
import time

from node_processes import own_domain, TIMEOUT
from rclpy.serialization import serialize_message
from sensor_msgs.msg import CompressedImage, Image
from std_msgs.msg import Header

from intradp_lab.emulation.processes import Child, ros_arguments, starter, wait_until
from intradp_lab.recorder_node import frame_id
from intradp_lab.zoo.video import WARM_UP
from intradp_ros.core.processes import Command
from intradp_ros.msg import InferenceStats
from intradp_ros.nodes.common.bags import read_bag

FRAMES = 4
TOPICS = {'/image': 'sensor_msgs/msg/Image',
          '/image/compressed': 'sensor_msgs/msg/CompressedImage'}


def said(child: Child, kind: str) -> dict[str, int]:
    last = re.findall(f'(?m)^{kind} (.*)\n', child.output())[-1:]
    return {topic: int(count) for topic, count in re.findall(r'(\S+)=(\d+)', ''.join(last))}


def test_a_reader_that_comes_late_misses_nothing_that_counts(tmp_path: Path) -> None:
    """Another reader is there from the beginning, so that a count of readers says nothing."""
    with own_domain(tmp_path, local=True), starter(tmp_path / 'logs') as start:
        def recorder(name: str) -> Child:
            return start(Command(name, ros_arguments(
                'intradp_lab.recorder_node', node=name, parameters={
                    'topics': [f'{topic} {kind}' for topic, kind in TOPICS.items()],
                    'output': str(tmp_path / name), 'ignored': WARM_UP})))

        early = recorder('early')
        camera = start(Command('camera', ros_arguments('intradp_lab.camera_node', parameters={
            'frames': FRAMES, 'rate_hz': 20.0, 'warm_up': True})))
        wait_until(lambda: said(early, 'ignored').keys() == TOPICS.keys(), TIMEOUT, 'images',
                   [early, camera])
        time.sleep(2.0)
        late = recorder('late')
        wait_until(lambda: said(late, 'ignored').keys() == TOPICS.keys(), TIMEOUT, 'images',
                   [late, camera])
        assert 'frame 0' not in camera.output() and not said(late, 'heard')
        camera.signal(signal.SIGUSR1)
        for each in (early, late):
            wait_until(lambda r=each: said(r, 'heard') == dict.fromkeys(TOPICS, FRAMES), TIMEOUT,
                       'all frames', [each, camera])
        late.signal(signal.SIGINT)
        late.wait(TIMEOUT)
    for messages in read_bag(tmp_path / 'late').values():
        assert [m.header.frame_id for m in messages.values()] == ['camera'] * FRAMES


def test_a_frame_id_is_read_from_any_message_with_a_header() -> None:
    for kind in (Image, CompressedImage, InferenceStats):
        for text in ('', 'camera', 'warm-up', 'Küche'):
            assert frame_id(serialize_message(kind(header=Header(frame_id=text)))) == text
