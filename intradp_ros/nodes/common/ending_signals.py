# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Running callbacks of nodes, and ending in order at SIGINT and SIGTERM."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
import signal
from types import FrameType

from rclpy.executors import (
    Executor,
    ExternalShutdownException,
    MultiThreadedExecutor,
    SingleThreadedExecutor,
)
from rclpy.node import Node

from intradp_ros.core.steady import Steady

#: Seconds after which the end is noticed at the latest.
LOOK_UP = 0.1


def spin(executor: Executor, goes_on: Callable[[], bool], log: Callable[[str], object]) -> None:
    """Run the callbacks of an executor's nodes as long as `goes_on` says so."""
    steady = Steady('a callback', log)

    def once() -> None:
        with suppress(ExternalShutdownException):
            executor.spin_once(timeout_sec=LOOK_UP)
    while goes_on():
        steady.do(once, None)


class EndingSignals:
    """
    Takes the signals that end a process, from when it is made.

    Before `spin` they raise KeyboardInterrupt, from then on they end it.
    """

    def __init__(self) -> None:
        self._asked = self._spinning = False
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._end)

    def spin(self, node: Node, threads: int = 1) -> None:
        """
        Run the callbacks of a node until a signal comes, or its context ends.

        What a callback raises is logged.
        """
        self._spinning = True
        executor = SingleThreadedExecutor(context=node.context) if threads == 1 else \
            MultiThreadedExecutor(threads, context=node.context)
        executor.add_node(node)
        try:
            spin(executor, lambda: not self._asked and node.context.ok(),
                 node.get_logger().error)
        finally:
            executor.remove_node(node)
            executor.shutdown()

    def _end(self, number: int, frame: FrameType | None) -> None:
        first, self._asked = not self._asked, True
        if first and not self._spinning:
            raise KeyboardInterrupt
