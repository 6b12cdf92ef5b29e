# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A bond to the lifecycle manager that leads a node, as nav2's has one to each of its nodes.

Both ends say on the topic ``bond`` that they live, under the node's name; one
that is silent, or says that it ends, breaks the bond.  The protocol is that
of `bond` (ros/bond_core).
"""
from __future__ import annotations

import importlib
import time
from typing import Any
import uuid

from rclpy.qos import QoSProfile

from intradp_ros.nodes.common.parameters import Parameter

TOPIC = 'bond'
#: Seconds of silence after which an end counts as gone; as in nav2's nodes.
PATIENCE = 4.0
#: Messages that may wait; one manager has bonds to many nodes on one topic.
_DEPTH = 100
BOND_PERIOD = Parameter(
    'bond_heartbeat_period', 0.1, 'Seconds between signs of life for a lifecycle manager that '
    'bonds with its nodes (that of nav2), where autostart is false; 0 for no bond.', 0.0, 10.0)
MISSING = ('the messages of the package bond are not installed: there is no bond to the lifecycle '
           "manager; nav2's then brings its nodes down, unless its bond_timeout is 0; install "
           'them with: apt install ros-$ROS_DISTRO-bond')


def bond_messages() -> Any | None:
    """Return the messages of the package `bond`, None if it is not installed."""
    try:
        found = importlib.import_module('bond.msg')
    except ImportError:
        return None
    return found if hasattr(found, 'Status') else None  # others have packages of this name too


class Bond:
    """
    This node's end of a bond, while it is active.

    The first other end that speaks is the manager; when it says that it ends,
    it is answered, and nothing more is said.  When it falls silent the node
    says so, goes on, and is there for another manager: what an inference is
    needed for does not depend on who manages the node.
    """

    def __init__(self, node: Any, messages: Any, period: float) -> None:
        """Begin to say that the node lives, until it is deactivated."""
        self._node, self._messages, self._period = node, messages, period
        self._own, self._other = str(uuid.uuid4()), ''
        self._heard, self._ended = 0.0, False
        stack = node.until_deactivated
        self._publisher = node.create_publisher(messages.Status, TOPIC, QoSProfile(depth=_DEPTH))
        stack.callback(node.destroy_publisher, self._publisher)
        hearing = node.create_subscription(messages.Status, TOPIC, self._take,
                                           QoSProfile(depth=_DEPTH))
        stack.callback(node.destroy_subscription, hearing)
        stack.callback(self._end)
        node.call_every(period, self._live, stack)

    def _live(self) -> None:
        if self._ended:
            return
        if self._other and time.monotonic() - self._heard > PATIENCE:
            self._node.warn(f'the lifecycle manager was silent for {PATIENCE:g} s: its bond is '
                            'broken; the node goes on')
            self._say(active=False)
            self._own, self._other = str(uuid.uuid4()), ''
        self._say(active=True)

    def _take(self, status: Any) -> None:
        if status.id != self._node.get_name() or status.instance_id == self._own or self._ended:
            return
        if not self._other and status.active:
            self._other = status.instance_id
            self._node.info('bonded with the lifecycle manager')
        if status.instance_id != self._other:
            return  # of a bond that has ended, or a third end, which no bond has
        self._heard = time.monotonic()
        if not status.active:
            self._end()

    def _end(self) -> None:
        """Say that this end is gone, once."""
        if not self._ended:
            self._ended = True
            self._say(active=False)

    def _say(self, *, active: bool) -> None:
        message = self._messages.Status(
            id=self._node.get_name(), instance_id=self._own, active=active,
            heartbeat_timeout=PATIENCE, heartbeat_period=self._period)
        message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(message)
