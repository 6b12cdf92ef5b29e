# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""diagnostic_msgs without diagnostic_updater, which has no wheel."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
import os
from pathlib import Path
import socket
from typing import Any, NamedTuple

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
from rclpy.node import Node

from intradp_ros.nodes.common.prometheus import Figure, Metrics, Total
from intradp_ros.runtime.transport.traffic import Traffic
from intradp_ros.wire.rejections import Rejections


class Status(NamedTuple):
    """What a node says of itself: a line, values, what was rejected by cause, if all is well."""

    message: str
    values: Mapping[str, Any] = {}
    rejected: Mapping[str, int] = {}
    well: bool = True


class Diagnostics:
    """
    The status of a node: a warning where it says so, or where messages were rejected lately.

    Its figures go to Prometheus, too, where the node has `metrics`.
    """

    def __init__(self, node: Node) -> None:
        self._node = node
        self._rejected = 0

    def message(self, status: Status) -> DiagnosticArray:
        """Return a status as a message, its values as text."""
        message, values, rejected, well = status
        asked: Rejections | None = getattr(self._node, 'refused', None)
        rejected = added(rejected, asked.by_cause() if asked else {})
        total = sum(rejected.values())
        well, self._rejected = well and total <= self._rejected, total
        every = {**values, **machine(), **{f'rejected_{cause}': Total(n)
                              for cause, n in sorted(rejected.items())}}
        metrics: Metrics | None = getattr(self._node, 'metrics', None)
        if metrics:
            metrics.take('diagnostics', {'well': well, **every})
        shown = DiagnosticStatus(
            level=DiagnosticStatus.OK if well else DiagnosticStatus.WARN,
            name=self._node.get_fully_qualified_name(), message=message,
            values=[KeyValue(key=key, value=str(value)) for key, value in every.items()])
        array = DiagnosticArray(status=[shown])
        array.header.stamp = self._node.get_clock().now().to_msg()
        return array


def machine(meminfo: Path = Path('/proc/meminfo')) -> dict[str, Any]:
    """Return how this machine does: its name, load by core, memory in 1e6 bytes."""
    found: dict[str, Any] = {'host': socket.gethostname()}
    with suppress(OSError):
        found['host_load'] = Figure(os.getloadavg()[0] / (os.cpu_count() or 1), '.2f')
    with suppress(OSError, ValueError, KeyError):
        lines = dict(line.split(':') for line in meminfo.read_text().splitlines())
        whole, free = (1.024e-3 * int(lines[key].split()[0])
                       for key in ('MemTotal', 'MemAvailable'))
        found |= {'host_memory_mb': Figure(whole, '.0f'),
                  'host_memory_used_mb': Figure(whole - free, '.0f')}
    return found


class SaidOnce:
    """Logs texts that hold for a while when they begin to hold, not as long as they do."""

    def __init__(self, log: Callable[[str], None]) -> None:
        self._log = log
        self._reported: frozenset[str] = frozenset()

    def report(self, texts: Iterable[str]) -> None:
        """Log those of the texts that did not hold at the last call."""
        now = frozenset(texts)
        for text in sorted(now - self._reported):
            self._log(text)
        self._reported = now


def crossed(sent: Traffic, received: Traffic) -> dict[str, Total]:
    """Return for each way and encoding the bytes on the link, and what they were plain."""
    return {f'{way}_{name}_{what}': Total(count)
            for way, traffic in (('sent', sent), ('received', received))
            for name, counts in sorted(traffic.by_encoding().items())
            for what, count in zip(('bytes', 'plain_bytes'), counts)}


def added(*counts: Mapping[str, int]) -> dict[str, int]:
    """Return the sum of several counts by cause."""
    total: Counter[str] = Counter()
    for count in counts:
        total.update(count)
    return dict(total)
