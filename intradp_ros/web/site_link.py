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
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
import itertools
import logging
import math
import time
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from intradp_ros.core.limits import MAX_SECONDS, within
from intradp_ros.runtime.requests.infer_requests import (
    InferEnd,
    InferFate,
    InferRequest,
    MAX_NAME,
    MAX_PRIORITY,
    MAX_TENSORS,
)
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.systems.serving.held_requests import Heard
from intradp_ros.systems.serving.service import LARGEST_BATCH
from intradp_ros.systems.serving.site_kernels.dispatch import MAX_HOPS
from intradp_ros.systems.serving.state_row import StateRow
from intradp_ros.web.connections import (
    accept_peer,
    check_peer,
    closed,
    peer_headers,
    Receive,
    Send,
)
from intradp_ros.web.loop_thread import LoopThread
from intradp_ros.web.tensor_messages import pack, unpack
from intradp_ros.web.web_socket import NOT_READ, Unread

_LOG = logging.getLogger(__name__)
PATH = '/sites'
#: Seconds between state rows, without a word after which a site is gone, and between attempts.
ROW_PERIOD, SILENCE, ATTEMPT = 0.1, 1.0, 0.25
#: Bytes of a message, and requests of one site that may be in flight here.
MAX_MESSAGE, IN_FLIGHT = 64 << 20, 4096
#: Messages that wait to be sent to a site, which then is not heard; bytes parsed elsewhere.
MOST_UNSENT, LARGE = 1024, 1 << 20
#: Of the clock of the machine that asks.
MAX_TIME = 1e12
_FATES = frozenset(fate.value for fate in InferFate)
_ASK, _STOP, _ROW, _END, _PING = 'ask', 'stop', 'row', 'end', 'ping'


def ask_message(number: int, request: InferRequest, path: Sequence[str]) -> bytes:
    """Return a request as a message."""
    return pack([_ASK, number, request.service, request.remaining, request.priority,
                 request.client, request.number, request.deaths, list(path),
                 dict(request.tensors)])


def asked(data: bytes) -> tuple[str, Any]:
    """
    Return what a gateway that asks says: ask, stop or ping, and what of it.

    :raises ValueError: if it is not a message; the text says why.
    """
    match _message(data):
        case ['ping', sent]:
            return _PING, _real(sent, 'time')
        case ['stop', number]:
            return _STOP, _whole(number, 'number')
        case ['ask', number, service, remaining, priority, client, chance, deaths, path,
              tensors]:
            return _ASK, (_whole(number, 'number'), InferRequest(
                _text(service), _arrays(tensors), _real(remaining, 'remaining', math.inf),
                _whole(priority, 'priority', -MAX_PRIORITY, MAX_PRIORITY), _text(client),
                number=_whole(chance, 'number of chance'), deaths=_whole(deaths, 'deaths')),
                _path(path, MAX_HOPS + 1))
    raise ValueError('it is not an ask, stop or ping with what belongs to it')


def end_message(number: int, end: InferEnd, row: StateRow) -> bytes:
    """Return an end as a message, with the state row of who sends it."""
    return pack([_END, number, end.fate.value, end.reason[:2000], _finite(end.retry_after),
                 _finite(end.queue), _finite(end.compute), end.batch, end.site, end.deaths,
                 list(end.path), dict(end.tensors), _packed_row(row)])


def answered(data: bytes) -> tuple[str, Any]:
    """
    Return what a gateway that is asked says: a row, or the end of a request with one.

    :raises ValueError: if it is not a message; the text says why.
    """
    match _message(data):
        case ['row', sent, row]:
            return _ROW, (None if sent is None else _real(sent, 'time'), _row(row))
        case ['end', number, fate, reason, retry, queue, compute, batch, site, deaths, path,
              tensors, row]:
            if _text(fate) not in _FATES:
                raise ValueError(f'fate {str(fate)[:20]!r} is unknown')
            times = [None if time is None else _real(time, 'seconds', MAX_SECONDS)
                     for time in (retry, queue, compute)]
            return _END, (_whole(number, 'number'), InferEnd(
                InferFate(fate), _text(reason, 2000), _arrays(tensors),
                math.inf if times[0] is None else times[0],
                queue=math.nan if times[1] is None else times[1],
                compute=math.nan if times[2] is None else times[2],
                batch=_whole(batch, 'rows', 0, LARGEST_BATCH), site=_text(site),
                path=_path(path), deaths=_whole(deaths, 'deaths')), _row(row))
    raise ValueError('it is not a row or an end with what belongs to it')


def _message(data: bytes) -> list[Any]:
    found = unpack(data)
    if not isinstance(found, list) or not found or not isinstance(found[0], str):
        raise ValueError('it is not a list that begins with a word')
    return found


