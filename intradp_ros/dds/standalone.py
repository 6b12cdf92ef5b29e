# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Channels without a node around them: the testbed's processes."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import rclpy
from rclpy.context import Context

from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.tensor_context import prepare
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES


@contextmanager
def standalone_context() -> Iterator[Context]:
    """Provide a ROS context that is shut down at the end; signals stay with the caller."""
    prepare()
    context = Context()
    rclpy.init(context=context)
    try:
        yield context
    finally:
        rclpy.try_shutdown(context=context)


@contextmanager
def standalone_channel(name: str, side: str, chunk_bytes: int = LEAST_CHUNK_BYTES,
                       ) -> Iterator[DdsChannel]:
    """Open one side's channel of a server's name, in a context of its own."""
    with standalone_context() as context:
        channel = DdsChannel(context, name, side, chunk_bytes=chunk_bytes)
        try:
            yield channel
        finally:
            channel.close()
