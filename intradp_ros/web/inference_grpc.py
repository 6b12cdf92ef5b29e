# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The Open Inference Protocol v2 over gRPC: ``inference.GRPCInferenceService``, for Triton's clients.

Calls are taken as streams of one message, so that keys and limits of clients are looked at before
a body is read; what is compressed is refused by gRPC.  It bounds all connections only, so that
idle ones of a stranger would keep others out: the port is a `_Door`, which counts them as
`connections.py` does, and carries them to gRPC.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import closing, suppress
import itertools
import logging
import math
import os
import socket
from tempfile import TemporaryDirectory
import threading
import time
from typing import Any
from urllib.parse import unquote

from intradp_ros.core.extras import pip_install
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits, Life
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web.access import Clients
from intradp_ros.web.connections import Listener
from intradp_ros.web.inference_messages import (
    answer_message,
    CLASSES,
    infer_message,
    model_of,
    PACKAGE,
    parsed,
    SERVICE,
)
from intradp_ros.web.inference_protocol import described, InferBody, ProtocolError
from intradp_ros.web.inference_routes import LARGE, PATH
from intradp_ros.web.submitted import submitted

try:
    import grpc
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'gRPC needs grpcio: {pip_install("serving")}',
                              name='grpc') from error

_LOG = logging.getLogger(__name__)
#: Calls in flight of all clients, and bytes of headers.
IN_FLIGHT, MAX_HEADERS = 1024, 8 << 10
#: Connections, which may be without a call for long, and the files that each takes.
LIMITS, FILES = ConnectionLimits(head=300.0, idle=300.0), 3
#: Bytes that are carried at once.
PART = 1 << 16
#: Seconds that open calls have when the server closes.
GRACE = 1.0
_STATUS = {InferFate.REFUSED: grpc.StatusCode.UNAVAILABLE,
           InferFate.LATE: grpc.StatusCode.DEADLINE_EXCEEDED,
           InferFate.CANCELLED: grpc.StatusCode.CANCELLED}
_OF_CLIENT = {401: grpc.StatusCode.UNAUTHENTICATED, 503: grpc.StatusCode.UNAVAILABLE}


class _CallError(Exception):
    """A call that gets a status in place of an answer; `more` are its trailing metadata."""

    def __init__(self, status: grpc.StatusCode, text: str, more: Mapping[str, str] | None = None,
                 ) -> None:
        super().__init__(text)
        self.status, self.more = status, more or {}


