# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
ROS contexts: that whose participant carries tensors, and what may make any of them wait.

Over some transports tensors have a context of their own, not the node's: cameras,
listeners and tools could not be heard over them.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os
import threading

import rclpy
from rclpy.context import Context
from rclpy.logging import get_logger

from intradp_ros.dds.shared_memory_ports import unfinished_ports_problem
from intradp_ros.dds.transport_profile import BUILTIN_VARIABLE, local_environment, Transport

_environment = threading.Lock()


def prepare() -> None:
    """
    Let shared memory hold up nobody: before a context's first node is made.

    Where it is used there is room in it for others than a reader that has stopped
    (`local_environment`); ports that the node may wait for without end are logged.
    """
    os.environ.update(local_environment())
    if problem := unfinished_ports_problem():
        get_logger('intradp_ros').warning(problem)


@contextmanager
def tensor_context(context: Context, transport: Transport) -> Iterator[Context]:
    """
    Yield the context to make the channel's node in: `context`, or a new one in its domain.

    The middleware makes a participant with the context's first node, so that
    must be made before this returns.  `end_tensor_context` ends a new one.
    """
    os.environ.update(local_environment())
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
