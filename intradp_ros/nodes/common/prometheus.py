# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of a node as text for Prometheus, where `prometheus_client` is installed."""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
import re
import time
from typing import Any

from intradp_ros.nodes.common.parameters import Parameter

METRICS = (
    Parameter('metrics_port', 0, 'TCP port where Prometheus finds figures of this node; 0 for '
              'none. Needs prometheus_client.', 0, 65535),
    Parameter('metrics_address', '127.0.0.1', 'Address of that port; 0.0.0.0 for all of this '
              'machine. Anybody who reaches it may read them.'),
)
#: Seconds for which a text is given to who asks.
FRESH = 0.1
_REJECTED = 'rejected_'


@dataclass(frozen=True, slots=True)
class Figure:
    """A number as it is now, and how it is written."""

    value: float
    form: str = ''

    def __str__(self) -> str:
        return f'{self.value:{self.form}}'


class Total(Figure):
    """A number that only grows as long as what counts it lives: a counter."""

    __slots__ = ()


class Metrics:
    """
    What Prometheus may read, on a port that is open until `close`.

    All figures carry the node's name, those of what was rejected its cause, too.
    """

    def __init__(self, client: Any, address: str, port: int, node: str) -> None:
        self._client, self._node = client, node
        self._registry = client.CollectorRegistry()
        self._taken: dict[str, Mapping[str, Any]] = {}
        self._registry.register(self)
        self._text, self._made = b'', float('-inf')
        from intradp_ros.nodes.common.metrics_port import MetricsPort  # most nodes open none
        self._port = MetricsPort(address, port, self._shown)

    def take(self, group: str, values: Mapping[str, Any]) -> None:
        """
        Take the figures of a group, in place of its last ones: totals are counters.

        Other numbers and truth values are gauges; what is text, and what is not finite, is not
        for Prometheus.
        """
        self._taken = {**self._taken, group: values}

    def histogram(self, name: str, text: str, buckets: Sequence[float]) -> Any:
        """Return a histogram with these bounds."""
        return self._client.Histogram(f'intradp_{name}', text, ('node',), buckets=buckets,
                                      registry=self._registry).labels(self._node)

    def collect(self) -> Iterator[Any]:
        """Yield all figures, for the library."""
        core = import_module('prometheus_client.metrics_core')
        rejected = core.CounterMetricFamily('intradp_rejected', 'messages that were not taken',
                                            labels=('node', 'cause'))
        taken: dict[str, Any] = {}
        for values in self._taken.values():
            taken.update(values)
        for key, value in taken.items():
            number = value.value if isinstance(value, Figure) else value
            if not isinstance(number, int | float):
                continue
            if key.startswith(_REJECTED):
                rejected.add_metric((self._node, key.removeprefix(_REJECTED)), number)
                continue
            name, text = f'intradp_{metric_name(key)}', key.replace('_', ' ')
            family = (core.CounterMetricFamily if isinstance(value, Total)
                      else core.GaugeMetricFamily)(name, text, labels=('node',))
            family.add_metric((self._node,), number)
            yield family
        yield rejected

    def close(self) -> None:
        """Close the port."""
        self._port.close()

    def _shown(self) -> bytes:
        """Return all figures as text, which is made anew after a while."""
        if (now := time.monotonic()) - self._made > FRESH:
            self._text, self._made = self._client.generate_latest(self._registry), now
        return self._text


def metric_name(key: str) -> str:
    """Return what a value of diagnostics is called: letters of its key, its unit in full."""
    name = re.sub(r'\W+', '_', key, flags=re.ASCII).strip('_')
    return re.sub(r'_s$', '_seconds', name)


def open_metrics(address: str, port: int, node: str) -> Metrics:
    """
    Open a port for Prometheus.

    :raises ValueError: if there is no prometheus_client, or the port cannot be opened.
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
