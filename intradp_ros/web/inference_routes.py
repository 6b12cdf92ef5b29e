# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The routes ``/v2`` of the Open Inference Protocol over HTTP, as an ASGI application."""
from __future__ import annotations

import asyncio
from collections.abc import Mapping
import json
import math
import time
from typing import Any

from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web.connections import Receive, Send
from intradp_ros.web.inference_protocol import (
    answer,
    described,
    infer_body,
    InferBody,
    ProtocolError,
)
from intradp_ros.web.submitted import submitted

PATH = '/v2'
#: Bodies from so many bytes on are parsed on another thread.
LARGE = 1 << 16
_HEADER = b'inference-header-content-length'
_STATUS = {InferFate.REFUSED: 503, InferFate.LATE: 504, InferFate.CANCELLED: 503}


class InferenceRoutes:
    """Health, metadata and inference; `web/guard.py: Guard` belongs around it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._services = {service.name: service for service in gateway.services}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a request."""
        method = scope['method'].replace('HEAD', 'GET')  # the server drops the body
        match [method, *scope['path'].removeprefix(PATH).strip('/').split('/')]:
            case ['GET', '']:
                await _say(send, 200, {'name': 'intradp_ros', 'version': '2',
                                       'extensions': ['binary_tensor_data']})
            case ['GET', 'health', 'live']:
                await _say(send, 200, {'live': True})
            case ['GET', 'health', 'ready']:
                ready = any(self._gateway.specs(name) for name in self._services)
                await _say(send, 200 if ready else 503, {'ready': ready})
            case [method, 'models', name, *rest]:
                if rest[:1] == ['versions'] and rest[1:2] == ['1']:
                    rest = rest[2:]
                await self._model(method, name, rest, scope, receive, send)
            case _:
                await _say(send, 404, {'error': f'there is no {scope["method"]} of this path'})

    async def _model(self, method: str, name: str, rest: list[str], scope: Mapping[str, Any],
                     receive: Receive, send: Send) -> None:
        service = self._services.get(name)
        if service is None:
            await _say(send, 404, {'error': f'model {name[:64]!r} is not served; there are '
                                   f'{", ".join(self._services)}'})
            return
        found = self._gateway.specs(name)
        specs = (found or service).inputs, (found or service).outputs
        if method == 'GET' and rest == ['ready']:
            await _say(send, 200 if found else 503, {'ready': found is not None})
        elif method == 'GET' and not rest and specs[0]:
            await _say(send, 200, described(name, *specs))
        elif not specs[0]:
            await _say(send, 503, {'error': f'model {name!r}: {self._gateway.lacking(name)}'})
        elif method == 'POST' and rest == ['infer']:
            body = (await receive()).get('body', b'')
            try:
                said = await _parsed(scope, body, specs[0])
            except ProtocolError as error:
                await _say(send, 400, {'error': str(error)})
                return
            await self._infer(name, said, scope, receive, send)
        else:
            await _say(send, 404, {'error': 'of a model there are its metadata, /ready and '
                                   '/infer (POST)'})

    async def _infer(self, name: str, said: InferBody, scope: Mapping[str, Any],
                     receive: Receive, send: Send) -> None:
        """Answer a request; one whose client goes is withdrawn."""
        limit = said.timeout if math.isfinite(said.timeout) else self._services[name].deadline
        spent = time.monotonic() - scope.get('came', time.monotonic())
        ended, withdraw = submitted(self._gateway, InferRequest(
            name, said.tensors, max(0.0, limit - spent), said.priority,
            str(scope.get('client_name', ''))))
        gone = asyncio.ensure_future(_gone(receive))
        try:
            await asyncio.wait((ended, gone), return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                return
        finally:
            gone.cancel()
            withdraw()
        await _say_end(send, name, said, ended.result())


async def _parsed(scope: Mapping[str, Any], body: bytes, inputs: Any) -> InferBody:
    headers = {key.lower(): value for key, value in scope['headers']}
    if headers.get(b'content-encoding', b'identity') != b'identity':
        raise ProtocolError('content-encoding: send bodies as they are')
    text = headers.get(_HEADER)
    if text is not None and not (text.isdigit() and len(text) < 10):
        raise ProtocolError('Inference-Header-Content-Length: send a whole number')
    header = None if text is None else int(text)
    if len(body) < LARGE:
        return infer_body(body, header, inputs)
    return await asyncio.to_thread(infer_body, body, header, inputs)


async def _gone(receive: Receive) -> None:
    while (await receive())['type'] != 'http.disconnect':
        pass


async def _say_end(send: Send, name: str, said: InferBody, end: InferEnd) -> None:
    if end.fate is InferFate.IN_TIME:
        try:
            body, header = answer(name, said, end)
        except ProtocolError as error:
            await _say(send, 400, {'error': str(error)})
            return
        kind = b'application/json' if header is None else b'application/octet-stream'
        headers = [(b'content-type', kind)]
        if header is not None:
            headers.append((_HEADER, str(header).encode()))
        await _send(send, 200, headers, body)
        return
    text: dict[str, Any] = {'error': end.reason, 'fate': end.fate.value, 'site': end.site}
    more = []
    if end.fate is InferFate.REFUSED and math.isfinite(end.retry_after):
        text['retry_after_ms'] = round(1e3 * end.retry_after, 3)
        more = [(b'retry-after', str(math.ceil(end.retry_after)).encode())]
    await _say(send, _STATUS[end.fate], text, more)


async def _say(send: Send, status: int, body: Mapping[str, Any],
               more: list[tuple[bytes, bytes]] | None = None) -> None:
    await _send(send, status, [(b'content-type', b'application/json'), *(more or [])],
                json.dumps(body).encode())


async def _send(send: Send, status: int, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
    await send({'type': 'http.response.start', 'status': status, 'headers': [
        *headers, (b'content-length', str(len(body)).encode())]})
    await send({'type': 'http.response.body', 'body': body})
