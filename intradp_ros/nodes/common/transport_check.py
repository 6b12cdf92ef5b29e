# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Whether the middleware took the transport's profile, as the own announcement says."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import os

from rclpy.node import Node

from intradp_ros.dds.announcements import Listening
from intradp_ros.dds.transport_profile import transport_in_use

#: Seconds that the own announcement may take.
_PATIENCE = 1.0


@contextmanager
def listening_for_profile() -> Iterator[Listening | None]:
    """Listen while a node is made; yield None where there is no profile, or nothing to hear."""
    limited = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE') in ('LOCALHOST', 'OFF')
    if limited or not transport_in_use().profile:
        yield None
        return
    try:
        listening = Listening(int(os.environ.get('ROS_DOMAIN_ID') or 0))
    except (OSError, OverflowError, ValueError):
        yield None
        return
    with listening:
        yield listening


def report_profile(node: Node, listening: Listening | None) -> None:
    """Log an error if this process announces no profile, or another one than was chosen."""
    own = listening.own(_PATIENCE) if listening else None
    chosen = transport_in_use().name
    if own is not None and own.transport != chosen:
        node.get_logger().error(
            f'the middleware did not take the profile of the transport {chosen} (it has '
            f'{own.transport or "none of this package"}), tensors will be lost or late: does a '
            'variable or file of your own override it? Run: intradp doctor')
