# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A camera and a listener that know nothing of this package: each an own participant, own defaults.

``python plain_neighbour.py TRANSPORT NUMBER SIZE...`` publishes images of about these bytes on
``camera``, or as PNG on ``camera/compressed``, NUMBER of each, and prints as JSON how many of each
size were answered on ``result``.
"""
from __future__ import annotations

from array import array
import json
import math
import sys
import time

import cv2
import numpy as np
import rclpy
from sensor_msgs.msg import CompressedImage, Image

from intradp_ros.msg import InferenceResult

PATIENCE = 2.0
DISCOVERY = 30.0
#: Type and topic, as image_transport has them.
TRANSPORTS = {'raw': (Image, 'camera'), 'compressed': (CompressedImage, 'camera/compressed')}


def image(transport: str, nbytes: int) -> Image | CompressedImage:
    """Return an image of about so many bytes: random pixels, which no encoding makes smaller."""
    width = max(1, round(math.sqrt(nbytes / 3)))
    height = max(1, round(nbytes / 3 / width))
    pixels = np.random.default_rng(0).integers(0, 256, 3 * width * height, dtype=np.uint8)
    if transport == 'raw':
        return Image(height=height, width=width, encoding='rgb8', step=3 * width,
                     data=array('B', pixels.tobytes()))
    _, encoded = cv2.imencode('.png', pixels.reshape(height, width, 3))
    return CompressedImage(format='png', data=array('B', encoded.tobytes()))


class Neighbour:
    """Publishes one image after the other, and waits for the answer to each."""

    def __init__(self, transport: str) -> None:
        self._contexts = [rclpy.Context(), rclpy.Context()]
        for context in self._contexts:
            rclpy.init(context=context)
        camera, listener = (rclpy.create_node(name, context=context) for name, context in zip(
            ('camera', 'listener'), self._contexts))
        self._images = camera.create_publisher(*TRANSPORTS[transport], 10)
        self._answered = 0
        listener.create_subscription(InferenceResult, 'result', self._take, 10)
        self._executor = rclpy.executors.SingleThreadedExecutor(context=self._contexts[1])
        self._executor.add_node(listener)
        self._sent = 0

    def _take(self, message: InferenceResult) -> None:
        self._answered = message.header.stamp.sec

    def answered(self, message: Image | CompressedImage, patience: float = PATIENCE) -> bool:
        """Publish an image and return whether its answer came."""
        self._sent += 1
        message.header.stamp.sec = self._sent
        self._images.publish(message)
        end = time.monotonic() + patience
        while self._answered != self._sent and time.monotonic() < end:
            self._executor.spin_once(timeout_sec=0.05)
        return self._answered == self._sent


def main() -> None:
    """Meet the node with the smallest images; then count."""
    transport, number, *sizes = sys.argv[1:]
    neighbour = Neighbour(transport)
    smallest, end = image(transport, 300), time.monotonic() + DISCOVERY
    while not (met := neighbour.answered(smallest, 0.5)) and time.monotonic() < end:
        pass
    counts = dict.fromkeys(map(int, sizes), 0)
    for size in counts if met else ():
        message = image(transport, size)
        counts[size] = sum(neighbour.answered(message) for _ in range(int(number)))
    print('answered ' + json.dumps(counts), flush=True)


if __name__ == '__main__':
    main()
