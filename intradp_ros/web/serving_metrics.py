# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Figures of a site as text for Prometheus, where `prometheus_client` is installed."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from intradp_ros.core.extras import pip_install
from intradp_ros.runtime.requests.infer_requests import InferFate

#: Counters by service: the key of `Gateway.described`, the name, what it counts.
_COUNTERS = (('transfers', 'transfers', 'requests sent to other sites'),
             ('wasted_transfers', 'wasted_transfers', 'of these, for no answer in time'),
             ('kept_promises', 'kept_promises', 'answers that came when predicted, or before'),
             ('spent_in_time_s', 'spent_in_time_seconds', 'computing for answers in time'),
             ('spent_wasted_s', 'spent_wasted_seconds', 'computing for nobody'))
_GAUGES = (('in_flight', 'in_flight', 'requests that have no end yet'),
           ('waiting', 'waiting', 'requests that wait in the queues of executors'),
           ('lost', 'lost', 'requests without an end that are not in flight: 0'))


def metrics_text(described: Mapping[str, Any]) -> bytes:
    """
    Return the text of what a gateway describes.

    :raises ModuleNotFoundError: if there is no prometheus_client; the text names the command that
        brings it.
    """
    try:
        client, core = (import_module(name) for name in (
            'prometheus_client', 'prometheus_client.metrics_core'))
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError('/metrics needs prometheus_client: '
                                  f'{pip_install("serving")}', name=error.name) from error

    class Collector:
        def collect(self) -> Iterator[Any]:
            return _families(described, core)
    registry = client.CollectorRegistry()
    registry.register(Collector())
    text: bytes = client.generate_latest(registry)
    return text


def _families(described: Mapping[str, Any], core: Any) -> Iterator[Any]:
    site, services = described['site'], described['services']

    def family(kind: Any, name: str, text: str, *labels: str) -> Any:
        return kind(f'intradp_serving_{name}', text, labels=('site', *labels))
    fates = family(core.CounterMetricFamily, 'requests', 'requests by what became of them',
                   'service', 'kind', 'fate')
    for name, figures in services.items():
        for fate in InferFate:
            fates.add_metric((site, name, figures['kind'], fate.value), figures[fate.value])
    yield fates
    for kind, rows in ((core.CounterMetricFamily, _COUNTERS), (core.GaugeMetricFamily, _GAUGES)):
        for key, name, text in rows:
            found = family(kind, name, text, 'service')
            for service, figures in services.items():
                found.add_metric((site, service), figures[key])
            yield found
    promised = family(core.GaugeMetricFamily, 'promised_seconds', 'what a batch is promised to '
                      'take', 'service', 'executor', 'rows')
    for service, figures in services.items():
        for batch in figures['batches']:
            for rows, milliseconds in batch['promised_ms'].items():
                promised.add_metric((site, service, str(batch['executor']), str(rows)),
                                    milliseconds / 1e3)
    yield promised
    for name, text, value in (('executors', 'executors that run', described['executors']),
                              ('links', 'other sites that are reached', len(described['links']))):
        found = family(core.GaugeMetricFamily, name, text)
        found.add_metric((site,), value)
        yield found
