# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures for Prometheus: there when asked for, and refused with the reason where they cannot."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager, ExitStack, suppress
import importlib
import math
import socket
import sys
import threading
from typing import Any
from urllib.request import urlopen

import pytest
import rclpy
from rclpy.lifecycle import TransitionCallbackReturn
from rclpy.parameter import Parameter

from intradp_ros.nodes import node_modules
from intradp_ros.nodes.common.diagnostics import Diagnostics, Status
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.metrics_port import LIMITS
from intradp_ros.nodes.common.prometheus import Figure, open_metrics, Total
from intradp_ros.nodes.sharing.monitoring import Monitor
from intradp_ros.runtime.requests.outcome import InferenceStats

STATS = InferenceStats(1, 'shared', 2, True, False, '', 0.03, 0.03, 0.01, 0.0, 700, 90, 0.0,
                       by_rows=True, alone=0.05)


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(('127.0.0.1', 0))
        return int(found.getsockname()[1])


@contextmanager
def node(context: rclpy.Context, port: int = 0) -> Iterator[Any]:
    made = Watched('watched', context=context, parameter_overrides=[
        Parameter('metrics_port', value=port)])
    yield made
    made.release()
    made.destroy_node()


class Watched(ManagedNode):
    """A node that only monitors."""

    def setup(self, parameters: dict[str, Any]) -> None:
        self.monitor = Monitor(self)

    def start(self) -> None:
        """Do nothing."""


def read(port: int) -> tuple[dict[str, float], dict[str, str]]:
    """Return the figures, and the kinds of metrics, by name."""
    with urlopen(f'http://127.0.0.1:{port}/metrics', timeout=60) as answer:
        lines = answer.read().decode().splitlines()
    kinds = dict(line.split()[2:4] for line in lines if line.startswith('# TYPE'))
    return {name: float(value) for name, _, value in (
        line.rpartition(' ') for line in lines if not line.startswith('#'))}, kinds


def test_prometheus_reads_what_inferences_took(context: rclpy.Context) -> None:
    pytest.importorskip('prometheus_client')
    port = free_port()
    for _ in range(2):  # and the port is free again when the node is cleaned up
        with node(context, port) as watched:
            assert watched.trigger_configure() is TransitionCallbackReturn.SUCCESS
            watched.monitor.inferred(STATS)
            watched.monitor.inferred(STATS)
            figures, kinds = read(port)
    label = '{node="/watched"}'
    assert figures[f'intradp_inferences_by_rows_total{label}'] == 2
    assert figures[f'intradp_sent_bytes_total{label}'] == 1400
    assert figures[f'intradp_latency_seconds_sum{label}'] == pytest.approx(0.06)
    assert figures[f'intradp_alone_seconds{label}'] == 0.05
    assert kinds['intradp_inferences_by_rows_total'] == 'counter'
    assert kinds['intradp_alone_seconds'] == 'gauge'


def test_prometheus_reads_the_figures_of_diagnostics(context: rclpy.Context) -> None:
    """Totals are counters, other numbers gauges; text is not for it."""
    pytest.importorskip('prometheus_client')
    port = free_port()
    with node(context, port) as watched:
        assert watched.trigger_configure() is TransitionCallbackReturn.SUCCESS
        status = Diagnostics(watched)
        array = status.message(Status('fine', {
            'tokens': Total(7), 'computing_s': Total(1.25, '.1f'), 'power_w': Figure(3.5, '.2f'),
            'sessions': 2, 'authenticated': True, 'model': '123', 'loss of a/b': math.nan,
        }, {'mac': 3}, well=False))
        figures, kinds = read(port)
    shown = {value.key: value.value for value in array.status[0].values}
    assert (shown['tokens'], shown['computing_s'], shown['power_w']) == ('7', '1.2', '3.50')
    label = '{node="/watched"}'
    assert {name: figures[f'intradp_{name}{label}'] for name in (
        'tokens_total', 'computing_seconds_total', 'power_w', 'sessions', 'authenticated', 'well',
    )} == {'tokens_total': 7, 'computing_seconds_total': 1.25, 'power_w': 3.5, 'sessions': 2,
           'authenticated': 1, 'well': 0}
    assert figures['intradp_rejected_total{cause="mac",node="/watched"}'] == 3
    assert f'intradp_loss_of_a_b{label}' in figures and not any('model' in f for f in figures)
    assert all(name.endswith('_total') == (kind == 'counter') for name, kind in kinds.items())


def test_who_sends_or_reads_nothing_keeps_nobody_from_the_figures() -> None:
    pytest.importorskip('prometheus_client')
    port, before = free_port(), threading.active_count()
    with ExitStack() as opened:
        metrics = open_metrics('127.0.0.1', port, '/watched')
        opened.callback(metrics.close)
        metrics.take('diagnostics', {'sessions': 2})
        for number in range(200):
            stranger = opened.enter_context(socket.create_connection(('127.0.0.1', port)))
            with suppress(OSError):  # it has made room already
                stranger.sendall((b'', b'GET /metrics HT', b'GET / HTTP/1.1\r\n\r\n' * 999,
                                  b'x' * 100_000)[number % 4])
        assert read(port)[0]['intradp_sessions{node="/watched"}'] == 2
        assert threading.active_count() <= before + 1
        assert len(metrics._port._listener.connections.lives) <= LIMITS.total
        with socket.create_connection(('127.0.0.1', port)) as posting:
            posting.sendall(b'POST /metrics HTTP/1.1\r\nContent-Length: 9\r\n\r\n')
            assert b' 405 ' in posting.recv(100)


@pytest.mark.parametrize('name', node_modules())
def test_every_node_has_metrics(name: str, context: rclpy.Context) -> None:
    """The port is a parameter of all of them."""
    module = importlib.import_module(node_modules()[name])
    [kind] = [value for value in vars(module).values() if isinstance(value, type)
              and issubclass(value, ManagedNode) and value.__module__ == module.__name__]
    made: Any = kind(context=context)  # type: ignore[call-arg]
    try:
        assert made.has_parameter('metrics_port') and made.has_parameter('metrics_address')
    finally:
        made.destroy_node()


def test_a_port_in_use_is_named(context: rclpy.Context,
                                monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip('prometheus_client')
    with closing(socket.socket()) as taken:
        taken.bind(('127.0.0.1', 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ValueError, match=f'metrics_port {port} of 127.0.0.1: .*in use'):
            open_metrics('127.0.0.1', port, '/watched')
        with node(context, port) as watched:
            assert watched.trigger_configure() is TransitionCallbackReturn.FAILURE


def test_without_its_library_the_reason_says_the_fix(
        context: rclpy.Context, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, 'prometheus_client', None)
    with node(context) as watched:
        assert watched.trigger_configure() is TransitionCallbackReturn.SUCCESS
        assert watched.monitor.counts['inferences'] == 0
    with pytest.raises(ValueError, match='pip install prometheus-client'):
        open_metrics('127.0.0.1', 9, '/watched')
