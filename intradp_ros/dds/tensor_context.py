# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The ROS context whose participant carries tensors.

Over some transports it is not the node's own: cameras, listeners and tools
could not be heard over them.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os
import threading

import rclpy
from rclpy.context import Context

from intradp_ros.dds.transport_profile import BUILTIN_VARIABLE, Transport

_environment = threading.Lock()


@contextmanager
def tensor_context(context: Context, transport: Transport) -> Iterator[Context]:
    """
    Yield the context to make the channel's node in: `context`, or a new one in its domain.

    The middleware makes a participant with the context's first node, so that
    must be made before this returns.  `end_tensor_context` ends a new one.
    """
    if not transport.builtin:
        yield context
        return
    own = Context()
    rclpy.init(context=own, domain_id=context.get_domain_id())
    with _environment:
        before = os.environ.get(BUILTIN_VARIABLE)
        os.environ[BUILTIN_VARIABLE] = transport.builtin
        try:
            yield own
        finally:
            if before is None:
                del os.environ[BUILTIN_VARIABLE]
            else:
                os.environ[BUILTIN_VARIABLE] = before


def end_tensor_context(own: Context, context: Context) -> None:
    """Shut down what `tensor_context` made, if it made one."""
    if own is not context:
        own.try_shutdown()
