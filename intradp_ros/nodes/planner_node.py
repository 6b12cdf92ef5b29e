# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The planner's node: from two profiles to the schedule book, in a process of its own."""
from __future__ import annotations

from pathlib import Path
from typing import Any

from intradp_ros.execution.plan_process import PlanningError, PlanProcess
from intradp_ros.execution.planning import PlanRequest
from intradp_ros.msg import OperatorProfile
from intradp_ros.msg import ScheduleBook as ScheduleBookMessage
from intradp_ros.nodes.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.nodes.profiles import BOOK_TOPIC, PROFILE_TOPIC


class PlannerNode(ManagedNode):
    """
    Collects the profiles of robot and server and publishes the book, latched.

    Planning runs in another process, so that the node answers meanwhile.
    Books are kept on disk and found again for the same profiles and grid.
    """

    PARAMETERS = (
        Parameter('grid.low_mbps', 1.0, 'Lowest bandwidth planned for, Mbit/s.', 0.01, 1e5),
        Parameter('grid.high_mbps', 400.0, 'Highest bandwidth planned for, Mbit/s.', 0.01, 1e5),
        Parameter('grid.points', 20, 'Bandwidths planned for, evenly in the logarithm.', 1, 200),
        Parameter('link.delay_ms', 1.0, 'One-way delay assumed.', 0.0, 10000.0),
        Parameter('link.overhead_ms', 0.5, 'Time a transfer takes beyond its bytes.',
                  0.0, 1000.0),
        Parameter('seed', 0, 'Seed of the differential evolution.', 0, 2**31 - 1),
        Parameter('book_folder', '', 'Where books are kept; empty for the cache folder.'),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('planner_node', **kwargs)
        self._closing: list[Any] = []
        self._profiles: dict[tuple[str, str], OperatorProfile] = {}
        self._running: dict[str, PlanProcess] = {}
        self._epoch = 0

    def setup(self, parameters: dict[str, Any]) -> None:
        """Open topics."""
        if parameters['grid.low_mbps'] > parameters['grid.high_mbps']:
            raise ValueError('grid.low_mbps is above grid.high_mbps')
        self._settings = parameters
        self._books = self.create_publisher(ScheduleBookMessage, BOOK_TOPIC, LATCHED)
        subscription = self.create_subscription(
            OperatorProfile, PROFILE_TOPIC, self._take_profile, LATCHED)
        self._closing += [self._books, subscription, self.create_timer(0.1, self._poll)]

    def teardown(self) -> None:
        """Stop planning and close topics."""
        for process in self._running.values():
            process.cancel()
        self._running.clear()
        while self._closing:
            self._closing.pop().destroy()

    def _take_profile(self, message: OperatorProfile) -> None:
        if message.role not in ('robot', 'server'):
            self.get_logger().warning(f'a profile of role {message.role!r} is ignored')
            return
        self._profiles[message.role, message.digest] = message
        robot = self._profiles.get(('robot', message.digest))
        server = self._profiles.get(('server', message.digest))
        if robot and server:
            self._plan(robot, server)
        else:
            self.info(f'have the profile of the {message.role} for model {message.digest[:12]}, '
                      f'waiting for the other side')

    def _plan(self, robot: OperatorProfile, server: OperatorProfile) -> None:
        s = self._settings
        request = PlanRequest(
            robot.graph, robot.profile, server.profile, s['grid.low_mbps'], s['grid.high_mbps'],
            s['grid.points'], s['link.delay_ms'] / 1e3, s['link.overhead_ms'] / 1e3,
            s['seed'])
        folder = Path(s['book_folder']) if s['book_folder'] else None
        if robot.digest in self._running:
            self._running.pop(robot.digest).cancel()
        self.info(f'planning for model {robot.digest[:12]} on {s["grid.points"]} bandwidths')
        self._running[robot.digest] = PlanProcess(request, folder)

    def _poll(self) -> None:
        for digest, process in list(self._running.items()):
            try:
                text = process.result()
            except PlanningError as error:
                del self._running[digest]
                self.get_logger().error(f'planning failed: {error}')
                continue
            if text is not None:
                del self._running[digest]
                self._publish(digest, text)

    def _publish(self, digest: str, text: str) -> None:
        self._epoch += 1
        self._books.publish(ScheduleBookMessage(epoch=self._epoch, digest=digest, book=text))
        self.info(f'published book {self._epoch} for model {digest[:12]}')


def main(args: list[str] | None = None) -> None:
    """Run the planner node."""
    run_node(PlannerNode, args)


if __name__ == '__main__':
    main()
