# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A program's own planner: it watches the server's profile, and makes and changes the book."""
from __future__ import annotations

from collections.abc import Callable
import math
import queue
import threading
import time

import rclpy
from rclpy.executors import SingleThreadedExecutor
import torch

from intradp_ros.core.limits import MAX_MODEL_TEXT
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.core.steady import Steady
from intradp_ros.dds.tensor_context import prepare
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.link.delay import ASSUMED_DELAY, ASSUMED_OVERHEAD, DELAY_PATIENCE
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, MAX_BYTES
from intradp_ros.nodes.common.ending_signals import spin
from intradp_ros.nodes.common.lifecycle import LATCHED
from intradp_ros.nodes.common.lossy_parameter import report_difference
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sharing.profile_publisher import check_server_profile, PROFILE_TOPIC
from intradp_ros.profiling.profile import Profile
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.book.book_keeper import BookKeeper
from intradp_ros.systems.sharing.book.plan_from_profiles import PlanRequest
from intradp_ros.systems.sharing.book.plan_process import PlanningError
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.wire.texts import unpacked


class ServerWatch:
    """
    Waits for the server's profile, plans, and hands the book to the client.

    Where a side's profile or the link's delay changes, another book may follow.
    """

    def __init__(self, split: SplitGraph, profile: Profile, example: list[torch.Tensor], *,
                 namespace: str, key: SharedKey | None, lossy: str,
                 log: Callable[[str], None]) -> None:
        self.split, self.graph = split, graph_to_json(split.captured)
        self.profile, self.example = profile, example
        self._check = AnnouncementCheck(key)
        self.log, self.lossy = log, lossy
        self.context = rclpy.Context()
        prepare()
        rclpy.init(context=self.context)
        self.node = rclpy.create_node('intradp', context=self.context, namespace=namespace,
                                      start_parameter_services=False)
        receiver = Receiver(self.node)
        receiver.subscribe(OperatorProfile, PROFILE_TOPIC, self._take, LATCHED, 'profile',
                           MAX_BYTES[OperatorProfile])
        self._check.ask_on(self.node, receiver, OperatorProfile, PROFILE_TOPIC, self._take,
                           'profile')
        steady = Steady('planning', log)
        self.node.create_timer(0.2, lambda: steady.do(self._poll, None))
        self.executor = SingleThreadedExecutor(context=self.context)
        self.executor.add_node(self.node)
        self.keeper = BookKeeper(self.log)
        self.client: RobotClient | None = None
        self.server_profile = ''
        self.delay: float | None = None
        self._plan_at = math.inf
        self._news: queue.SimpleQueue[Profile | float] = queue.SimpleQueue()
        self._closed = threading.Event()
        self.thread = threading.Thread(target=self._spin, name='intradp', daemon=True)

    def start(self, client: RobotClient) -> None:
        """Begin to listen."""
        self.client = client
        self.thread.start()

    def close(self) -> None:
        """Stop listening and planning."""
        self.keeper.close()
        self._closed.set()
        self.executor.shutdown()
        self.thread.join(timeout=2.0)
        self.node.destroy_node()
        rclpy.try_shutdown(context=self.context)

    def _spin(self) -> None:
        spin(self.executor, lambda: self.context.ok() and not self._closed.is_set(), self.log)

    def _take(self, message: OperatorProfile) -> None:
        if message.role != 'server' or message.digest != self.profile.digest:
            return
        if not self._check(message):
            return
        check_server_profile(message, self.split)
        self.server_profile = unpacked(message.profile, MAX_MODEL_TEXT)
        self._plan_at = time.monotonic() + (DELAY_PATIENCE if self.delay is None else 0.0)

    def drifted(self, profile: Profile) -> None:
        """Take what this device's profile is now, from whichever thread runs inferences."""
        self._news.put(profile)

    def delayed(self, seconds: float) -> None:
        """Take what the link's delay is now, from the thread that receives."""
        self._news.put(seconds)

    def _plan(self) -> None:
        delay = ASSUMED_DELAY if self.delay is None else self.delay
        self.keeper.want(PlanRequest(
            self.graph, self.profile.to_json(), self.server_profile, delay=delay,
            overhead=ASSUMED_OVERHEAD, lossy=self.lossy))

    def _take_news(self) -> None:
        """Take what has changed on this side, and plan with it."""
        while not self._news.empty():
            news = self._news.get()
            if isinstance(news, Profile):
                self.profile = news
                self.log(f'operators take {news.whole_seconds * 1e3:.1f} ms in all by now; '
                         'informing the planner')
            else:
                self.delay = news
                self.log(f'the link delays by {news * 1e3:.2g} ms')
            self._plan_at = 0.0

    def _poll(self) -> None:
        self._take_news()
        if self.server_profile and time.monotonic() >= self._plan_at:
            self._plan_at = math.inf
            self._plan()
        if self.client is None:
            return
        try:
            book = self.keeper.poll()
            if book:
                self.client.use_book(book)
                report_difference(self.client.model, book, self.example, self.log)
        except (PlanningError, ValueError) as error:
            self.log(f'planning failed: {error}')
