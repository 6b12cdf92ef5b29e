# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The planner's node: from two profiles to the schedule book, in a process of its own."""
from __future__ import annotations

from array import array
from collections import OrderedDict
from pathlib import Path
import queue
import time
from typing import Any

from intradp_ros.core.limits import MAX_MODEL_TEXT
from intradp_ros.core.plain_file import check_folder
from intradp_ros.link.delay import ASSUMED_OVERHEAD
from intradp_ros.msg import OperatorProfile
from intradp_ros.msg import ScheduleBook as ScheduleBookMessage
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, Announcer, MAX_BYTES
from intradp_ros.nodes.common.diagnostics import added, Status
from intradp_ros.nodes.common.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.common.lossy_parameter import allowed, LOSSY_PARAMETER
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.common.prometheus import Total
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sharing.profile_publisher import BOOK_TOPIC, check_profile, PROFILE_TOPIC
from intradp_ros.runtime.requests.worker_thread import Worker
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.book_keeper import BookKeeper
from intradp_ros.systems.sharing.book.plan_from_profiles import LATENCY, OBJECTIVES, PlanRequest
from intradp_ros.systems.sharing.book.plan_process import PlanningError
from intradp_ros.wire.rejections import Rejections
from intradp_ros.wire.texts import packed, unpacked

#: Profiles that are kept, and such that may wait to be checked; others displace the oldest.
MAX_PROFILES, MAX_UNCHECKED = 64, 16

#: Name of a robot, and digest of its model.
RobotModelKey = tuple[str, str]


