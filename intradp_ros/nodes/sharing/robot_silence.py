# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a robot's node waits for: a server that answers and agrees, a book, the sensor."""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rclpy.node import Node

from intradp_ros.nodes.common.silence import Awaited, explain_topic, network_of
from intradp_ros.nodes.sharing.profile_publisher import BOOK_TOPIC
from intradp_ros.systems.sharing.session.connection import Connection, State


@dataclass(frozen=True, slots=True)
class RobotSilence:
    """Names things as the user does: the model by its text, the server by its name."""

    node: Node
    model: str
    server: str
    sensor: str

    def awaited(self, connection: Connection, peers: int, *, sharing: bool, seen: bool,
                ) -> Iterator[Awaited]:
        """
        Yield what should be there now.

        :param peers: how many subscribe to what the robot sends to the server.
        :param sharing: whether the mode needs a server.
        :param seen: whether the sensor gave anything in the last seconds.
        """
        yield Awaited(self.sensor, seen, f'no message on {self.sensor}', lambda: explain_topic(
            self.node, self.sensor, f'check its name: ros2 topic list; set it with '
            f'image_topic:=NAME or points_topic:=NAME at launch, or -r {self.sensor}:=NAME'))
        if not sharing:
            return
        answers = connection.answers
        yield Awaited('server', answers, f"no answer of the server '{self.server}'",
                      lambda: self._no_server(peers))
        if not answers:
            return
        refused = connection.state is State.REFUSED
        yield Awaited('agreement', not refused, f'the server refuses model {self.model}',
                      lambda: connection.refusal)
        yield Awaited('schedule table', refused or connection.book is not None,
                      f'no schedule table for model {self.model}',
                      lambda: explain_topic(
                          self.node, BOOK_TOPIC, 'start planner_node in this namespace, or '
                          'wait: it publishes once it has planned'))

    def _no_server(self, peers: int) -> str:
        looked = f'looked on {self.server}/control_up ({network_of(self.node)})'
        if not peers:
            return (f'{looked}, to which nobody listens; start offload_node with server:='
                    f'{self.server} in the same domain, namespace and transport; is multicast '
                    'blocked between the machines? Run: intradp doctor')
        return (f'{looked}, which is listened to; is the server busy or stopped, does it use '
                'another transport, or is a link of one way only? Over large_data two processes '
                'that started together may miss each other: start one again. Run: intradp doctor')
