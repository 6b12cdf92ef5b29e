# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a robot's node reports: events, counts, and figures for Prometheus."""
from __future__ import annotations

from collections.abc import Callable, Mapping
import threading
import time
from typing import Any

from intradp_ros.msg import SharingEvent
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.sharing.prometheus import open_metrics
from intradp_ros.nodes.sharing.sharing_changes import Change, SharingChanges
from intradp_ros.runtime.requests.outcome import InferenceStats
from intradp_ros.systems.sharing.session.connection import Connection

MONITORING = (
    Parameter('metrics_port', 0, 'TCP port where Prometheus finds figures of this node; 0 for '
              'none. Needs prometheus_client.', 0, 65535),
    Parameter('metrics_address', '127.0.0.1', 'Address of that port; 0.0.0.0 for all of this '
              'machine. Anybody who reaches it may read them.'),
)


class Monitor:
    """Publishes changes on ``~/events`` and counts; may be given them in several threads."""

    def __init__(self, node: ManagedNode, parameters: Mapping[str, Any],
                 clock: Callable[[], float] = time.monotonic) -> None:
        """
        Open the topic, and the port if there is to be one.

        Raises
        ------
        ValueError
            If the port cannot be opened, or prometheus_client is not there.

        """
        self._node, self._clock, self._lock = node, clock, threading.Lock()
        self._changes = SharingChanges()
        self._events = node.publish_on(SharingEvent, '~/events', LATCHED)
        port = parameters['metrics_port']
        self._metrics = open_metrics(parameters['metrics_address'], port,
                                     node.get_fully_qualified_name()) if port else None
        if self._metrics:
            node.until_cleanup.callback(self._metrics.close)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return what was counted since the node was configured, by name."""
        with self._lock:
            return self._changes.counts

    def inferred(self, stats: InferenceStats) -> None:
        """Report an inference that has ended."""
        with self._lock:
            changes = self._changes.inferred(stats, self._clock())
            counts = self._changes.counts
        self._publish(changes)
        if self._metrics:
            self._metrics.inferred(stats, counts)

    def look(self, connection: Connection, rate: float) -> None:
        """Look at the session; `rate` is that of the link, bytes per second."""
        agreement = connection.agreement
        with self._lock:
            changes = self._changes.session(connection.state.value,
                                            agreement.epoch if agreement else None)
        self._publish(changes)
        if self._metrics:
            self._metrics.link(rate, alive=connection.alive)

    def mismatched(self, text: str) -> None:
        """Report that the quality of service of another node does not fit, in words."""
        with self._lock:
            change = self._changes.mismatched(text)
        self._publish([change])

    def _publish(self, changes: list[Change]) -> None:
        for change in changes:
            message = SharingEvent(inference=change.inference, kind=change.kind,
                                   text=change.text, seconds=change.seconds)
            message.header.stamp = self._node.get_clock().now().to_msg()
            self._events.publish(message)