class PlannerNode(ManagedNode):
    """
    Collects the profiles of robot and server and publishes the book, latched.

    Planning runs in another process, so that the node answers meanwhile.
    Books are kept on disk and found again for the same profiles and grid.
    What is new leads to another book only if that would win something.
    """

    PARAMETERS = (
        Parameter('grid.low_mbps', 1.0, 'Lowest bandwidth planned for, Mbit/s.', 0.01, 1e5),
        Parameter('grid.high_mbps', 400.0, 'Highest bandwidth planned for, Mbit/s.', 0.01, 1e5),
        Parameter('grid.points', 20, 'Bandwidths planned for, evenly in the logarithm.', 1, 200),
        Parameter('link.delay_ms', -1.0, 'One-way delay; below 0: as the robot measures it.',
                  -1.0, 10000.0),
        Parameter('link.overhead_ms', 1e3 * ASSUMED_OVERHEAD,
                  'Time a transfer takes beyond its bytes.', 0.0, 1000.0),
        Parameter('link.shared_air', False, 'Both ways share the rate, as in Wi-Fi.'),
        Parameter('link.down_ratio', 1.0, 'Rate down as a multiple of the rate up.', 0.01, 100.0),
        Parameter('objective', LATENCY, 'What shared schedules are best at.',
                  choices=OBJECTIVES),
        Parameter('deadline_ms', 1000.0, 'Latency allowed where the objective is energy.',
                  1.0, 60000.0),
        Parameter('ms_per_joule', 100.0, 'What a joule is worth where the objective is weighted.',
                  0.0, 1e6),
        LOSSY_PARAMETER,
        Parameter('seed', 0, 'Seed of the search.', 0, 2**31 - 1),
        KEY_FILE,
        Parameter('book_folder', '', 'Where books are kept; empty for the cache folder.',
                  check=check_folder),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('planner_node', **kwargs)
        self._receiver, self._failures = Receiver(self), Rejections()
        self._profiles: OrderedDict[tuple[str, str, str], OperatorProfile] = OrderedDict()
        self._keepers: OrderedDict[RobotModelKey, BookKeeper] = OrderedDict()
        self._published: dict[RobotModelKey, ScheduleBookMessage] = {}
        self._checks: Worker[OperatorProfile] | None = None
        self._epoch = 0

    def setup(self, parameters: dict[str, Any]) -> None:
        """Check the grid."""
        if parameters['grid.low_mbps'] > parameters['grid.high_mbps']:
            raise ValueError('grid.low_mbps is above grid.high_mbps')
        self._settings = parameters
        key = key_of(parameters, self.warn)
        self._check, self._announcer = AnnouncementCheck(key), Announcer(key)
        self._authenticated = key is not None
        self._books = self.publish_on(ScheduleBookMessage, BOOK_TOPIC, LATCHED)
        self._announcer.answer_on(self, self._receiver, ScheduleBookMessage, BOOK_TOPIC)
        self.diagnose(self._status)

    def start(self) -> None:
        """Take profiles and plan."""
        profiles = self._receiver.subscribe(
            OperatorProfile, PROFILE_TOPIC, self._hear_profile, LATCHED, 'profile',
            MAX_BYTES[OperatorProfile])
        self._checked: queue.SimpleQueue[OperatorProfile] = queue.SimpleQueue()
        self._checks = Worker(self._check_profile, self._refuse_profile, MAX_UNCHECKED, 'profiles')
        self.until_deactivated.callback(self._checks.close)
        self.until_deactivated.callback(self.destroy_subscription, profiles)
        self.until_deactivated.callback(self._check.ask_on(
            self, self._receiver, OperatorProfile, PROFILE_TOPIC, self._hear_profile, 'profile'))
        self.call_every(0.1, self._poll, self.until_deactivated)
        self.until_deactivated.callback(self._stop)

    def _stop(self) -> None:
        for keeper in self._keepers.values():
            keeper.close()
        self._keepers.clear()
        self._published.clear()
        self._profiles.clear()

    def _hear_profile(self, message: OperatorProfile) -> None:
        assert self._checks is not None
        if self._check(message):
            # What it answered is nothing new: a profile that is here already stays the same.
            message.asker, message.question, message.mac = 0, 0, array('B')
            self._checks.put(message)

    def _check_profile(self, message: OperatorProfile) -> None:
        """Check a profile, which may take a second, on a thread of its own."""
        check_profile(message)
        self._checked.put(message)

    def _refuse_profile(self, error: Exception) -> None:
        cause = 'profile' if isinstance(error, ValueError) else 'handler'
        self._receiver.reject(cause, f'{type(error).__name__}: {error}')

    def _take_profile(self, message: OperatorProfile) -> None:
        key = message.role, message.name, message.digest
        if message.role == 'robot':
            self._publish_again((message.name, message.digest))
        if self._profiles.get(key) == message:
            return  # a node that was restarted
        self._profiles[key] = message
        self._profiles.move_to_end(key)
        if len(self._profiles) > MAX_PROFILES:
            self._profiles.popitem(last=False)
        robots, servers = ([p for p in self._profiles.values()
                            if (p.role, p.digest) == (role, message.digest)]
                           for role in ('robot', 'server'))
        for robot in [message] if message.role == 'robot' else robots:
            if servers:
                self._plan(robot, servers[-1])
        if not (robots and servers):
            self.info(f'have the profile of the {message.role} for model {message.digest[:12]}, '
                      f'waiting for the other side')

    def _plan(self, robot: OperatorProfile, server: OperatorProfile) -> None:
        s = self._settings
        delay = s['link.delay_ms'] / 1e3 if s['link.delay_ms'] >= 0 else robot.delay
        request = PlanRequest(
            unpacked(robot.graph, MAX_MODEL_TEXT), unpacked(robot.profile, MAX_MODEL_TEXT),
            unpacked(server.profile, MAX_MODEL_TEXT),
            s['grid.low_mbps'], s['grid.high_mbps'], s['grid.points'], delay,
            s['link.overhead_ms'] / 1e3, s['seed'], allowed(s), s['link.shared_air'],
            s['objective'], s['deadline_ms'] / 1e3, s['ms_per_joule'] / 1e3,
            down_ratio=s['link.down_ratio'])
        robot_model = robot.name, robot.digest
        if robot_model not in self._keepers:
            self._make_room()
            folder = Path(s['book_folder']) if s['book_folder'] else None
            self._keepers[robot_model] = BookKeeper(self.info, folder)
            self.info(f'planning for model {robot.digest[:12]} on {s["grid.points"]} bandwidths')
        self._keepers[robot_model].want(request)
        self._keepers.move_to_end(robot_model, last=False)  # who comes last has not left

    def _make_room(self) -> None:
        """Forget the robot that had its turn the longest time ago, if there are too many."""
        if len(self._keepers) >= MAX_PROFILES:
            robot_model, oldest = self._keepers.popitem()
            self._published.pop(robot_model, None)
            oldest.close()

    def _poll(self) -> None:
        """Take what was checked and planned; robots take turns, one process at a time."""
        while not self._checked.empty():
            self._take_profile(self._checked.get())
        for robot_model, keeper in list(self._keepers.items()):
            idle = not any(k.busy for k in self._keepers.values())
            try:
                book = keeper.poll(may_begin=idle)
            except PlanningError as error:
                if self._failures.count(f'{error}', time.monotonic()):
                    self.get_logger().error(f'planning failed: {error}')
                continue
            if book:
                self._keepers.move_to_end(robot_model)
                self._publish(robot_model, book)

    def _publish_again(self, robot_model: RobotModelKey) -> None:
        """Publish a book for a robot that was restarted: later ones displace latched ones."""
        if message := self._published.get(robot_model):
            self._announcer.announce(self._books, message)
            self.info(f'published schedule table {message.epoch} again for model '
                      f'{message.digest[:12]}')

    def _publish(self, robot_model: RobotModelKey, book: ScheduleBook) -> None:
        self._epoch += 1
        robot, digest = robot_model
        message = ScheduleBookMessage(epoch=self._epoch, digest=digest, robot=robot,
                                      book=packed(book.to_json()))
        self._published[robot_model] = message
        self._announcer.announce(self._books, message)
        self.info(f'published schedule table {self._epoch} for model {digest[:12]}')

    def _status(self) -> Status:
        """Return what diagnostics say."""
        dropped = self._checks.dropped if self._checks else 0
        overtaken = {'overtaken': dropped} if dropped else {}
        return Status(
            'planning' if any(k.busy for k in self._keepers.values()) else 'waiting for profiles',
            {'profiles': len(self._profiles), 'books': self._epoch,
             'books_made': Total(sum(k.made for k in self._keepers.values())),
             'authenticated': self._authenticated},
            added(overtaken, self._receiver.rejections.by_cause()))


def main(args: list[str] | None = None) -> None:
    """Run the planner node."""
    run_node(PlannerNode, args)


if __name__ == '__main__':
    main()
