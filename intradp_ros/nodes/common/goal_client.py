# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A client of an action whose goals end exactly once, also where the server is lost.

rclpy's own client waits for ever for the result of a server that was killed, or cut off: DDS
knows that it is gone, and tells nobody.  Here that ends the goal.
"""
from __future__ import annotations

from collections.abc import Callable
import threading
from typing import Any

from action_msgs.msg import GoalStatus
from rclpy.action.client import ActionClient
from rclpy.node import Node

from intradp_ros.core.steady import Steady
from intradp_ros.nodes.common.goal_server import RESULTS

#: Seconds between two looks whether the server is there.  DDS notices its end at once where it
#: closes its connections, else when its lease is over (20 s by default).
LOOK = 0.5


class GoalClient:
    """Sends goals to the action `name`; the executor of its node must spin."""

    def __init__(self, node: Node, action: Any, name: str) -> None:
        self.name = node.resolve_topic_name(name)
        self._node = node
        self._client: ActionClient[Any, Any, Any] = ActionClient(
            node, action, name, result_service_qos_profile=RESULTS)

    @property
    def ready(self) -> bool:
        """Whether a server is there."""
        return bool(self._client.server_is_ready())

    def send(self, goal: Any, heard: Callable[[Any], None],
             ended: Callable[[Any, str], None]) -> SentGoal:
        """
        Send a goal; `heard` takes its feedback.

        `ended` takes its result, or None and why there is none; it is called once.
        """
        return SentGoal(self, goal, heard, ended)

    def servers(self) -> set[bytes]:
        """Return who serves the action, by the number of the writer of its goals' status."""
        return {bytes(found.endpoint_gid) for found in
                self._node.get_publishers_info_by_topic(f'{self.name}/_action/status')}

    def close(self) -> None:
        """Send no more."""
        self._client.destroy()


class SentGoal:
    """A goal until it has ended."""

    def __init__(self, client: GoalClient, goal: Any, heard: Callable[[Any], None],
                 ended: Callable[[Any, str], None]) -> None:
        self._client, self._ended = client, ended
        self._servers = client.servers()
        self._handle: Any = None
        self._cancelled, self._over, self._lock = False, False, threading.Lock()
        steady = Steady('a look for the server', client._node.get_logger().error)
        self._timer = client._node.create_timer(LOOK, lambda: steady.do(self._look, None))
        client._client.send_goal_async(goal, lambda message: heard(message.feedback)
                                       ).add_done_callback(self._answered)

    @property
    def goal_id(self) -> bytes:
        """Return its id, b'' until a server has accepted it."""
        return bytes(self._handle.goal_id.uuid) if self._handle else b''

    def cancel(self) -> None:
        """Ask the server to end it; its result says what came of it."""
        with self._lock:
            self._cancelled, handle = True, self._handle
        if handle is not None:
            handle.cancel_goal_async()

    def _answered(self, future: Any) -> None:
        handle = future.result()
        if not handle.accepted:
            self._end(None, f'{self._client.name} rejects the goal: it refused many a moment '
                      'ago, and its log says why')
            return
        with self._lock:
            self._handle, cancelled = handle, self._cancelled
        if cancelled:
            handle.cancel_goal_async()
        handle.get_result_async().add_done_callback(self._has_ended)

    def _has_ended(self, future: Any) -> None:
        response = future.result()
        if response.status == GoalStatus.STATUS_UNKNOWN:  # another process by the same name
            self._end(None, f'the node that served {self._client.name} was started anew')
        else:
            self._end(response.result, '')

    def _look(self) -> None:
        """End it when none of the servers that were there when it was sent is left."""
        there = self._client.servers()
        if not self._servers:
            self._servers = there
        elif not self._servers & there:
            self._end(None, f'the node that serves {self._client.name} is gone')

    def _end(self, result: Any, why: str) -> None:
        with self._lock:
            if self._over:
                return
            self._over = True
        self._timer.cancel()
        self._client._node.destroy_timer(self._timer)
        self._ended(result, why)
