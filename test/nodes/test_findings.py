# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What images lack reaches who watches the robot: a line in the log, a cause in diagnostics."""
from __future__ import annotations

import array
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
from node_processes import DENSE, HEIGHT, WIDTH
import numpy as np
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter
from sensor_msgs.msg import Image

from intradp_ros.nodes.sharing.inference_node import InferenceNode


def dark(top: int) -> Image:
    """Return an infrared image of 16 bits with numbers up to one."""
    numbers = np.linspace(0, top, HEIGHT * WIDTH).astype('<u2')
    return Image(height=HEIGHT, width=WIDTH, step=2 * WIDTH, encoding='mono16',
                 data=array.array('B', numbers.tobytes()))


def test_a_camera_of_fewer_bits_is_reported_once(context: rclpy.Context,
                                                 capfd: pytest.CaptureFixture[str]) -> None:
    node = InferenceNode(context=context, parameter_overrides=[
        Parameter('model', value=DENSE), Parameter('mode', value='local')])
    listener = rclpy.create_node('listener', context=context)
    heard: list[DiagnosticStatus] = []
    listener.create_subscription(DiagnosticArray, 'diagnostics',
                                 lambda message: heard.extend(message.status), 10)
    executor = SingleThreadedExecutor(context=context)
    for one in (node, listener):
        executor.add_node(one)

    def status(wanted: str) -> dict[str, Any]:
        for _ in range(400):
            executor.spin_once(0.05)
            for each in heard:
                if wanted in each.message + str([v.value for v in each.values]):
                    return {'level': each.level, 'message': each.message,
                            **{v.key: v.value for v in each.values}}
        raise AssertionError(f'{wanted!r} never came; last {heard[-1:]}')

    try:
        assert node.trigger_configure() == TransitionCallbackReturn.SUCCESS
        assert node.trigger_activate() == TransitionCallbackReturn.SUCCESS
        for _ in range(40):
            node._intake.inputs([dark(1000)])
        reported = status('image_bits to 10')
        assert reported['level'] == DiagnosticStatus.WARN
        for _ in range(30):
            node._intake.inputs([dark(1000)])
            executor.spin_once(0.05)
        node._take_input(0, Image(height=1, width=1, step=1, encoding='odd', data=b'x'))
        assert "'odd' is not supported" in status("'odd' is not")['last_rejection']
        for _ in range(40):  # one bright image is a shutter that closes
            node._intake.inputs([dark(65535)])
        for _ in range(20):
            heard.clear()
            if 'image_bits' not in (message := status('local')['message']):
                break
        assert 'image_bits' not in message
    finally:
        for one in (node, listener):
            executor.remove_node(one)
        node.release()
        node.destroy_node()
        listener.destroy_node()
    assert capfd.readouterr().err.count('set image_bits to 10') == 1
