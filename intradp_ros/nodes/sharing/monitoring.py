# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a robot's node reports: events, counts, and figures for Prometheus."""
from __future__ import annotations

from collections.abc import Mapping
import threading
import time

from intradp_ros.msg import SharingEvent
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode
from intradp_ros.nodes.common.prometheus import Total
from intradp_ros.nodes.sharing.sharing_changes import Change, SharingChanges
from intradp_ros.runtime.requests.outcome import InferenceStats
from intradp_ros.systems.sharing.session.connection import Connection

#: Bounds of the histogram of latencies, in seconds.
_SECONDS = (.005, .01, .02, .05, .1, .2, .5, 1., 2., 5.)


class Monitor:
    """Publishes changes on ``~/events`` and counts; may be given them in several threads."""

    def __init__(self, node: ManagedNode) -> None:
        """Open the topic."""
        self._node, self._lock = node, threading.Lock()
        self._changes = SharingChanges()
        self._sent = self._received = 0
        self._events = node.publish_on(SharingEvent, '~/events', LATCHED)
        self._metrics = node.metrics
        self._latency = self._metrics.histogram(
            'latency_seconds', 'input at hand to result at hand', _SECONDS,
        ) if self._metrics else None

    @property
    def counts(self) -> Mapping[str, int]:
        """Return what was counted since the node was configured, by name."""
        with self._lock:
            return self._changes.counts

    def inferred(self, stats: InferenceStats) -> None:
        """Report an inference that has ended."""
        with self._lock:
            changes = self._changes.inferred(stats, time.monotonic())
            self._sent += stats.bytes_up
            self._received += stats.bytes_down
            totals = {**self._changes.counts, 'sent_bytes': self._sent,
                      'received_bytes': self._received}
        self._publish(changes)
        if self._metrics and self._latency:
            self._latency.observe(stats.latency)
            self._metrics.take('inferences', {
                'alone_seconds': stats.alone,
                **{name: Total(count) for name, count in totals.items()}})

    def look(self, connection: Connection, rate: float) -> None:
        """Look at the session; `rate` is that of the link, bytes per second."""
        agreement = connection.agreement
        with self._lock:
            changes = self._changes.session(connection.state.value,
                                            agreement.epoch if agreement else None)
        self._publish(changes)
        if self._metrics:
            self._metrics.take('link', {'link_bytes_per_second': rate,
                                        'connected': connection.alive})

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
