# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A plain camera: publishes the frames of a real video, raw and as JPEG, at a steady rate.

It uses nothing of this package but the video, and no setting of its
transport, as any camera driver would.  Lines that begin with ``frame`` report to a
program that watches how far it is.

What is published before a reader and this node have found each other is lost, and
a count of readers says nothing of whether they have found this node.  So with
`warm_up` it begins with a frame that does not count, again and again, until a
program that has seen the answers says so by the signal SIGUSR1.
"""
from __future__ import annotations

import array
import signal
import threading
import time

import cv2
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from intradp_lab.zoo.video import frames, Picture, WARM_UP

QUALITY = 90
#: Seconds between two frames that do not count.
WARM_UP_EVERY = 1.0


class Camera(Node):
    """
    Publishes `image` and `image/compressed`, both with the same header.

    The compressed one may follow after a lag, as from cameras that take time
    to compress.
    """

    def __init__(self) -> None:
        super().__init__('camera_node')
        self.count: int = self.declare_parameter('frames', 60).value
        self.rate: float = self.declare_parameter('rate_hz', 3.0).value
        self.every: int = self.declare_parameter('every', 4).value
        self.warm_up: bool = self.declare_parameter('warm_up', False).value
        self.lag: float = self.declare_parameter('compressed_lag_s', 0.0).value
        self.raw = self.create_publisher(Image, 'image', 10)
        self.jpeg = self.create_publisher(CompressedImage, 'image/compressed', 10)

    def wait_for_answers(self, seen: threading.Event) -> None:
        """Publish a frame that does not count until somebody has seen all answers to it."""
        rgb = next(iter(frames(1, every=self.every)))
        due = time.monotonic()
        while not seen.is_set():
            if time.monotonic() >= due:
                raw, jpeg = self._messages(rgb)
                raw.header.frame_id = WARM_UP
                raw.header.stamp = self.get_clock().now().to_msg()
                jpeg.header = raw.header
                self.raw.publish(raw)
                self.jpeg.publish(jpeg)
                due += WARM_UP_EVERY
            rclpy.spin_once(self, timeout_sec=0.05)

    def play(self) -> None:
        """Publish all frames, each when its time has come."""
        due = time.monotonic()
        for number, rgb in enumerate(frames(self.count, every=self.every)):
            raw, jpeg = self._messages(rgb)
            self._wait_until(due)
            raw.header.stamp = self.get_clock().now().to_msg()
            jpeg.header = raw.header
            self.raw.publish(raw)
            self._wait_until(due + self.lag)
            self.jpeg.publish(jpeg)
            due += 1 / self.rate
            print(f'frame {number}', flush=True)

    def _wait_until(self, due: float) -> None:
        while (left := due - time.monotonic()) > 0:
            rclpy.spin_once(self, timeout_sec=left)

    @staticmethod
    def _messages(rgb: Picture) -> tuple[Image, CompressedImage]:
        raw = Image(height=rgb.shape[0], width=rgb.shape[1], encoding='rgb8',
                    step=3 * rgb.shape[1])
        raw.data = array.array('B', rgb.tobytes())
        jpeg = CompressedImage(format='rgb8; jpeg compressed bgr8')
        jpeg.data = array.array('B', cv2.imencode(
            '.jpg', rgb[..., ::-1], [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes())
        raw.header.frame_id = 'camera'
        return raw, jpeg


def main(args: list[str] | None = None) -> None:
    """Run the camera; it stays behind the last frame, which may have to be sent again."""
    seen = threading.Event()
    signal.signal(signal.SIGUSR1, lambda *_: seen.set())
    rclpy.init(args=args)
    camera = Camera()
    try:
        if camera.warm_up:
            camera.wait_for_answers(seen)
        camera.play()
        print('all frames are out', flush=True)
        rclpy.spin(camera)
    except (KeyboardInterrupt, ExternalShutdownException):
        pass
    finally:
        camera.destroy_node()
        rclpy.try_shutdown()


if __name__ == '__main__':
    main()
