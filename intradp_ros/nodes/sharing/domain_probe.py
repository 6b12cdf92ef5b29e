# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a node sees that looks around for some seconds; a process, for two commands of ``intradp``.

``python -m intradp_ros.nodes.sharing.domain_probe NAMESPACE SECONDS`` prints one line of JSON:
its own announcement as heard, those of others, the nodes, the profiles that
robots and servers publish, what nodes say of themselves (diagnostics), and how far the
clocks of their stamps are from this one.
"""
from __future__ import annotations

from contextlib import nullcontext
import json
import sys
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus
import rclpy
from rclpy.node import Node
from rclpy.utilities import get_rmw_implementation_identifier

from intradp_ros.dds.announcements import Announcement, Listening
from intradp_ros.msg import OperatorProfile
from intradp_ros.nodes.common.lifecycle import LATCHED
from intradp_ros.nodes.common.unused_overrides import NO_LOG_FILE
from intradp_ros.nodes.sharing.profile_publisher import PROFILE_TOPIC

_MOST = 256
#: Letters of a value, and values of a node, that are kept.
_LONGEST, _VALUES = 500, 200


class DomainProbe:
    """A node that takes what profiles and diagnostics there are."""

    def __init__(self, namespace: str) -> None:
        self.node = Node('intradp_doctor', namespace=namespace, start_parameter_services=False)
        self.profiles: set[tuple[str, str, str]] = set()
        self.offsets: dict[str, float] = {}
        self.status: dict[str, Any] = {}
        self.node.create_subscription(OperatorProfile, PROFILE_TOPIC, self._profile, LATCHED)
        self.node.create_subscription(DiagnosticArray, 'diagnostics', self._stamped, 10)

    def look(self, seconds: float) -> None:
        """Spin for some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            rclpy.spin_once(self.node, timeout_sec=left)

    def _profile(self, message: OperatorProfile) -> None:
        if len(self.profiles) < _MOST:
            self.profiles.add((message.role, message.digest, message.device))

    def _stamped(self, message: DiagnosticArray) -> None:
        stamp = message.header.stamp.sec + 1e-9 * message.header.stamp.nanosec
        for status in message.status[:1]:
            if len(self.offsets) < _MOST:
                self.offsets[status.name] = stamp - time.time()
        for status in message.status:
            if status.name in self.status or len(self.status) < _MOST:
                self.status[status.name[:_LONGEST]] = {
                    'well': status.level == DiagnosticStatus.OK,
                    'message': status.message[:_LONGEST],
                    'values': {value.key[:_LONGEST]: value.value[:_LONGEST]
                               for value in status.values[:_VALUES]}}


def main() -> None:
    """Look around and print what was seen."""
    namespace, seconds = sys.argv[1], float(sys.argv[2])
    rclpy.init(args=NO_LOG_FILE)
    domain = rclpy.utilities.get_default_context().get_domain_id()
    listening = _listening(domain)
    with listening or nullcontext():
        probe = DomainProbe(namespace)
        own = listening.own(1.0) if listening else None
        probe.look(seconds)
        others = list(listening.hear(1.0)) if listening else []
    print(json.dumps({
        'rmw': get_rmw_implementation_identifier(), 'domain': domain,
        'own': described(own) if own else None,
        'others': [described(a) for a in {a.participant: a for a in others}.values()
                   if own is None or a.participant != own.participant][:_MOST],
        'nodes': sorted(f'{space.rstrip("/")}/{name}' for name, space
                        in probe.node.get_node_names_and_namespaces()
                        if name != probe.node.get_name())[:_MOST],
        'profiles': sorted(probe.profiles), 'clock_offsets': probe.offsets,
        'status': probe.status}), flush=True)
    probe.node.destroy_node()
    rclpy.try_shutdown()


def described(announcement: Announcement) -> dict[str, Any]:
    """Return an announcement as JSON."""
    return {'address': announcement.address, 'machine': announcement.machine,
            'process': announcement.process, 'transport': announcement.transport}


def _listening(domain: int) -> Listening | None:
    try:
        return Listening(domain)
    except OSError as error:
        print(f'cannot hear announcements: {error}', file=sys.stderr)
        return None


if __name__ == '__main__':
    main()
