# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The way between the gateways of two sites: requests there, ends and state rows back.

One web socket for each direction of asking.  Messages are lists in MessagePack, the first entry
says what they are.  Who asks connects, and connects anew until the other is there.  A gateway
that says nothing for a second is gone, and what was sent there is placed anew.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
import itertools
import logging
import math
import threading
import time
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from intradp_ros.core.limits import within
from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.systems.serving.gateway import Gateway, Heard
from intradp_ros.systems.serving.site_kernels.dispatch import MAX_HOPS
from intradp_ros.systems.serving.state_row import StateRow
from intradp_ros.web.connections import Receive, Send
from intradp_ros.web.tensor_messages import pack, TensorMessageError, unpack

_LOG = logging.getLogger(__name__)
PATH = '/sites'
#: Seconds between state rows, without a word after which a site is gone, and between attempts.
ROW_PERIOD, SILENCE, ATTEMPT = 0.1, 1.0, 0.25
#: Bytes of a message, and requests of one site that may be in flight here.
MAX_MESSAGE, IN_FLIGHT = 64 << 20, 4096
_ASK, _STOP, _ROW, _END, _PING = 'ask', 'stop', 'row', 'end', 'ping'


def ask_message(number: int, request: InferRequest, path: Sequence[str]) -> bytes:
    """Return a request as a message."""
    return pack([_ASK, number, request.service, request.remaining, request.priority,
                 request.client, request.number, list(path), dict(request.tensors)])


def asked(message: Sequence[Any]) -> tuple[int, InferRequest, tuple[str, ...]]:
    """Return number, request and path of a message; ValueError if it has none."""
    _, number, service, remaining, priority, client, chance, path, tensors = message
    if not isinstance(tensors, dict) or not all(
            hasattr(tensor, 'dtype') for tensor in tensors.values()):
        raise ValueError('a request without arrays')
    within('number', number, 0, (1 << 63) - 1)
    within('priority', priority, -(1 << 20), 1 << 20)
    return int(number), InferRequest(
        _text(service), tensors, float(remaining), int(priority), _text(client),
        number=int(within('number of chance', chance, 0, (1 << 63) - 1))), _path(path)


def end_message(number: int, end: InferEnd, row: StateRow) -> bytes:
    """Return an end as a message, with the state row of who sends it."""
    return pack([_END, number, end.fate.value, end.reason, end.retry_after, end.queue, end.compute,
                 end.batch, end.site, list(end.path), dict(end.tensors), _packed_row(row)])


def end_of(message: Sequence[Any]) -> tuple[int, InferEnd, StateRow]:
    """Return number, end and row of a message; ValueError if it has none."""
    _, number, fate, reason, retry, queue, compute, batch, site, path, tensors, row = message
    if not isinstance(tensors, dict) or not all(
            hasattr(tensor, 'dtype') for tensor in tensors.values()):
        raise ValueError('an end without arrays')
    return int(number), InferEnd(
        InferFate(fate), _text(reason, 2000), tensors, float(retry), queue=float(queue),
        compute=float(compute), batch=int(batch), site=_text(site), path=_path(path)), _row(row)


def _text(value: Any, most: int = 256) -> str:
    if not isinstance(value, str):
        raise ValueError('a text is missing')
    return value[:most]


