# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures for Prometheus: there when asked for, and refused with the reason where they cannot."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
import socket
import sys
from typing import Any
from urllib.request import urlopen

import pytest
import rclpy

from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.sharing.monitoring import Monitor
from intradp_ros.runtime.requests.outcome import InferenceStats

STATS = InferenceStats(1, 'shared', 2, True, False, '', 0.03, 0.03, 0.01, 0.0, 700, 90, 0.0,
                       by_rows=True, alone=0.05)


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(('127.0.0.1', 0))
        return int(found.getsockname()[1])


@contextmanager
def node(context: rclpy.Context) -> Iterator[ManagedNode]:
    made = ManagedNode('watched', context=context)
    yield made
    made.release()
    made.destroy_node()


def settings(port: int) -> dict[str, Any]:
    return {'metrics_port': port, 'metrics_address': '127.0.0.1'}


def test_prometheus_reads_what_inferences_took(context: rclpy.Context) -> None:
    pytest.importorskip('prometheus_client')
    port = free_port()
    for _ in range(2):  # and the port is free again when the node is cleaned up
        with node(context) as watched:
            monitor = Monitor(watched, settings(port))
            monitor.inferred(STATS)
            monitor.inferred(STATS)
            with urlopen(f'http://127.0.0.1:{port}/metrics', timeout=20) as answer:
                lines = dict(line.rsplit(' ', 1) for line in answer.read().decode().splitlines()
                             if not line.startswith('#'))
    label = '{node="/watched"}'
    assert float(lines[f'intradp_inferences_by_rows_since_start{label}']) == 2
    assert float(lines[f'intradp_sent_bytes_total{label}']) == 1400
    assert float(lines[f'intradp_latency_seconds_sum{label}']) == pytest.approx(0.06)
    assert float(lines[f'intradp_alone_seconds{label}']) == 0.05


def test_a_port_in_use_is_named(context: rclpy.Context) -> None:
    pytest.importorskip('prometheus_client')
    with closing(socket.socket()) as taken, node(context) as watched:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f'metrics_port {port} of 127.0.0.1: .*in use'):
            Monitor(watched, settings(port))


def test_without_its_library_the_reason_says_the_fix(
        context: rclpy.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'prometheus_client', None)
    with node(context) as watched:
        assert Monitor(watched, settings(0)).counts['inferences'] == 0
        with pytest.raises(ValueError, match='pip install prometheus-client'):
            Monitor(watched, settings(9))
