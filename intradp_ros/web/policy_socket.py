# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Services over web sockets, for clients of openpi as they are.

``ws://HOST:PORT/SERVICE?deadline_ms=150&priority=1``: a client sends an observation, a map of
arrays in MessagePack, and gets a map of the outputs.  An observation may bring its own
``deadline_ms`` and ``priority``.  What gets no answer gets a text, JSON with fate and reason, and
the connection stays open.  Each message is answered once, in order.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
import itertools
import json
import math
import time
from typing import Any
from urllib.parse import parse_qs, unquote

import numpy as np

from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web.connections import closed, Message, Receive, Send
from intradp_ros.web.tensor_messages import pack, TensorMessageError, unpack
from intradp_ros.web.web_socket import NOT_READ, Unread

#: Messages of one connection that may be in flight; larger ones are parsed on another thread.
IN_FLIGHT, LARGE = 16, 1 << 20
#: What is sent where an answer is not kept for who reads too slowly.
_NOT_READ = json.dumps({'fate': InferFate.LATE.value, 'reason': NOT_READ})
_connections = itertools.count(1)


class BadObservationError(ValueError):
    """An observation, or an address, that is not taken; the text names the field."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What the address of a connection says."""

    service: str
    remaining: float
    priority: int


def asked_by(path: str, query: bytes) -> Asked:
    """
    Return what an address says.

    :raises BadObservationError: if a number is none.
    """
    try:
        fields = parse_qs(query.decode('ascii', 'replace')[:2000], max_num_fields=16)
    except ValueError as error:
        raise BadObservationError(f'the address: {error}') from None
    for name in fields:
        if name not in ('deadline_ms', 'priority'):
            raise BadObservationError(f'{name[:40]!r} in the address: known are deadline_ms and '
                                      'priority')
        if len(fields[name]) > 1:
            raise BadObservationError(f'{name} stands twice in the address')
    return Asked(unquote(path).strip('/').rpartition('/')[2],
                 _deadline(fields.get('deadline_ms', [math.inf])[-1]),
                 _priority(fields.get('priority', [0])[-1]))


def _deadline(value: Any) -> float:
    """Return seconds."""
    try:
        found = float(value) / 1e3
    except (TypeError, ValueError):
        found = math.nan
    if not found >= 0:
        raise BadObservationError(f'deadline_ms {str(value)[:40]!r}: send milliseconds of 0 or '
                                  'more')
    return found


def _priority(value: Any) -> int:
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not abs(found) <= 1000 or found != int(found):
        raise BadObservationError(f'priority {str(value)[:40]!r}: send a whole number from -1000 '
                                  'to 1000')
    return int(found)


def request_of(data: bytes, asked: Asked, ignore: tuple[str, ...] = (), **more: Any,
               ) -> InferRequest:
    """
    Return the request that an observation is; `ignore` names entries that are left out.

    :raises BadObservationError: if it is not taken; the text names the field.
    """
    try:
        found = unpack(data)
    except TensorMessageError as error:
        raise BadObservationError(str(error)) from None
    if not isinstance(found, dict):
        raise BadObservationError('an observation is a map of arrays')
    remaining = _deadline(found.pop('deadline_ms')) if 'deadline_ms' in found else asked.remaining
    priority = _priority(found.pop('priority')) if 'priority' in found else asked.priority
    tensors: dict[str, Any] = {}
    _flatten(found, '', ignore, tensors)
    try:
        return InferRequest(asked.service, tensors, remaining, priority, **more)
    except ValueError as error:
        raise BadObservationError(str(error)) from None


def _flatten(found: Mapping[str, Any], place: str, ignore: tuple[str, ...],
             tensors: dict[str, Any]) -> None:
    for key, value in found.items():
        name = f'{place}/{key}' if place else key
        if name in ignore:
            continue
        if name in tensors:
            raise BadObservationError(f'entry {name[:80]!r} is there twice')
        if isinstance(value, dict):
            _flatten(value, name, ignore, tensors)
        elif isinstance(value, np.ndarray):
            tensors[name] = value
        elif isinstance(value, (bool, int, float)):
            tensors[name] = np.asarray(value)
        else:
            raise BadObservationError(
                f'entry {name[:80]!r} is not an array: send numbers, or name it in "ignore" of '
                'the service in services.yaml')


def answer_of(end: InferEnd, numbers: bool = True) -> bytes | str:
    """Return what a client is sent: bytes of outputs, or a text that says why there are none."""
    if end.fate is not InferFate.IN_TIME:
        text: dict[str, Any] = {'fate': end.fate.value, 'reason': end.reason, 'site': end.site}
        if math.isfinite(end.finished):
            text['finished_ms'] = round(1e3 * end.finished, 3)
        if end.fate is InferFate.REFUSED and math.isfinite(end.retry_after):
            text['retry_after_ms'] = round(1e3 * end.retry_after, 3)
        return json.dumps(text)
    answer: dict[str, Any] = dict(end.tensors)
    if numbers:
        answer['server_timing'] = {'infer_ms': 1e3 * end.compute}
        answer['serving'] = {
            'site': end.site, 'batch': end.batch, 'queue_ms': 1e3 * end.queue,
            'compute_ms': 1e3 * end.compute, 'predicted_ms': 1e3 * end.predicted,
            'finished_ms': 1e3 * end.finished}
    return pack(answer)


