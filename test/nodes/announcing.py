# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Announces a profile, or prints those that it takes: ``announcing.py KEY say TEXT OFFSET``."""
from __future__ import annotations

from pathlib import Path
import sys
import time
from typing import Any

from rclpy.node import Node

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.announcement_seals import AnnouncementCheck, Announcer, MAX_BYTES
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.sharing.profile_publisher import PROFILE_TOPIC


class SayingNode(ManagedNode):
    """Announces one text, twice."""

    def setup(self, parameters: dict[str, Any]) -> None:
        """Announce."""
        announcer = Announcer(KEY)
        publisher = self.publish_on(OperatorProfile, PROFILE_TOPIC, LATCHED)
        announcer.answer_on(self, Receiver(self), OperatorProfile, PROFILE_TOPIC)
        for text in (f'{TEXT} at first', TEXT):
            announcer.announce(publisher, OperatorProfile(
                role='server', name='/server', digest='d', profile=text))

    def start(self) -> None:
        """Say that it was said."""
        print('said', flush=True)


class HearingNode(ManagedNode):
    """Prints what it takes."""

    def setup(self, parameters: dict[str, Any]) -> None:
        """Listen."""
        self._check, receiver = AnnouncementCheck(KEY), Receiver(self)
        receiver.subscribe(OperatorProfile, PROFILE_TOPIC, self._take, LATCHED, 'profile',
                           MAX_BYTES[OperatorProfile])
        self._check.ask_on(self, receiver, OperatorProfile, PROFILE_TOPIC, self._take, 'profile')

    def start(self) -> None:
        """Need nothing more."""

    def _take(self, message: OperatorProfile) -> None:
        if self._check(message):
            print(f'took {message.profile}', flush=True)


def node(kind: type[ManagedNode]) -> Node:
    """Return a node of a name of its own."""
    return kind(f'{kind.__name__.lower()}_{time.monotonic_ns()}')


if __name__ == '__main__':
    KEY = SharedKey.load(Path(sys.argv[1]))
    WHAT = sys.argv[2]
    TEXT, OFFSET = sys.argv[3:] or ('', '0')
    clock = time.time_ns
    time.time_ns = lambda: clock() + int(float(OFFSET) * 1e9)
    run_node(lambda: node(SayingNode if WHAT == 'say' else HearingNode), args=[])
