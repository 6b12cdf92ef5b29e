# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Running callbacks of nodes: what one of them raises is logged, and ends no node."""
from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from rclpy.executors import Executor, ExternalShutdownException

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