class _Door:
    """
    A port whose connections are carried to gRPC, which is at `inside`; used by one loop.

    :raises OSError: if the address or port cannot be had.
    """

    def __init__(self, address: str, port: int) -> None:
        self._listener = Listener.at(address, port, LIMITS.within_files(FILES))
        self.port: int = self._listener.getsockname()[1]
        self._folder = TemporaryDirectory(prefix='intradp-')  # nobody else may look into it
        self.inside = f'{self._folder.name}/grpc'
        self._numbers = itertools.count()
        self._known: dict[str, tuple[str, Life | None]] = {}
        self._carried = set[asyncio.Task[None]]()

    async def open(self) -> None:
        """Let connections come."""
        self._server = await asyncio.start_server(self._came, sock=self._listener)

    async def close(self) -> None:
        """Let none come, and end all."""
        self._server.close()
        for task in (tasks := list(self._carried)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._folder.cleanup()

    def of(self, peer: str) -> tuple[str, Life | None]:
        """Return the address and the connection of what gRPC calls a peer."""
        return self._known.get(unquote(peer), ('local', None))

    def _came(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._carried.add(task := asyncio.ensure_future(self._carry(reader, writer)))
        task.add_done_callback(self._carried.discard)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = f'{self._folder.name}/{next(self._numbers)}'
        with closing(writer), suppress(OSError):
            life = self._listener.of_stream(writer)
            if life is None:
                return
            with socket.socket(socket.AF_UNIX) as inner:
                inner.setblocking(False)
                inner.bind(name)
                self._known[f'unix:{name}'] = str(writer.get_extra_info('peername')[0]), life
                try:
                    await asyncio.get_running_loop().sock_connect(inner, self.inside)
                    answers, calls = await asyncio.open_unix_connection(sock=inner)
                    with closing(calls):
                        await self._both(_pass(reader, calls), _pass(answers, writer, life))
                finally:
                    del self._known[f'unix:{name}']
                    os.unlink(name)

    async def _both(self, *ways: Coroutine[Any, Any, None]) -> None:
        """Carry bytes both ways until one end is gone."""
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                life: Life | None = None) -> None:
    """Carry bytes one way, as fast as they are taken."""
    while data := await reader.read(PART):
        writer.write(data)
        if life:
            life.sending = asyncio.get_running_loop().time()
        await writer.drain()
        if life:
            life.sending = None


class InferenceGrpc:
    """Serves a gateway from when it is made until `close`, on a thread of its own."""

    def __init__(self, gateway: Gateway, address: str, port: int, clients: Clients) -> None:
        """
        Bind and serve; port 0 takes a free one (`port` says which).

        :raises OSError: if the address or port cannot be had.
        """
        self._gateway, self._clients = gateway, clients
        self._limits = clients.limits.of(f'{PATH}/models')
        self._services = {service.name: service for service in gateway.services}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name='grpc', daemon=True)
        self._thread.start()
        try:
            self._door = _Door(address, port)
            self.port = self._door.port
            asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()
        except (OSError, RuntimeError) as error:  # as grpc says it
            self._end()
            place = f'[{address}]' if ':' in address else address
            raise OSError(f'gRPC cannot listen on {place}:{port}: {error}') from None

    async def _start(self) -> None:
        self._server = grpc.aio.server(maximum_concurrent_rpcs=IN_FLIGHT, options=(
            ('grpc.max_receive_message_length', self._limits.body),
            ('grpc.max_send_message_length', -1), ('grpc.max_metadata_size', MAX_HEADERS),
            ('grpc.absolute_max_metadata_size', MAX_HEADERS),
            ('grpc.max_concurrent_streams', self._clients.limits.in_flight),
            ('grpc.keepalive_time_ms', 20_000), ('grpc.keepalive_timeout_ms', 20_000),
            # a small message may be gigabytes once it is decompressed
            ('grpc.compression_enabled_algorithms_bitset', 1), ('grpc.so_reuseport', 0)))
        calls: Mapping[str, Callable[[bytes, float, str, Any], Awaitable[bytes]]] = {
            'ServerLive': self._live, 'ServerReady': self._ready, 'ModelReady': self._model_ready,
            'ServerMetadata': self._metadata, 'ModelMetadata': self._model_metadata,
            'ModelInfer': self._infer}
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(
            f'{PACKAGE}.{SERVICE}', {name: grpc.stream_unary_rpc_method_handler(
                self._guarded(call)) for name, call in calls.items()}),))
        self._server.add_insecure_port(f'unix:{self._door.inside}')
        await self._server.start()
        await self._door.open()

    def close(self) -> None:
        """End open calls and free the port."""
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._end()

    async def _close(self) -> None:
        await self._server.stop(GRACE)
        await self._door.close()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _guarded(self, call: Callable[[bytes, float, str, Any], Awaitable[bytes]],
                 ) -> Callable[[Any, Any], Awaitable[bytes]]:
        """Return a call with the limits of clients around it."""
        async def run(_: Any, context: Any) -> bytes:
            came = time.monotonic()
            headers = dict(context.invocation_metadata() or ())
            address, life = self._door.of(context.peer())
            client, refused = self._clients.enter(address, str(headers.get('authorization', '')))
            entered, held = refused is None, 0
            if life:
                life.begin()
            try:
                if refused is None:
                    body = await self._body(context)
                    refused = self._clients.hold(client, len(body))
                if refused is not None:
                    self._clients.reject(refused.cause)
                    raise _CallError(
                        _OF_CLIENT.get(refused.status, grpc.StatusCode.RESOURCE_EXHAUSTED),
                        refused.text, {'retry-after-ms': str(round(1e3 * refused.wait))}
                        if refused.wait else {})
                held = len(body)
                return await call(body, came, client, context)
            except ProtocolError as error:
                await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except _CallError as error:
                await _abort(context, error.status, str(error), error.more)
            finally:
                self._clients.hold(client, -held)
                if life:
                    life.end(self._loop.time())
                if entered:
                    self._clients.leave(client)
            raise AssertionError('an aborted call goes on')
        return run

    async def _body(self, context: Any) -> bytes:
        seconds = self._limits.seconds
        try:
            body = await asyncio.wait_for(context.read(), seconds)
        except asyncio.TimeoutError:
            self._clients.reject('size')
            raise _CallError(grpc.StatusCode.DEADLINE_EXCEEDED,
                             f'a body sent within {seconds:g} s is taken') from None
        if not isinstance(body, bytes):
            raise ProtocolError('the call brings no message')
        return body

    async def _live(self, body: bytes, *_: Any) -> bytes:
        return _said('ServerLiveResponse', live=True)

    async def _ready(self, body: bytes, *_: Any) -> bytes:
        return _said('ServerReadyResponse',
                     ready=any(self._gateway.specs(name) for name in self._services))

    async def _metadata(self, body: bytes, *_: Any) -> bytes:
        return _said('ServerMetadataResponse', name='intradp_ros', version='2')

    async def _model_ready(self, body: bytes, *_: Any) -> bytes:
        name = parsed('ModelReadyRequest', body).name
        return _said('ModelReadyResponse', ready=self._gateway.specs(name) is not None)

    async def _model_metadata(self, body: bytes, *_: Any) -> bytes:
        asked = parsed('ModelMetadataRequest', body)
        return _said('ModelMetadataResponse',
                     **described(asked.name, *self._specs(asked.name, asked.version)))

    def _specs(self, name: str, version: str = '') -> Any:
        """Return what a model takes and gives."""
        service = self._services.get(name)
        if service is None or version not in ('', '1'):
            raise _CallError(
                grpc.StatusCode.NOT_FOUND, f'model {name[:64]!r}, version {version[:9] or 1}, is '
                f'not served; there are {", ".join(self._services)}, of version 1')
        found = self._gateway.specs(name) or service
        if not found.inputs:
            raise _CallError(grpc.StatusCode.UNAVAILABLE,
                             f'model {name!r}: {self._gateway.lacking(name)}')
        return found.inputs, found.outputs

    async def _infer(self, body: bytes, came: float, client: str, context: Any) -> bytes:
        """Answer a request; one whose client goes is withdrawn."""
        name, version = model_of(body)
        inputs, _ = self._specs(name, version)
        said = infer_message(body, inputs) if len(body) < LARGE else \
            await asyncio.to_thread(infer_message, body, inputs)
        del body
        end = await self._ended(name, said, came, client, context)
        if end.fate is InferFate.IN_TIME:
            return answer_message(name, said, end)
        more = {'fate': end.fate.value, 'site': end.site}
        if end.fate is InferFate.REFUSED and math.isfinite(end.retry_after):
            more['retry-after-ms'] = f'{1e3 * end.retry_after:.3f}'
        raise _CallError(_STATUS[end.fate], end.reason, more)

    async def _ended(self, name: str, said: InferBody, came: float, client: str, context: Any,
                     ) -> InferEnd:
        limit = said.timeout if math.isfinite(said.timeout) else self._services[name].deadline
        left = min(limit + came - time.monotonic(), _left(context))
        ended, withdraw = submitted(self._gateway, InferRequest(
            name, said.tensors, max(0.0, left), said.priority, client))
        try:
            return await ended
        finally:
            withdraw()


def _left(context: Any) -> float:
    """Return the seconds that a client waits, infinite where it says none."""
    left = context.time_remaining()
    return math.inf if left is None else float(left)


def _said(kind: str, **fields: Any) -> bytes:
    data: bytes = CLASSES[kind](**fields).SerializeToString()
    return data


async def _abort(context: Any, status: Any, text: str, more: Mapping[str, str] | None = None,
                 ) -> None:
    await context.abort(status, text, tuple((more or {}).items()))
