# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The Open Inference Protocol v2 over gRPC: ``inference.GRPCInferenceService``, for Triton's clients.

Calls are taken as streams of one message, so that keys and limits of clients are looked at before
a body is read; what is compressed is refused by gRPC.  It bounds all connections and calls only,
so that those of a stranger would keep others out: the port is a `_Door`, which counts connections
as `connections.py` does, and carries them to gRPC, calls as they are looked at.  These count as
their client's until their answer has been taken; who takes none is cut.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import closing, suppress
from dataclasses import dataclass, field
import itertools
import logging
import math
import os
import socket
from tempfile import TemporaryDirectory
import time
from typing import Any
from urllib.parse import unquote
from weakref import WeakValueDictionary

from intradp_ros.core.extras import pip_install
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.runtime.transport.connection_limits import ConnectionLimits, Life
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.web.access import Clients, Refusal
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
from intradp_ros.web.loop_thread import LoopThread
from intradp_ros.web.submitted import submitted

# else gRPC writes a line for each call whose headers it does not take
os.environ.setdefault('GRPC_VERBOSITY', 'NONE')
try:
    import grpc

    from intradp_ros.web.http2_frames import Frames, goodbye, HeadersError
except ModuleNotFoundError as error:  # said with the command that brings it
    raise ModuleNotFoundError(f'gRPC needs grpcio and hpack: {pip_install("serving")}',
                              name=error.name) from error

_LOG = logging.getLogger(__name__)
# of answers whose client has gone
logging.getLogger('grpc._cython.cygrpc').addFilter(
    lambda record: 'ExecuteBatchError' not in record.getMessage())
#: Calls in flight of a connection, of which more wait at their client, and bytes of headers.
STREAMS, MAX_HEADERS = 100, 8 << 10
#: Bytes a second that a client takes of its answers, in addition to what `LIMITS` leave it.
SLOWEST = 1 << 16
#: Calls of a connection that nobody has looked at yet, and seconds after which it may send others.
AHEAD, UNSEEN = 4, 0.25
#: Messages of a client that are read at once: of others little is taken meanwhile.
READS = 4
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


@dataclass
class _Peer:
    """Who calls: an address and its connection, and how many calls of it were looked at."""

    address: str = 'local'
    life: Life | None = None
    looked: int = 0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    def look(self) -> None:
        """Note that a call is looked at."""
        self.looked += 1
        self.news.set()

    async def room(self, begun: int) -> int:
        """Wait until `begun` calls may have begun; return how many count as begun."""
        while begun > self.looked + AHEAD:
            self.news.clear()
            try:
                await asyncio.wait_for(self.news.wait(), UNSEEN)
            except asyncio.TimeoutError:  # withdrawn, or of no method
                return self.looked + 1
        return begun


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
        self._known: dict[str, _Peer] = {}
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

    def of(self, peer: str) -> _Peer:
        """Return who is what gRPC calls a peer."""
        return self._known.get(unquote(peer)) or _Peer()

    def cut(self, life: Life, cause: str) -> None:
        """End a connection with all its calls."""
        self._listener.cut(life, cause)

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
                peer = _Peer(str(writer.get_extra_info('peername')[0]), life)
                self._known[f'unix:{name}'] = peer
                try:
                    await asyncio.get_running_loop().sock_connect(inner, self.inside)
                    answers, calls = await asyncio.open_unix_connection(sock=inner)
                    try:
                        await self._both(self._ask(reader, calls, peer, writer),
                                         _answer(answers, writer, life))
                    finally:  # at once: the socket closes here, whatever waits to be written
                        calls.transport.abort()
                finally:
                    del self._known[f'unix:{name}']
                    os.unlink(name)

    async def _ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, peer: _Peer,
                   client: asyncio.StreamWriter) -> None:
        """Carry what a client asks as fast as its calls are looked at."""
        frames, begun = Frames(), 0
        while data := await reader.read(PART):
            carried = 0
            try:
                places = frames.calls(data)
            except HeadersError as error:
                self._listener.connections.rejected['headers'] += 1
                client.write(goodbye(str(error)))
                return
            for place in places:
                if (begun := begun + 1) > peer.looked + AHEAD:
                    writer.write(data[carried:place])
                    carried, begun = place, await peer.room(begun)
            writer.write(data[carried:])
            await writer.drain()

    async def _both(self, *ways: Coroutine[Any, Any, None]) -> None:
        """Carry bytes both ways until one end is gone."""
        tasks = [asyncio.ensure_future(way) for way in ways]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, life: Life) -> None:
    """Carry answers as fast as they are taken."""
    while data := await reader.read(PART):
        writer.write(data)
        life.sending = asyncio.get_running_loop().time()
        await writer.drain()
        life.sending = None


