# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""All protocols of a gateway at one port, as an ASGI application."""
from __future__ import annotations

from collections.abc import Collection, Mapping
import json
from typing import Any

from intradp_ros.runtime.requests.admission import ClientRates
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web.access import ApiKeys, Clients, GuardLimits, RouteLimits
from intradp_ros.web.connections import Receive, Send
from intradp_ros.web.docks import DockSockets
from intradp_ros.web.docks import PATH as DOCKS
from intradp_ros.web.guard import Guard
from intradp_ros.web.inference_routes import InferenceRoutes
from intradp_ros.web.inference_routes import PATH as V2
from intradp_ros.web.policy_socket import PolicySockets
from intradp_ros.web.serving_metrics import metrics_text
from intradp_ros.web.site_link import MAX_MESSAGE, PATH, SiteSockets
from intradp_ros.web.web_server import WebServer, WebSocketLimits

#: Bytes of a request of a client, and of the outputs of one.
MAX_REQUEST = 16 << 20
#: Seconds between pings, and within which one is answered.
PING, PONG = 3.0, 6.0


class ServingApp:
    """Requests of robots and of other sites, and what there is to know of this one."""

    def __init__(self, gateway: Gateway, docks: Collection[str] = ()) -> None:
        self._gateway = gateway
        self._policies = PolicySockets(gateway)
        self._at: Mapping[str, Any] = {PATH: SiteSockets(gateway),
                                       DOCKS: DockSockets(gateway, docks)}
        self._inference = InferenceRoutes(gateway)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a connection or a request."""
        if scope['type'] == 'websocket':
            await self._at.get(scope['path'], self._policies)(scope, receive, send)
        elif scope['type'] == 'http':
            await self._http(scope, receive, send)

    async def _http(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        path = scope['path']
        if path in ('/health', '/status', '/metrics') and scope['method'] not in ('GET', 'HEAD'):
            await _json(send, 405, {'error': {'message': f'{path} is read by GET'}})
        elif path == '/health':
            await _json(send, 200, {'status': 'ok'})
        elif path == '/status':
            await _json(send, 200, self._gateway.described())
        elif path == '/metrics':
            await self._metrics(send)
        elif path == V2 or path.startswith(f'{V2}/'):
            await self._inference(scope, receive, send)
        else:
            await _json(send, 404, {'error': {'message': 'there are /health, /status, /metrics, '
                                              '/v2, and web sockets /SERVICE'}})

    async def _metrics(self, send: Send) -> None:
        try:
            text = metrics_text(self._gateway.described())
        except ModuleNotFoundError as error:
            await _json(send, 501, {'error': {'message': str(error)}})
            return
        await send({'type': 'http.response.start', 'status': 200, 'headers': [
            (b'content-type', b'text/plain; version=0.0.4; charset=utf-8')]})
        await send({'type': 'http.response.body', 'body': text})


async def _json(send: Send, status: int, body: Mapping[str, Any]) -> None:
    await send({'type': 'http.response.start', 'status': status,
                'headers': [(b'content-type', b'application/json')]})
    await send({'type': 'http.response.body', 'body': json.dumps(body).encode()})


def site_clients(keys: ApiKeys | None, rate: float, sites: Collection[str] = ()) -> Clients:
    """
    Return the limits of clients; each may begin so many connections or requests a second.

    Of keys only those that have the names of other `sites` may speak as sites.
    """
    return Clients(keys, ClientRates(rate, max(1, round(4 * rate))), GuardLimits(
        in_flight=256, routes={
            '/': RouteLimits(MAX_REQUEST, message=MAX_REQUEST),
            PATH: RouteLimits(MAX_REQUEST, message=MAX_MESSAGE, only=frozenset(sites)),
            DOCKS: RouteLimits(MAX_REQUEST, message=MAX_MESSAGE)}))


def serve(gateway: Gateway, address: str, port: int, keys: ApiKeys | None = None,
          rate: float = 100.0, *, clients: Clients | None = None,
          docks: Collection[str] = ()) -> WebServer:
    """
    Serve a gateway; `clients` take the place of what follows from `keys` and `rate`.

    Clients named in `docks` may offer executors.

    :raises OSError: if the address or port cannot be had.
    """
    return WebServer(Guard(ServingApp(gateway, docks), clients or site_clients(
        keys, rate, gateway.neighbours.others)),
                     address, port, web_sockets=WebSocketLimits(MAX_MESSAGE, PING, PONG))
