# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A plain camera: publishes the frames of a real video, raw and as JPEG, at a steady rate.

It uses nothing of this package but the video, and no setting of its
transport, as any camera driver would.  Lines that begin with ``frame`` report to a
program that watches how far it is.
"""
from __future__ import annotations

import array
import time

import cv2
import rclpy
from rclpy.executors import ExternalShutdownException
from rclpy.node import Node
from sensor_msgs.msg import CompressedImage, Image

from intradp_lab.zoo.video import frames, Picture

QUALITY = 90


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
        self.readers: int = self.declare_parameter('readers', 1).value
        self.lag: float = self.declare_parameter('compressed_lag_s', 0.0).value
        self.raw = self.create_publisher(Image, 'image', 10)
        self.jpeg = self.create_publisher(CompressedImage, 'image/compressed', 10)

    def wait_for_readers(self) -> None:
        """Wait until somebody subscribes to each topic."""
        while min(self.raw.get_subscription_count(),
                  self.jpeg.get_subscription_count()) < self.readers:
            rclpy.spin_once(self, timeout_sec=0.1)

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
    rclpy.init(args=args)
    camera = Camera()
    try:
        camera.wait_for_readers()
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