class PolicySockets:
    """An ASGI application for web sockets; `web/guard.py: Guard` belongs around it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self._services = {service.name: service for service in gateway.services}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one connection."""
        await receive()  # that it is being opened
        try:
            asked = asked_by(scope['path'], scope.get('query_string', b''))
            if asked.service not in self._services:
                raise BadObservationError(
                    f'service {asked.service[:64]!r} is not served; there are '
                    f'{", ".join(self._services)}')
        except BadObservationError as error:
            # before it is accepted a client would see a status without the reason
            await send({'type': 'websocket.accept'})
            await send(closed(1008, str(error)))
            return
        await send({'type': 'websocket.accept'})
        await send({'type': 'websocket.send', 'bytes': pack(self._described(asked.service))})
        await _Connection(self._gateway, asked, self._services[asked.service].ignore,
                          str(scope.get('client_name', '')),
                          Unread(scope.get('state', {}).get('share')), receive, send).serve()

    def _described(self, name: str) -> dict[str, Any]:
        """Return how a service is described to a client that connects."""
        service, specs = self._services[name], self._gateway.specs(name)
        return {'service': name, 'deadline_ms': 1e3 * service.deadline, 'ready': specs is not None,
                **{what: {s.name: f'{s.dtype} {"x".join(map(str, s.shape))}'
                          for s in getattr(specs or service, what)}
                   for what in ('inputs', 'outputs')}}


class _Connection:
    def __init__(self, gateway: Gateway, asked: Asked, ignore: tuple[str, ...], client: str,
                 unread: Unread, receive: Receive, send: Send) -> None:
        self._gateway, self._asked, self._ignore = gateway, asked, ignore
        self._client, self._unread, self._receive, self._send = client, unread, receive, send
        self._stream, self._frame = f'socket {next(_connections)}', 0
        self._loop = asyncio.get_running_loop()
        self._answers: asyncio.Queue[tuple[asyncio.Future[bytes | str], Callable[[], None]]] = \
            asyncio.Queue()
        self._room = asyncio.Semaphore(IN_FLIGHT)
        self._open: dict[int, Callable[[], None]] = {}

    async def serve(self) -> None:
        """Serve until the client goes, and withdraw what it then has in flight."""
        writer = asyncio.create_task(self._write())
        try:
            while await self._has_room(writer):
                message = await self._receive()
                if message['type'] != 'websocket.receive':
                    return
                await self._take(message, time.monotonic())
        finally:
            writer.cancel()
            self._unread.close()
            for withdraw in list(self._open.values()):
                withdraw()

    async def _has_room(self, writer: asyncio.Task[None]) -> bool:
        """Wait until one more message may be in flight; False if answers cannot be sent."""
        room = asyncio.ensure_future(self._room.acquire())
        try:
            await asyncio.wait((room, writer), return_when=asyncio.FIRST_COMPLETED)
            return not writer.done()
        finally:
            room.cancel()

    async def _take(self, message: Message, came: float) -> None:
        answer: asyncio.Future[bytes | str] = self._loop.create_future()
        self._answers.put_nowait((answer, message.pop('release', _nothing)))
        data = message.get('bytes')
        self._frame += 1
        frame = self._frame
        try:
            if data is None:
                raise BadObservationError('send observations as bytes, in MessagePack')
            request = await self._request(data, frame)
        except BadObservationError as error:
            self._keep(answer, json.dumps({'fate': 'refused', 'reason': str(error)}))
            return
        if request is None:
            self._keep(answer, pack({}))
            return

        def heard(end: InferEnd) -> None:
            with suppress(RuntimeError):  # the loop has ended, and with it the client
                self._loop.call_soon_threadsafe(self._answered, frame, answer, end)
        self._open[frame] = _nothing
        withdraw = self._gateway.submit(replace(request, remaining=max(
            0.0, request.remaining - (time.monotonic() - came))), heard)
        if frame in self._open:
            self._open[frame] = withdraw

    async def _request(self, data: bytes, frame: int) -> InferRequest | None:
        """Return the request that a message is; None for one that only marks an episode."""
        more = {'client': self._client, 'stream': self._stream, 'frame': frame}
        if len(data) > LARGE:
            return await asyncio.to_thread(request_of, data, self._asked, self._ignore, **more)
        if len(data) < 4096 and b'__ctrl__' in data:
            return None
        return request_of(data, self._asked, self._ignore, **more)

    def _answered(self, frame: int, answer: asyncio.Future[bytes | str], end: InferEnd) -> None:
        self._open.pop(frame, None)
        if not answer.done():
            self._keep(answer, answer_of(end))

    def _keep(self, answer: asyncio.Future[bytes | str], data: bytes | str) -> None:
        answer.set_result(data if self._unread.take(data) else _NOT_READ)

    async def _write(self) -> None:
        with suppress(OSError):  # the client has gone
            while True:
                coming, release = await self._answers.get()
                answer = await coming
                kind = 'text' if isinstance(answer, str) else 'bytes'
                await self._send({'type': 'websocket.send', kind: answer})
                if answer is not _NOT_READ:
                    self._unread.give(answer)
                release()
                self._room.release()


def _nothing() -> None:
    return
