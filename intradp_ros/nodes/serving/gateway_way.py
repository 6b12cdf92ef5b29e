# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The way from a robot to gateways: by the service ``infer``, or over web sockets."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
import time
from typing import Any, Protocol

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.serving.infer_client import InferClient, Specs
from intradp_ros.nodes.serving.infer_messages import InferMessageError, specs_of
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferRequest
from intradp_ros.web.access import own_key

#: Seconds between questions what a service takes that is being loaded.
ASK_AGAIN = 0.5


class GatewayWay(Protocol):
    """Sends requests to the first of some gateways that can be reached; see `InferClient`."""

    trouble: str

    @property
    def specs(self) -> Specs | None:
        """Return what the service takes and gives, once a gateway has said so."""

    @property
    def gateway(self) -> str:
        """Return the gateway that is asked, '' for none."""

    @property
    def counts(self) -> Mapping[str, int]:
        """Return what became of answers and gateways, in numbers."""

    @property
    def rejected(self) -> Mapping[str, int]:
        """Return how many answers were not taken, by cause."""

    def submit(self, request: InferRequest, heard: Callable[[InferEnd], None],
               ) -> Callable[[], None]:
        """Send a request."""

    def move(self, gateways: Sequence[str]) -> None:
        """Ask other gateways from now on; ValueError if they cannot be."""

    def look(self) -> None:
        """Do what time brings."""

    def close(self) -> None:
        """Ask no more."""


class WebWay:
    """Gateways ``HOST:PORT`` or ``ws://...``, asked over web sockets."""

    def __init__(self, service: str, gateways: Sequence[str], key: str) -> None:
        # what only this way needs is an extra
        from intradp_ros.web.serving_client import ServingClient
        self._service, self._gateways = service, list(gateways)
        self._client = ServingClient(gateways, key)
        self._client.reach(service)
        self._asked = time.monotonic()
        self.specs: Specs | None = None
        self.trouble = ''
        self.rejected: Mapping[str, int] = {}

    @property
    def gateway(self) -> str:
        """Return the gateway that is asked, '' for none."""
        return self._client.reached(self._service)

    @property
    def counts(self) -> Mapping[str, int]:
        """Return no figures: a connection has none."""
        return {}

    def submit(self, request: InferRequest, heard: Callable[[InferEnd], None],
               ) -> Callable[[], None]:
        """Send a request."""
        return self._client.submit(request, heard)

    def move(self, gateways: Sequence[str]) -> None:
        """Ask other gateways from now on."""
        if not all(is_web(name) for name in gateways):
            raise ValueError(f'{", ".join(gateways)}: gateways are HOST:PORT, as at the start')
        self._gateways = list(gateways)
        self._client.move(gateways)

    def look(self) -> None:
        """Take what a gateway says of the service; one that is loading it is asked again."""
        greeting = self._client.greeting(self._service)
        try:
            found = tuple(specs_of([f'{name} {text}' for name, text in greeting[what].items()])
                          for what in ('inputs', 'outputs')) if greeting else ((), ())
        except (KeyError, AttributeError, InferMessageError) as error:
            self.trouble = f'the gateway greets otherwise: {error}'
            return
        if found[0]:
            self.specs, self.trouble = (found[0], found[1]), ''
        elif greeting and time.monotonic() - self._asked > ASK_AGAIN:
            self._asked, self.trouble = time.monotonic(), f'{self._service} is being loaded'
            self._client.move(self._gateways)

    def close(self) -> None:
        """End what is in flight as cancelled, and all connections."""
        self._client.close()


def is_web(gateway: str) -> bool:
    """Return whether a gateway is an address, not the name of a node."""
    return ':' in gateway


def open_way(node: ManagedNode, given: Mapping[str, Any], key: SharedKey | None) -> GatewayWay:
    """
    Open the way that a node's parameters name.

    :raises ValueError: if there is no service; if gateways are of both kinds, none, or cannot be.
    :raises OSError: if there is no file of the API key.
    """
    names, service = [name for name in given['gateways'] if name], given['service']
    if not service:
        raise ValueError('parameter service: name the service that is asked')
    api_key = own_key(Path(given['api_key']) if given['api_key'] else None)
    web = [is_web(name) for name in names]
    if not names or any(web) is not all(web):
        raise ValueError('parameter gateways: name gateway nodes, or addresses HOST:PORT; not '
                         'both')
    if all(web):
        return WebWay(service, names, api_key)
    return InferClient(node, service, names, key, given['gateway_timeout_ms'] / 1e3, node.warn)
