# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What should come and does not: how long already, and what a user can do about it."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
import os

from rclpy.node import Node

from intradp_ros.dds.transport_profile import transport_in_use

#: Seconds after which silence is reported.
PATIENCE = 5.0


@dataclass(frozen=True, slots=True)
class Awaited:
    """
    Something that should come: whether it is there, and what to say if it is not.

    `absent` is short, for diagnostics; `explain` returns what was looked for
    where, and what to try.
    """

    name: str
    present: bool
    absent: str
    explain: Callable[[], str]


class SilenceWatch:
    """Finds what has been awaited for too long; a state machine over (what is there, time)."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self._patience = patience
        self._since: dict[str, float] = {}
        self._reported: set[str] = set()

    def look(self, awaited: Awaited, now: float) -> tuple[bool, str]:
        """
        Return whether something has been absent for too long, and what to log now, if anything.

        :param now: seconds.
        """
        if awaited.present:
            self._since.pop(awaited.name, None)
            if awaited.name not in self._reported:
                return False, ''
            self._reported.discard(awaited.name)
            return False, f'{awaited.name}: there now'
        since = self._since.setdefault(awaited.name, now)
        if now - since < self._patience:
            return False, ''
        if awaited.name in self._reported:
            return True, ''
        self._reported.add(awaited.name)
        return True, f'{awaited.absent} for {self._patience:g} s: {awaited.explain()}'


def network_of(node: Node) -> str:
    """Return in which part of the ROS network a node is."""
    limited = os.environ.get('ROS_AUTOMATIC_DISCOVERY_RANGE')
    return (f'domain {node.context.get_domain_id()}, namespace {node.get_namespace()}, '
            f'transport {transport_in_use().name}'
            + (f', discovery range {limited}' if limited else ''))


def explain_topic(node: Node, topic: str, fix: str) -> str:
    """Return what is known of a topic that nothing comes from; `fix` if nobody publishes it."""
    full = node.resolve_topic_name(topic)
    mine = [end for end in node.get_subscriptions_info_by_topic(full)
            if end.node_name == node.get_name() and end.node_namespace == node.get_namespace()]
    wanted = f', {mine[0].topic_type}, {mine[0].qos_profile.reliability.name.lower()}' \
        if mine else ''
    looked = f'looked on {full} ({network_of(node)}{wanted})'
    publishers = node.get_publishers_info_by_topic(full)
    if not publishers:
        return f'{looked}, where nobody publishes; {fix}'
    ends = ', '.join(f'{end.node_namespace.rstrip("/")}/{end.node_name} ({end.topic_type}, '
                     f'{end.qos_profile.reliability.name.lower()})' for end in publishers[:3])
    return (f'{looked}; published by {ends}: is it silent (ros2 topic hz {full}), of another type '
            'or QoS, or are its messages lost on the way? Run: intradp doctor')
