# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A robot at its dock: it offers a site what it can compute, for as long as both are there."""
from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
import json
import logging
from pathlib import Path
import threading
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from intradp_ros.core.child_process import ChildProcess
from intradp_ros.systems.serving.executor import EXECUTOR_MODULE
from intradp_ros.systems.serving.executor_messages import (
    answer_number,
    check_batch,
    JSON,
    json_message,
)
from intradp_ros.systems.serving.service import LARGEST_BATCH, Service, TensorSpec
from intradp_ros.web.connections import check_peer, peer_headers
from intradp_ros.web.docks import BEAT, MAX_MESSAGE, PATH, SILENCE
from intradp_ros.web.loop_thread import LoopThread

_LOG = logging.getLogger(__name__)
#: Seconds between attempts to dock, and before a process that died is restarted.
ATTEMPT, AGAIN = 2.0, 5.0


class Docking:
    """
    Offers services to a site until it is closed.

    Models are loaded once, by a process that outlives connections.  The site names none of them:
    it can ask for batches of what is offered, and nothing else.
    """

    def __init__(self, site: str, services: Sequence[Service], key: str = '', *,
                 threads: int = 1, device: str = 'cpu', log: Path | None = None) -> None:
        """Begin; `site` is the address of its gateway, ``HOST:PORT``."""
        self._uri = site if '://' in site else f'ws://{site}'
        self._headers = peer_headers(key)
        self._services, self._log = tuple(services), log
        self._start = json_message(threads=threads, device=device)
        self._loop = LoopThread('docking')
        self._socket: ClientConnection | None = None
        #: What the process has said of its services, in order, and the bytes of their rows.
        self._said: list[bytes] = []
        self._rows: dict[int, int] = {}
        #: Numbers of the batches that this connection has asked for.
        self._asked: set[int] = set()
        self._closing = threading.Event()
        self._child = self._load()
        self._keeping = self._loop.begin(self._keep())

    def close(self) -> None:
        """Leave."""
        self._closing.set()
        self._loop.close()
        self._child.close()

    def _load(self) -> ChildProcess:
        child = ChildProcess('docked', EXECUTOR_MODULE, ['docked'], self._heard, self._gone,
                             log=self._log)
        child.send(self._start)
        for k, service in enumerate(self._services):
            child.send(json_message(**service.order(k)))
        return child

    def _heard(self, message: bytearray) -> None:
        self._loop.call(self._pass_on, bytes(message))

    def _pass_on(self, data: bytes) -> None:
        if data[:1] == JSON:
            self._note(json.loads(data[1:]))
            self._said.append(data)
        elif (number := answer_number(data)) in self._asked:
            self._asked.discard(number)
        else:
            return  # who asked for it has gone
        if self._socket is not None:
            self._sending = asyncio.ensure_future(_send(self._socket, data))

    def _note(self, said: dict[str, Any]) -> None:
        name = self._services[said['service']].name
        if said['said'] == 'failed':
            _LOG.error('%s cannot be loaded: %s', name, said['error'])
            return
        _LOG.info('%s is loaded', name)
        self._rows[said['service']] = sum(
            TensorSpec(name, dtype, tuple(shape)).nbytes for name, dtype, shape in said['inputs'])

    def _gone(self, why: str) -> None:
        if not self._closing.is_set():
            _LOG.error('the process that computes %s; another is started', why)
            with suppress(RuntimeError):  # it is closed meanwhile
                self._loading = self._loop.begin(self._restart())

    async def _restart(self) -> None:
        self._said.clear()
        if self._socket is not None:
            await self._socket.close()
        while True:
            await asyncio.sleep(AGAIN)
            try:
                self._child = self._load()
                return
            except OSError as error:
                _LOG.error('no process to compute can be started: %s', error)

    async def _keep(self) -> None:
        said = ''
        while True:
            try:
                async with connect(f'{self._uri}{PATH}', compression=None, max_size=MAX_MESSAGE,
                                   open_timeout=SILENCE, ping_interval=1.0, ping_timeout=2.0,
                                   close_timeout=SILENCE, additional_headers=self._headers,
                                   proxy=None) as socket:
                    check_peer(socket.response)
                    await self._serve(socket)
                cause = 'the connection has ended'
            except ConnectionClosed as error:
                cause = (error.rcvd.reason if error.rcvd else '') or 'the connection has ended'
            except Exception as error:  # noqa: BLE001 - whatever it is, it is tried again
                cause = f'{type(error).__name__}: {str(error) or "silent for too long"}'
            finally:
                self._socket = None
            if cause != said:
                _LOG.warning('site at %s: %s', self._uri, cause)
            said = cause
            await asyncio.sleep(ATTEMPT)

    async def _serve(self, socket: ClientConnection) -> None:
        self._asked.clear()
        await socket.send(json.dumps(
            {'offers': {service.name: k for k, service in enumerate(self._services)}}))
        for data in self._said:
            await socket.send(data)
        self._socket = socket
        beating = asyncio.create_task(_beat(socket))
        try:
            async for message in socket:
                if isinstance(message, str):
                    _LOG.info('docked at %s: %s', self._uri, message[:1000])
                    continue
                self._asked.add(check_batch(message, self._rows, LARGEST_BATCH))
                self._child.send(message)
        finally:
            beating.cancel()


async def _beat(socket: ClientConnection) -> None:
    while True:
        await _send(socket, b'')
        await asyncio.sleep(BEAT)


async def _send(socket: ClientConnection, data: bytes) -> None:
    with suppress(ConnectionClosed):
        await socket.send(data)