def _arrays(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or len(value) > MAX_TENSORS or not all(
            isinstance(tensor, np.ndarray) and 0 < len(name) <= MAX_NAME
            for name, tensor in value.items()):
        raise ValueError(f'tensors are not a map of at most {MAX_TENSORS} arrays')
    return value


def _whole(value: Any, what: str, low: int = 0, high: int = (1 << 63) - 1) -> int:
    if type(value) is not int:
        raise ValueError(f'{what} is not a whole number')
    return int(within(what, value, low, high))


def _real(value: Any, what: str, high: float = MAX_TIME) -> float:
    if type(value) not in (int, float):
        raise ValueError(f'{what} is not a number')
    return float(within(what, value, 0.0, high))


def _text(value: Any, most: int = MAX_NAME) -> str:
    if not isinstance(value, str) or len(value) > most:
        raise ValueError(f'a text of at most {most} characters is missing')
    return value


def _path(value: Any, most: int = 64) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > most:
        raise ValueError(f'a path is a list of at most {most} sites')
    return tuple(_text(name) for name in value)


def _packed_row(row: StateRow) -> dict[str, list[float]]:
    return {name: [round(n, 6) for n in numbers] for name, numbers in row.services.items()}


def _row(value: Any) -> StateRow:
    if not isinstance(value, dict) or not all(
            isinstance(numbers, list) and len(numbers) == 3 for numbers in value.values()):
        raise ValueError('a row has three numbers for each service')
    a, b, c = 'end', 'share', 'least'
    return StateRow({name: (_real(x, a), _real(y, b), _real(z, c))
                     for name, (x, y, z) in value.items()})


def _finite(seconds: float) -> float | None:
    return min(seconds, MAX_SECONDS) if math.isfinite(seconds) else None


async def _read(data: bytes, parse: Callable[[bytes], tuple[str, Any]]) -> tuple[str, Any]:
    """Return what a message says; large ones are read on another thread."""
    return parse(data) if len(data) < LARGE else await asyncio.to_thread(parse, data)


class SiteSockets:
    """The ASGI application at which other gateways ask; `Guard` belongs around it."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        #: How many each has in flight, with all its connections.
        self._open = Counter[str]()
        #: What was said last of each that is not understood.
        self._said: dict[str, str] = {}

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve one gateway until it goes; what it then has in flight is withdrawn."""
        await receive()
        accepted, why = accept_peer(scope)
        await send(accepted)
        out: asyncio.Queue[tuple[bytes, bool]] = asyncio.Queue()
        unread, client = Unread(scope.get('state', {}).get('share')), str(scope.get(
            'client_name', ''))
        if why:
            await self._refuse(client, why, send)
            return
        in_flight: dict[int, Callable[[], None]] = {}
        tasks = [asyncio.create_task(_write(out, unread, send)),
                 asyncio.create_task(self._rows(out))]
        try:
            while (message := await receive())['type'] == 'websocket.receive':
                try:
                    kind, said = await _read(message.get('bytes') or b'', asked)
                    self._hear(kind, said, client, out, unread, in_flight)
                except ValueError as error:
                    await self._refuse(client, f'a message of it is not taken: {error}', send)
                    return
                while out.qsize() > MOST_UNSENT:  # who does not take answers is not heard
                    await asyncio.sleep(ROW_PERIOD)
        finally:
            for task in tasks:
                task.cancel()
            unread.close()
            for number in list(in_flight):
                self._over(client, in_flight, number)()

    async def _refuse(self, client: str, why: str, send: Send) -> None:
        """End a connection, and say why once: the other gateway tries on."""
        if self._said.get(client) != why:
            _LOG.warning('the gateway %s, which asks here: %s', client, why)
        self._said[client] = why
        with suppress(Exception):  # it has gone
            await send(closed(1008, f'to {self._gateway.site}: {why}'))

    def _over(self, client: str, in_flight: dict[int, Callable[[], None]], number: int,
              ) -> Callable[[], None]:
        """Count a request no more; return what withdraws it."""
        self._open[client] -= number in in_flight
        return in_flight.pop(number, _nothing)

    def _hear(self, kind: str, said: Any, client: str, out: asyncio.Queue[tuple[bytes, bool]],
              unread: Unread, in_flight: dict[int, Callable[[], None]]) -> None:
        if kind == _PING:
            out.put_nowait((pack([_ROW, said, _packed_row(self._gateway.row())]), False))
        elif kind == _STOP:
            self._over(client, in_flight, said)()
        else:
            number, request, path = said
            # who asks may not use up what a client of this site may have in flight
            request = replace(request, client=f'{client}, {request.client}'[:MAX_NAME])
            if number in in_flight or self._open[client] >= IN_FLIGHT:
                raise ValueError(f'request {number} is in flight, or {IN_FLIGHT} are')
            if self._gateway.site in path:
                raise ValueError(f'request {number} has been here before')
            if client in self._gateway.neighbours.others:  # whose key it is, it was there
                path = tuple(dict.fromkeys((*path, client)))
            in_flight[number] = _nothing
            self._open[client] += 1

            def done(data: bytes) -> None:
                self._over(client, in_flight, number)
                taken = unread.take(data)
                out.put_nowait((data if taken else end_message(
                    number, InferEnd(InferFate.LATE, NOT_READ), StateRow()), taken))
            loop = asyncio.get_running_loop()

            def heard(end: InferEnd) -> None:
                data = end_message(number, end, self._gateway.row())
                with suppress(RuntimeError):  # the loop has ended
                    loop.call_soon_threadsafe(done, data)
            withdraw = self._gateway.forwarded(request, path, heard)
            if number in in_flight:
                in_flight[number] = withdraw

    async def _rows(self, out: asyncio.Queue[tuple[bytes, bool]]) -> None:
        while True:
            if out.qsize() < 8:
                out.put_nowait((pack([_ROW, None, _packed_row(self._gateway.row())]), False))
            await asyncio.sleep(ROW_PERIOD)


async def _write(out: asyncio.Queue[tuple[bytes, bool]], unread: Unread, send: Send) -> None:
    while True:
        data, taken = await out.get()
        await send({'type': 'websocket.send', 'bytes': data})
        if taken:
            unread.give(data)


class SiteLinks:
    """Connections of a gateway to those of other sites, on a thread of its own."""

    def __init__(self, gateway: Gateway, addresses: Mapping[str, str], key: str = '') -> None:
        """Connect to sites by their addresses, ``HOST:PORT`` or a whole ``ws://`` or ``wss://``."""
        self._gateway, self._key = gateway, key
        self._loop = LoopThread('site-links')
        self._keeping = [self._loop.begin(self._keep(*one)) for one in addresses.items()]

    def close(self) -> None:
        """End all connections."""
        self._loop.close()

    async def _keep(self, site: str, address: str) -> None:
        uri = address if '://' in address else f'ws://{address}'
        headers = peer_headers(self._key)
        said = ''
        while True:
            asking: _Asking | None = None
            try:
                async with connect(f'{uri}{PATH}', compression=None, max_size=MAX_MESSAGE,
                                   open_timeout=SILENCE, ping_interval=None,
                                   close_timeout=SILENCE, additional_headers=headers,
                                   proxy=None) as socket:
                    check_peer(socket.response)
                    asking = _Asking(site, self._gateway, socket)
                    await asking.serve()
            except ValueError as error:
                cause = str(error)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                answer = getattr(getattr(error, 'response', None), 'body', None)
                cause = f'{type(error).__name__}: {str(error) or "silent for too long"}' + (
                    f': {answer[:500]!r}' if answer else '')
            if cause != said or asking and asking.linked:
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
        self._newest = 0
        self._pinged: deque[float] = deque(maxlen=16)
        self._hop = 0.0
        #: Whether it has said something that is understood.
        self.linked = False

    def send(self, request: InferRequest, path: Sequence[str], heard: Heard,
             ) -> Callable[[], None]:
        """Send a request; see `Link`."""
        number = next(self._numbers)
        self._heard[number] = heard
        self._newest = number
        self._put(ask_message(number, request, path))

        def withdraw() -> None:
            if self._heard.pop(number, None):
                self._put(pack([_STOP, number]))
        return withdraw

    def _put(self, data: bytes) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._queued, data)

    def _queued(self, data: bytes) -> None:
        self._out.put_nowait(data)
        if self._out.qsize() == MOST_UNSENT:
            _LOG.warning('site %s takes nothing: the connection ends', self._site)
            self._ending = asyncio.ensure_future(self._socket.close())

    async def serve(self) -> None:
        """Serve until the connection ends, which raises; ValueError if a message is not valid."""
        tasks = [asyncio.create_task(self._write()), asyncio.create_task(self._ping())]
        try:
            while True:
                data = await asyncio.wait_for(self._socket.recv(), SILENCE)
                try:
                    self._hear(*await _read(data if isinstance(data, bytes) else b'', answered))
                except ValueError as error:
                    raise ValueError(f'a message of it is not taken: {error}') from None
        finally:
            for task in tasks:
                task.cancel()
            self._gateway.unlinked(self._site)

    def _hear(self, kind: str, said: Any) -> None:
        if kind == _ROW:
            sent, row = said
            if sent is not None:
                if sent not in self._pinged:
                    raise ValueError('it answers a ping that was not sent')
                way = max(0.0, time.monotonic() - sent) / 2
                self._hop = way if not self.linked else min(way, 0.8 * self._hop + 0.2 * way)
                if not self.linked:
                    self.linked = True
                    _LOG.info('connected to site %s', self._site)
                    self._gateway.linked(self._site, self)
            if self.linked:
                self._gateway.heard_row(self._site, row, self._hop)
            return
        number, end, row = said
        if number > self._newest:
            raise ValueError(f'it answers request {number}, which was not asked here')
        self._gateway.heard_row(self._site, row, self._hop)
        if heard := self._heard.pop(number, None):
            heard(end)

    async def _write(self) -> None:
        with suppress(WebSocketException, OSError):
            while True:
                await self._socket.send(await self._out.get())

    async def _ping(self) -> None:
        while True:
            self._pinged.append(time.monotonic())
            self._out.put_nowait(pack([_PING, self._pinged[-1]]))
            await asyncio.sleep(5 * ROW_PERIOD)


def _nothing() -> None:
    return