class _Call:
    """What a call holds of its client's share, until its answer has left or its client has."""

    def __init__(self, clients: Clients, door: _Door, context: Any) -> None:
        self._clients, self._door, self._held = clients, door, 0
        self._late: asyncio.TimerHandle | None = None
        peer = door.of(context.peer())
        peer.look()
        self._life = peer.life
        headers = dict(context.invocation_metadata() or ())
        self.client, self._refused = clients.enter(
            peer.address, str(headers.get('authorization', '')))
        if self._life:
            self._life.begin()
        context.add_done_callback(self._done)

    def check(self) -> None:
        """
        See that its client may ask.

        :raises _CallError: if it may not; a stranger who goes on asking is cut, too.
        """
        if self._refused:
            if self._refused.cause == 'no_key' and self._refused.wait:
                self._cut('no_key')
            self._refuse(self._refused)

    def hold(self, count: int) -> None:
        """Hold `count` bytes in place of those before; _CallError if these are too many."""
        if refused := self._clients.hold(self.client, count - self._held):
            self._refuse(refused)
        self._held = count

    def answers(self, size: int) -> None:
        """Hold an answer, and see that it is taken."""
        self.hold(size)
        self._late = asyncio.get_running_loop().call_later(
            LIMITS.stalled + size / SLOWEST, self._cut, 'stalled')

    def _cut(self, cause: str) -> None:
        if self._life:
            self._door.cut(self._life, cause)

    def _refuse(self, refused: Refusal) -> None:
        self._clients.reject(refused.cause)
        raise _CallError(
            _OF_CLIENT.get(refused.status, grpc.StatusCode.RESOURCE_EXHAUSTED), refused.text,
            {'retry-after-ms': str(round(1e3 * refused.wait))} if refused.wait else {})

    def _done(self, _: Any) -> None:
        if self._late:
            self._late.cancel()
        self._clients.hold(self.client, -self._held)
        if self._life:
            self._life.end(asyncio.get_running_loop().time())
        if self._refused is None:
            self._clients.leave(self.client)


class InferenceGrpc:
    """Serves a gateway from when it is made until `close`, on a thread of its own."""

    def __init__(self, gateway: Gateway, address: str, port: int, clients: Clients) -> None:
        """
        Bind and serve; port 0 takes a free one (`port` says which).

        :raises OSError: if the address or port cannot be had.
        """
        self._gateway, self._clients = gateway, clients
        self._limits = clients.limits.of(f'{PATH}/models')
        self._reads = WeakValueDictionary[str, asyncio.Semaphore]()
        self._services = {service.name: service for service in gateway.services}
        self._loop = LoopThread('grpc')
        try:
            self._door = _Door(address, port)
            self.port = self._door.port
            self._loop.run(self._start())
        except (OSError, RuntimeError) as error:  # as grpc says it
            self._loop.close()
            place = f'[{address}]' if ':' in address else address
            raise OSError(f'gRPC cannot listen on {place}:{port}: {error}') from None

    async def _start(self) -> None:
        self._server = grpc.aio.server(options=(
            ('grpc.max_receive_message_length', self._limits.body),
            ('grpc.max_send_message_length', -1), ('grpc.max_metadata_size', MAX_HEADERS),
            ('grpc.absolute_max_metadata_size', MAX_HEADERS),
            ('grpc.max_concurrent_streams', min(STREAMS, self._clients.limits.in_flight)),
            # as many as there may be: of more it would refuse anybody's
            *((f'grpc.server.max_pending_requests{kind}', LIMITS.total * STREAMS)
              for kind in ('', '_hard_limit')),
            ('grpc.http2.true_binary', 0),  # else values of "-bin" may be no ASCII
            ('grpc.http2.bdp_probe', 0),  # else it lets 4 MB come that nobody reads yet
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
        self._loop.run(self._close())
        self._loop.close()

    async def _close(self) -> None:
        await self._server.stop(GRACE)
        await self._door.close()

    def _guarded(self, call: Callable[[bytes, float, str, Any], Awaitable[bytes]],
                 ) -> Callable[[Any, Any], Awaitable[bytes]]:
        """Return a call with the limits of clients around it."""
        async def run(_: Any, context: Any) -> bytes:
            came, one = time.monotonic(), _Call(self._clients, self._door, context)
            try:
                one.check()
                body = await self._body(context, one.client)
                one.hold(len(body))
                answer = await call(body, came, one.client, context)
                one.answers(len(answer))
                return answer
            except ProtocolError as error:
                await _abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))
            except _CallError as error:
                await _abort(context, error.status, str(error), error.more)
            raise AssertionError('an aborted call goes on')
        return run

    async def _body(self, context: Any, client: str) -> bytes:
        seconds, few = self._limits.seconds, self._reads.get(client) or asyncio.Semaphore(READS)
        self._reads[client] = few  # as long as one waits

        async def read() -> Any:
            async with few:
                return await context.read()
        try:
            body = await asyncio.wait_for(read(), seconds)
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
        asked = parsed('ModelReadyRequest', body)
        return _said('ModelReadyResponse', ready=asked.version in ('', '1')
                     and self._gateway.specs(asked.name) is not None)

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
