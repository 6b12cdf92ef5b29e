# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Channels without a node around them: the testbed's processes."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from rclpy.context import Context


@contextmanager
def standalone_context() -> Iterator[Context]:
    """Provide a ROS context that is shut down at the end; signals stay with the caller."""
    context = Context()
    rclpy.init(context=context)
    try:
        yield context
    finally:
        rclpy.try_shutdown(context=context)
