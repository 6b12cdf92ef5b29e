# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of a robot's node as text for Prometheus, where `prometheus_client` is installed."""
from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from intradp_ros.nodes.sharing.sharing_changes import COUNTED
from intradp_ros.runtime.requests.outcome import InferenceStats

_SECONDS = (.005, .01, .02, .05, .1, .2, .5, 1., 2., 5.)


class Metrics:
    """What Prometheus may read, on a port that is open until `close`."""

    def __init__(self, client: Any, address: str, port: int, node: str) -> None:
        registry, labels = client.CollectorRegistry(), ('node',)

        def made(kind: str, name: str, text: str, **options: Any) -> Any:
            return getattr(client, kind)(f'intradp_{name}', text, labels, registry=registry,
                                         **options).labels(node)

        self._counts = {name: made('Gauge', f'{name}_since_start', name.replace('_', ' '))
                        for name in COUNTED}
        self._latency = made('Histogram', 'latency_seconds', 'input at hand to result at hand',
                             buckets=_SECONDS)
        self._alone = made('Gauge', 'alone_seconds', 'what the robot alone is expected to take')
        self._up = made('Counter', 'sent_bytes', 'bytes of rows sent to the server')
        self._down = made('Counter', 'received_bytes', 'bytes of rows that came from the server')
        self._rate = made('Gauge', 'link_bytes_per_second', 'predicted rate of the link')
        self._connected = made('Gauge', 'connected', '1 while the server answers')
        self._server, self._thread = client.start_http_server(port, address, registry)

    def inferred(self, stats: InferenceStats, counts: Mapping[str, int]) -> None:
        """Take the figures of an inference, and the counts of all."""
        for name, count in counts.items():
            self._counts[name].set(count)
        self._latency.observe(stats.latency)
        self._alone.set(stats.alone)
        self._up.inc(stats.bytes_up)
        self._down.inc(stats.bytes_down)

    def link(self, rate: float, *, alive: bool) -> None:
        """Take what is known of the link."""
        self._rate.set(rate)
        self._connected.set(alive)

    def close(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def open_metrics(address: str, port: int, node: str) -> Metrics:
    """
    Open a port for Prometheus.

    Raises
    ------
    ValueError
        If there is no prometheus_client, or the port cannot be opened.

    """
    try:
        client = import_module('prometheus_client')
    except ModuleNotFoundError as error:
        raise ValueError('metrics_port needs prometheus_client: pip install prometheus-client, '
                         'or apt install python3-prometheus-client') from error
    try:
        return Metrics(client, address, port, node)
    except OSError as error:
        raise ValueError(f'metrics_port {port} of {address}: {error.strerror}') from error