def _path(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > 64:
        raise ValueError('a path is a short list of sites')
    return tuple(_text(name) for name in value)


def _packed_row(row: StateRow) -> dict[str, list[float]]:
    return {name: [round(n, 6) for n in numbers] for name, numbers in row.services.items()}


def _row(value: Any) -> StateRow:
    if not isinstance(value, dict) or not all(
            isinstance(numbers, list) and len(numbers) == 3 for numbers in value.values()):
        raise ValueError('a row has three numbers for each service')
    return StateRow({name: (float(a), float(b), float(c)) for name, (a, b, c) in value.items()})


class SiteSockets:
    """The ASGI application at which other gateways ask; `Guard` belongs around it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one gateway until it goes; what it then has in flight is withdrawn."""
        await receive()
        await send({'type': 'websocket.accept'})
        loop = asyncio.get_running_loop()
        out: asyncio.Queue[bytes] = asyncio.Queue()
        in_flight: dict[int, Callable[[], None]] = {}
        tasks = [asyncio.create_task(_write(out, send)), asyncio.create_task(self._rows(out))]
        try:
            while (message := await receive())['type'] == 'websocket.receive':
                try:
                    self._hear(unpack(message.get('bytes') or b''), loop, out, in_flight)
                except (TensorMessageError, ValueError, TypeError, OverflowError) as error:
                    _LOG.warning('a message of another gateway is not understood: %s', error)
                    return
        finally:
            for task in tasks:
                task.cancel()
            for withdraw in list(in_flight.values()):
                withdraw()

    def _hear(self, message: Any, loop: asyncio.AbstractEventLoop, out: asyncio.Queue[bytes],
              in_flight: dict[int, Callable[[], None]]) -> None:
        kind = message[0]
        if kind == _PING:
            out.put_nowait(pack([_ROW, float(message[1]), _packed_row(self._gateway.row())]))
        elif kind == _STOP:
            if withdraw := in_flight.pop(int(message[1]), None):
                withdraw()
        elif kind == _ASK and len(in_flight) < IN_FLIGHT:
            number, request, path = asked(message)
            in_flight[number] = _nothing

            def done(data: bytes) -> None:
                in_flight.pop(number, None)
                out.put_nowait(data)

            def heard(end: InferEnd) -> None:
                data = end_message(number, end, self._gateway.row())
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(done, data)
            withdraw = self._gateway.forwarded(request, path[:MAX_HOPS + 1], heard)
            if number in in_flight:
                in_flight[number] = withdraw
        else:
            raise ValueError(f'unknown message {str(kind)[:20]!r}')

    async def _rows(self, out: asyncio.Queue[bytes]) -> None:
        while True:
            if out.qsize() < 8:
                out.put_nowait(pack([_ROW, math.nan, _packed_row(self._gateway.row())]))
            await asyncio.sleep(ROW_PERIOD)


async def _write(out: asyncio.Queue[bytes], send: Send) -> None:
    while True:
        await send({'type': 'websocket.send', 'bytes': await out.get()})


class SiteLinks:
    """Connections of a gateway to those of other sites, on a thread of its own."""

    def __init__(self, gateway: Gateway, addresses: Mapping[str, str], key: str = '') -> None:
        """Connect to sites by their addresses, ``HOST:PORT`` or a whole ``ws://`` or ``wss://``."""
        self._gateway, self._key = gateway, key
        self._loop = asyncio.new_event_loop()
        self._addresses = dict(addresses)
        self._thread = threading.Thread(target=self._run, name='site-links', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End all connections."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        tasks = [self._loop.create_task(self._keep(site, address))
                 for site, address in self._addresses.items()]
        self._loop.run_forever()
        for task in tasks:
            task.cancel()
        self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        self._loop.close()

    async def _keep(self, site: str, address: str) -> None:
        uri = address if '://' in address else f'ws://{address}'
        headers = {'Authorization': f'Bearer {self._key}'} if self._key else {}
        said = ''
        while True:
            try:
                async with connect(f'{uri}{PATH}', compression=None, max_size=MAX_MESSAGE,
                                   open_timeout=SILENCE, ping_interval=None,
                                   close_timeout=SILENCE, additional_headers=headers,
                                   proxy=None) as socket:
                    said = ''
                    _LOG.info('connected to site %s', site)
                    await _Asking(site, self._gateway, socket).serve()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                cause = f'{type(error).__name__}: {error}'
                if cause != said:
                    _LOG.warning('site %s at %s: %s', site, address, cause)
                said = cause
            await asyncio.sleep(ATTEMPT)


class _Asking:
    """The side that asks, of one connection; it is the gateway's `Link`."""

    def __init__(self, site: str, gateway: Gateway, socket: ClientConnection) -> None:
        self._site, self._gateway, self._socket = site, gateway, socket
        self._loop = asyncio.get_running_loop()
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self._numbers = itertools.count(1)
        self._heard: dict[int, Heard] = {}
        self._hop = 0.0
        self._linked = False

    def send(self, request: InferRequest, path: Sequence[str], heard: Heard,
             ) -> Callable[[], None]:
        """Send a request; see `Link`."""
        number = next(self._numbers)
        self._heard[number] = heard
        self._put(ask_message(number, request, path))

        def withdraw() -> None:
            if self._heard.pop(number, None):
                self._put(pack([_STOP, number]))
        return withdraw

    def _put(self, data: bytes) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._out.put_nowait, data)

    async def serve(self) -> None:
        """Serve until the connection ends."""
        tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._ping())]
        try:
            while True:
                data = await asyncio.wait_for(self._socket.recv(), SILENCE)
                try:
                    self._hear(unpack(data if isinstance(data, bytes) else b''))
                except (TensorMessageError, ValueError, TypeError, OverflowError) as error:
                    _LOG.warning('a message of site %s is not understood: %s', self._site, error)
                    return
        finally:
            for task in tasks:
                task.cancel()
            self._gateway.unlinked(self._site)

    def _hear(self, message: Any) -> None:
        kind = message[0]
        if kind == _ROW:
            sent = float(message[1])
            if sent == sent:
                way = max(0.0, time.monotonic() - sent) / 2
                self._hop = way if not self._linked else min(way, 0.8 * self._hop + 0.2 * way)
                if not self._linked:
                    self._linked = True
                    self._gateway.linked(self._site, self)
            if self._linked:
                self._gateway.heard_row(self._site, _row(message[2]), self._hop)
        elif kind == _END:
            number, end, row = end_of(message)
            self._gateway.heard_row(self._site, row, self._hop)
            if heard := self._heard.pop(number, None):
                heard(end)
        else:
            raise ValueError(f'unknown message {str(kind)[:20]!r}')

    async def _write(self) -> None:
        with suppress(WebSocketException, OSError):
            while True:
                await self._socket.send(await self._out.get())

    async def _ping(self) -> None:
        while True:
            self._out.put_nowait(pack([_PING, time.monotonic()]))
            await asyncio.sleep(5 * ROW_PERIOD)


def _nothing() -> None:
    return
