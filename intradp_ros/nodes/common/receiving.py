# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Subscriptions of nodes that survive whatever comes, and count what they refuse."""
from __future__ import annotations

from collections.abc import Callable
import math
import time
import traceback
from typing import Any

from rclpy.node import Node
from rclpy.qos import QoSProfile
from rclpy.serialization import deserialize_message
from rclpy.subscription import Subscription

from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.sanitise import quoted


class Receiver:
    """
    Creates the subscriptions of a node.

    Messages are taken serialised: else those that cannot be deserialised
    vanish in the middleware.  A handler raises ValueError where it refuses a
    message; the count's cause is then the one that the subscription names.
    `last` says what was rejected last, and why.
    """

    def __init__(self, node: Node) -> None:
        self.node = node
        self.rejections = Rejections()
        self.last = ''

    def subscribe(self, kind: type, topic: str, take: Callable[[Any], None], qos: QoSProfile,
                  cause: str, most: float = math.inf, **options: Any) -> Subscription[Any]:
        """Call `take` with every message of a topic, of at most so many bytes."""
        return self.node.create_subscription(
            kind, topic, lambda data: self._take(kind, data, take, cause, most), qos, raw=True,
            **options)

    def reject(self, cause: str, text: str) -> None:
        """Count what is rejected; a cause that goes on is logged after growing times."""
        self._rejected(cause, text)

    def _rejected(self, cause: str, text: str) -> bool:
        self.last = f'{cause}: {quoted(text)}'
        logged = self.rejections.count(cause, time.monotonic())
        if logged:
            self.node.get_logger().warning(f'rejected ({cause}): {quoted(text)}')
        return logged

    def _take(self, kind: type, data: bytes, take: Callable[[Any], None], cause: str,
              most: float) -> None:
        if len(data) > most:
            self.reject(cause, f'a {kind.__name__} of {len(data)} bytes, at most {most} are taken')
            return
        try:
            message: Any = deserialize_message(data, kind)
        except Exception as error:  # rclpy has no common class for what the middleware raises
            self.reject('undecodable', f'{kind.__name__}: {error} (is its sender of another '
                        'release?)')
            return
        try:
            take(message)
        except ValueError as error:
            self.reject(cause, str(error))
        except Exception as error:  # one bad message must not end the node
            if self._rejected('handler', f'{type(error).__name__}: {error}'):
                self.node.get_logger().debug(traceback.format_exc())
