# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of a node as text for Prometheus, where `prometheus_client` is installed."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
import re
import threading
import time
from typing import Any

from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits
from intradp_ros.web.connections import Listener

METRICS = (
    Parameter('metrics_port', 0, 'TCP port where Prometheus finds figures of this node; 0 for '
              'none. Needs prometheus_client.', 0, 65535),
    Parameter('metrics_address', '127.0.0.1', 'Address of that port; 0.0.0.0 for all of this '
              'machine. Anybody who reaches it may read them.'),
)
#: Connections, and seconds of their heads; seconds for which a text is given to who asks.
LIMITS, FRESH = ConnectionLimits(32, 16, head=5.0, stalled=5.0), 0.1
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
        # the library's own server gives each connection a thread, for as long as it likes
        self._listener = Listener.at(address, port, LIMITS.within_files())
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(
            self._answer, sock=self._listener))
        self._thread = threading.Thread(target=self._run, name='metrics', daemon=True)
        self._thread.start()

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
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._server.close()
        for task in (tasks := asyncio.all_tasks(self._loop)):
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._listener.cut_all()
        self._loop.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request; the listener ends who sends or takes nothing."""
        with suppress(OSError, EOFError, asyncio.LimitOverrunError):
            head = await reader.readuntil(b'\r\n\r\n')
            ends = [(writer.get_extra_info(f'{side}name') or ())[:2] for side in ('peer', 'sock')]
            if life := self._listener.of({'client': ends[0], 'server': ends[1]}):
                life.begin()
                life.sending = self._listener.now()
            status, body = '200 OK', self._shown()
            if head.split(b' ', 1)[0] not in (b'GET', b'HEAD'):
                status, body = '405 Method Not Allowed', b'figures are read by GET\n'
            writer.write(f'HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; '
                         f'charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close'
                         '\r\n\r\n'.encode() + (b'' if head.startswith(b'HEAD') else body))
            await writer.drain()
        writer.close()

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
