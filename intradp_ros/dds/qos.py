# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Quality of service of the offload topics.

A history of limited depth overwrites silently, also when reliable: a sender
may therefore have no more messages in flight than the depth.
"""
from __future__ import annotations

from rclpy.qos import QoSProfile, ReliabilityPolicy

CHUNK_DEPTH = 256
ACK_DEPTH = 1024
CONTROL_DEPTH = 128
PING_DEPTH = 32


def _reliability(reliable: bool) -> ReliabilityPolicy:
    return ReliabilityPolicy.RELIABLE if reliable else ReliabilityPolicy.BEST_EFFORT


def chunk_qos(reliable: bool) -> QoSProfile:
    """Return the profile of chunks; not reliable where the transport itself retransmits."""
    return QoSProfile(depth=CHUNK_DEPTH, reliability=_reliability(reliable))


def ack_qos() -> QoSProfile:
    """
    Return the profile of acknowledgements.

    They are not reliable: a later one makes up for one that is lost, and
    the middleware's own talk about them would compete with the chunks.
    """
    return QoSProfile(depth=ACK_DEPTH, reliability=_reliability(False))


def control_qos() -> QoSProfile:
    """Return the profile of control frames."""
    return QoSProfile(depth=CONTROL_DEPTH, reliability=ReliabilityPolicy.RELIABLE)


def ping_qos() -> QoSProfile:
    """
    Return the profile of pings and their answers.

    They are not reliable: the next one makes up for one that is lost, and what the middleware
    announces and confirms of each until it has crossed is more than they are.
    """
    return QoSProfile(depth=PING_DEPTH, reliability=_reliability(False))
