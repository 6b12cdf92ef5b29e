# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A recorded bag that is replayed gives the same results again, no matter who computes them."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
import re
import signal
import time
from typing import Any

from node_processes import (
    DENSE,
    Nodes,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    QUICK_PLANNER,
    TIMEOUT,
)
import numpy as np
import pytest
from rclpy.serialization import serialize_message
from rosbags.rosbag2 import Reader
from sensor_msgs.msg import Image
from small_models import dense

from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_ros.core.processes import Command
from intradp_ros.nodes.common.bags import read_bag
from intradp_ros.nodes.sensors.image_messages import rgb_to_image

PICTURES = 5
FIRST = 10**6  # the stamp (seconds) of the first one; the observer's own ones begin at 1
HELLO = 10**9  # the stamp (seconds) of what is sent until everybody has met


def recorder(start: Any, bag: Path, topic: str, kind: str) -> Child:
    child: Child = start(Command(bag.name, ros_arguments(
        'intradp_lab.recorder_node',
        parameters={'topics': [f'{topic} {kind}'], 'output': str(bag)})))
    child.wait_for_line('^listening$', TIMEOUT)
    return child


def stop(child: Child) -> None:
    """Let a recorder complete its bag."""
    child.signal(signal.SIGINT)
    child.wait(TIMEOUT)


def stamped(message: Image, second: int) -> Image:
    message.header.stamp.sec, message.header.frame_id = second, 'camera'
    return message


def heard(child: Child) -> int:
    """Return how many messages a recorder says that it has."""
    return max((int(count) for count in re.findall(r'heard \S+=(\d+)', child.output())), default=0)


def meet(observer: Observer, child: Child) -> None:
    """Publish pictures until something that comes of them is recorded."""
    end = time.monotonic() + TIMEOUT
    while not heard(child):
        assert time.monotonic() < end, 'nothing is recorded'
        observer.images.publish(stamped(rgb_to_image(picture(0)), HELLO))
        time.sleep(0.5)


def recorded(observer: Observer, start: Any, bag: Path) -> list[bytes]:
    """Record pictures of a camera; return them as they are in the bag."""
    child = recorder(start, bag, 'image', 'sensor_msgs/msg/Image')
    meet(observer, child)
    before, end = heard(child), time.monotonic() + TIMEOUT
    for number in range(PICTURES):
        observer.images.publish(serialize_message(stamped(
            rgb_to_image(picture(number)), FIRST + number)))
    while heard(child) < before + PICTURES:
        assert time.monotonic() < end, 'pictures are not recorded'
        time.sleep(0.1)
    time.sleep(1.0)  # one of those that were counted may have been on its way before
    stop(child)
    with Reader(bag) as reader:
        return [bytes(data) for _, _, data in reader.messages()]


def replayed(observer: Observer, running: Nodes, start: Any, pictures: list[bytes], bag: Path,
             mode: str) -> Mapping[int, Any]:
    """Play pictures to a new robot; return the results that a recorder wrote down."""
    robot = running.start('inference_node', {'model': DENSE, 'mode': mode, **PATIENT},
                          f'robot of {bag.name}')
    child = recorder(start, bag, 'result', 'intradp_ros/msg/InferenceResult')
    meet(observer, child)
    if mode == 'shared':
        observer.infer_until(picture(0), dense(), lambda stats: stats.shared)
    observer.results.clear()
    for data in pictures:
        observer.images.publish(data)
    wanted = {FIRST + number for number in range(PICTURES)}
    observer.wait(lambda: wanted <= observer.results.keys(), 'results')
    time.sleep(1.0)  # the recorder hears them, too
    stop(child)
    robot.stop()
    found = read_bag(bag)['/result']
    return {second: message for message in found.values()
            if FIRST <= (second := message.header.stamp.sec) < HELLO}


@pytest.mark.slow
def test_a_bag_that_is_replayed_gives_the_same_results(tmp_path: Path) -> None:
    """By the robot alone to the last bit; shared with a server, but for rounding."""
    with own_domain(tmp_path), nodes(tmp_path / 'logs') as running, \
            starter(tmp_path / 'recorders') as start:
        observer = Observer()
        try:
            pictures = recorded(observer, start, tmp_path / 'camera')
            once, again = (replayed(observer, running, start, pictures, tmp_path / name, 'local')
                           for name in ('once', 'again'))
            running.start('offload_node', {'models': [DENSE]})
            running.start('planner_node', QUICK_PLANNER)
            shared = replayed(observer, running, start, pictures, tmp_path / 'shared', 'shared')
        finally:
            observer.close()
    assert set(once) == set(again) == set(shared) == {FIRST + n for n in range(PICTURES)}
    for number, result in once.items():
        (first,), (second,), (third,) = (
            run[number].outputs for run in (once, again, shared))
        assert result.header.frame_id == again[number].header.frame_id == 'camera'
        assert bytes(first.data) == bytes(second.data)
        values, others = (np.frombuffer(bytes(each.data), np.float32) for each in (first, third))
        assert np.abs(values - others).max() <= 1e-4 * np.ptp(values)
    assert len({bytes(result.outputs[0].data) for result in once.values()}) == PICTURES
