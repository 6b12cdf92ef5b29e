# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A robot's client of gateways: one end for each request, also while it changes gateways.

It subtracts from the time of a request what the ways to the gateway and back have been seen to
take.  Where a gateway is lost, what it has not answered goes to the next one, if time is left.
"""
from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
import logging
import math
import time
from typing import Any

import numpy as np
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from intradp_ros.core.json_text import parse_json
from intradp_ros.runtime.requests.infer_requests import (
    CLOSING,
    InferEnd,
    InferFate,
    InferRequest,
)
from intradp_ros.runtime.requests.ways import in_time, Ways
from intradp_ros.web.loop_thread import LoopThread
from intradp_ros.web.tensor_messages import pack, TensorMessageError, unpack

_LOG = logging.getLogger(__name__)
#: Seconds to connect, between attempts, without an answer to a ping; bytes of an answer.
CONNECT, ATTEMPT, SILENCE, MAX_ANSWER = 2.0, 0.1, 1.0, 64 << 20

CLOSED = 'the client is closed'

Heard = Callable[[InferEnd], None]


@dataclass(eq=False)
class _Asked:
    request: InferRequest
    heard: Heard
    came: float
    deadline: float
    sent: float = math.nan
    over: bool = False


class ServingClient:
    """
    Sends requests to the first of some gateways that can be reached; see `InferService`.

    Ends are heard on a thread of the client.
    """

    def __init__(self, gateways: Sequence[str], key: str = '',
                 loop: LoopThread | None = None) -> None:
        """Name gateways as ``HOST:PORT``; clients may share a loop, which stays open."""
        if not gateways:
            raise ValueError('name at least one gateway')
        self._gateways, self._key = list(gateways), key
        self._services: dict[str, _ServiceWay] = {}
        self._closed = False
        self._own = loop is None
        self._loop = loop or LoopThread('serving-client')

    def submit(self, request: InferRequest, heard: Heard) -> Callable[[], None]:
        """Send a request."""
        now = time.monotonic()
        asked = _Asked(request, heard, now, now + request.remaining)
        if not self._loop.call(self._submit, asked):
            _end(asked, InferEnd(InferFate.CANCELLED, CLOSED))

        def withdraw() -> None:
            self._loop.call(_end, asked, InferEnd(InferFate.CANCELLED, 'withdrawn'))
        return withdraw

    def reach(self, service: str) -> None:
        """Connect to a service before anything is asked of it."""
        self._loop.call(self._way, service)

    def reached(self, service: str) -> str:
        """Return the gateway that is asked for a service, '' while none can be reached."""
        way = self._services.get(service)
        return way.reached if way else ''

    def greeting(self, service: str) -> Mapping[str, Any]:
        """Return what the newest gateway said of a service when it was reached."""
        way = self._services.get(service)
        return way.greeting if way else {}

    def move(self, gateways: Sequence[str]) -> None:
        """Send from now on to other gateways; what is in flight is answered by those before."""
        def moved() -> None:
            self._gateways[:] = gateways
            for way in self._services.values():
                way.move()
        self._loop.call(moved)

    def close(self) -> None:
        """End what is in flight as cancelled, and all connections."""
        with suppress(TimeoutError, RuntimeError):  # it is closed already
            self._loop.run(self._close(), 2 * CONNECT)
        if self._own:
            self._loop.close()

    async def _close(self) -> None:
        self._closed = True
        for way in self._services.values():
            await way.close()

    def _submit(self, asked: _Asked) -> None:
        if self._closed:
            _end(asked, InferEnd(InferFate.CANCELLED, CLOSED))
            return
        if math.isfinite(asked.deadline):
            asyncio.get_running_loop().call_later(
                asked.deadline - time.monotonic(), _end, asked,
                InferEnd(InferFate.LATE, 'late: no answer in time'))
        self._way(asked.request.service).ask(asked)

    def _way(self, service: str) -> _ServiceWay:
        if service not in self._services:
            self._services[service] = _ServiceWay(service, self._gateways, self._key)
        return self._services[service]


class _ServiceWay:
    """The way to one service: a connection at a time that is asked, and older ones that answer."""

    def __init__(self, service: str, gateways: Sequence[str], key: str) -> None:
        self._service, self._gateways, self._key = service, gateways, key
        self._waiting: deque[_Asked] = deque()
        self._wake = asyncio.Event()
        self._ways = Ways()
        self.reached, self.greeting = '', dict[str, Any]()
        self._moved = False
        self._readers: set[asyncio.Task[None]] = set()
        self._task = asyncio.create_task(self._run())

    def ask(self, asked: _Asked) -> None:
        """Send a request as soon as there is a connection."""
        while self._waiting and self._waiting[0].over:  # while no gateway can be reached
            self._waiting.popleft()
        self._waiting.append(asked)
        self._wake.set()

    def move(self) -> None:
        """Connect again before the next request."""
        self._moved = True
        self._wake.set()

    async def close(self) -> None:
        """End all."""
        for task in (self._task, *self._readers):
            task.cancel()
        await asyncio.gather(self._task, *self._readers, return_exceptions=True)
        for asked in self._waiting:
            _end(asked, InferEnd(InferFate.CANCELLED, CLOSED))

    async def _run(self) -> None:
        attempt = 0
        while True:
            gateway = self._gateways[attempt % len(self._gateways)]
            try:
                connection = await self._open(gateway)
            except (OSError, WebSocketException, asyncio.TimeoutError, TensorMessageError,
                    ) as error:
                _LOG.info('%s at %s: %s: %s', self._service, gateway, type(error).__name__, error)
                attempt += 1
                if attempt % len(self._gateways) == 0:
                    await asyncio.sleep(ATTEMPT)
                continue
            self._moved, self.reached = False, gateway
            await self._send(connection)
            self.reached = ''
            attempt = 0 if self._moved else attempt + 1

    async def _open(self, gateway: str) -> _Connection:
        """Return a connection, which a task of its own reads."""
        uri = gateway if '://' in gateway else f'ws://{gateway}'
        headers = {'Authorization': f'Api-Key {self._key}'} if self._key else {}
        socket = await connect(
            f'{uri}/{self._service}', compression=None, max_size=MAX_ANSWER, open_timeout=CONNECT,
            ping_interval=SILENCE, ping_timeout=SILENCE, close_timeout=SILENCE,
            additional_headers=headers, proxy=None)
        greeting = unpack(await asyncio.wait_for(socket.recv(decode=False), CONNECT))
        self.greeting = greeting if isinstance(greeting, dict) else {}
        connection = _Connection(socket)
        reader = asyncio.create_task(self._read(connection))
        self._readers.add(reader)
        reader.add_done_callback(self._readers.discard)
        return connection

    async def _send(self, connection: _Connection) -> None:
        """Send what waits until the connection is lost, or another is wanted."""
        while not (self._moved or connection.lost.is_set()):
            if not self._waiting:
                self._wake.clear()
                waits = [asyncio.create_task(event.wait())
                         for event in (self._wake, connection.lost)]
                try:
                    await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
                finally:
                    for wait in waits:
                        wait.cancel()
                continue
            asked = self._waiting.popleft()
            if asked.over:
                continue
            asked.sent = time.monotonic()
            connection.answers.append(asked)
            try:
                await connection.socket.send(_observation(
                    asked.request, self._ways.left(asked.deadline, asked.sent)))
            except (OSError, WebSocketException):
                break
        connection.finish()

    async def _read(self, connection: _Connection) -> None:
        """Take answers; what is not answered when the connection ends is asked again."""
        try:
            while True:
                data = await connection.socket.recv()
                if not connection.answers:
                    break
                end = end_of(data)
                if end.reason == CLOSING:  # all that is asked here is asked at the next one
                    break
                self._answered(connection.answers.popleft(), end)
                if connection.done and not connection.answers:
                    break
        except Exception as error:  # noqa: BLE001 - whatever a gateway says: the next is asked
            _LOG.info('%s: %s: %s', self._service, type(error).__name__, error)
        finally:
            connection.lost.set()
            for asked in reversed(connection.answers):
                if not asked.over:
                    self._waiting.appendleft(asked)
            connection.answers.clear()
            self._wake.set()
            with suppress(Exception):
                await connection.socket.close()

    def _answered(self, asked: _Asked, end: InferEnd) -> None:
        now = time.monotonic()
        self._ways.measure(asked.sent, end, now)
        _end(asked, in_time(end, asked.deadline, now))


class _Connection:
    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket
        self.answers: deque[_Asked] = deque()
        self.lost = asyncio.Event()
        self.done = False

    def finish(self) -> None:
        """Note that nothing more is asked: it ends when all is answered."""
        self.done = True
        if not self.answers:
            asyncio.ensure_future(self.socket.close())


def _end(asked: _Asked, end: InferEnd) -> None:
    """Give a request its one end."""
    if not asked.over:
        asked.over = True
        asked.heard(replace(end, finished=time.monotonic() - asked.came))


def _observation(request: InferRequest, left: float) -> bytes:
    numbers: dict[str, Any] = {'priority': request.priority}
    if math.isfinite(left):
        numbers['deadline_ms'] = 1e3 * left
    return pack({**request.tensors, **numbers})


def end_of(data: str | bytes) -> InferEnd:
    """
    Return what a gateway answered.

    :raises TensorMessageError, ValueError, KeyError, TypeError: if it is not an answer.
    """
    if isinstance(data, str):
        said = parse_json(data)
        return InferEnd(InferFate(said['fate']), str(said['reason']),
                        retry_after=float(said.get('retry_after_ms', math.inf)) / 1e3,
                        finished=float(said.get('finished_ms', math.nan)) / 1e3,
                        site=str(said.get('site', '')))
    found: Mapping[str, Any] = unpack(data)
    reported = found['serving']
    return InferEnd(
        InferFate.IN_TIME, tensors={name: value for name, value in found.items()
                                    if isinstance(value, np.ndarray)},
        predicted=float(reported['predicted_ms']) / 1e3,
        finished=float(reported['finished_ms']) / 1e3,
        queue=float(reported['queue_ms']) / 1e3, compute=float(reported['compute_ms']) / 1e3,
        batch=int(reported['batch']), site=str(reported['site']))
