# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Robots on their docks, as machines of a site: they compute while they are there.

A robot connects.  It says which services it offers, a JSON text; then both say what a gateway
and the process of an executor say (`systems/serving/executor_messages.py`).  It says an empty
message several times a second.  One that is silent, or whose connection ends, is gone: what it
had is placed anew.  It loads its own models; they are used if they are those of the site.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
import logging
import secrets
import time
from typing import Any

import numpy as np

from intradp_ros.core.child_process import Bytes
from intradp_ros.core.json_text import parse_json
from intradp_ros.core.limits import MAX_SECONDS, within
from intradp_ros.runtime.requests.infer_requests import Tensors
from intradp_ros.systems.serving.executor import Executor, Opened, RemoteExecutor
from intradp_ros.systems.serving.executor_messages import (
    batch_message,
    BatchResult,
    check_answer,
    JSON,
    RESULT,
)
from intradp_ros.systems.serving.gateway import Coming, Gateway
from intradp_ros.systems.serving.service import Service
from intradp_ros.web.connections import accept_peer, closed, Receive, Send

_LOG = logging.getLogger(__name__)
PATH = '/docks'
#: Seconds between signs of life, and without a word after which a robot is gone.
BEAT, SILENCE = 0.2, 1.0
#: Bytes of a message, and characters of a text.
MAX_MESSAGE, MAX_TEXT = 64 << 20, 1 << 14
#: The name that stands for every client.
ANY = 'any'
#: Numbers of batches that are tried before a robot is used: no gateway counts so far.
_TRIED = 1 << 63
#: Why a web socket is closed: by rule.
_POLICY = 1008


class DockSockets:
    """The ASGI application at which robots dock; `Guard` belongs around it."""

    def __init__(self, gateway: Gateway, names: Collection[str]) -> None:
        """Take only clients of these names; `ANY` stands for all."""
        self._gateway, self._names = gateway, frozenset(names)

    async def __call__(self, scope: Mapping[str, Any], receive: Receive, send: Send) -> None:
        """Serve a robot until it goes."""
        client = scope['client_name']
        await receive()
        accepted, why = accept_peer(scope)
        await send(accepted)
        if not {client, ANY} & self._names:
            why = f'{client} may not dock here: name it in --docks'
        dock, task = None, None
        try:
            if not why:
                offers = await _offers(receive)
                dock = _Dock(self._gateway, client, offers, asyncio.get_running_loop())
                task = asyncio.create_task(dock.write(send))
                await dock.serve(receive)
        except (ValueError, asyncio.TimeoutError) as error:
            why = str(error) or f'silent for {SILENCE:g} s'
        finally:
            if task:
                task.cancel()
            if dock:
                dock.leave(why or 'has left')
        if why:
            _LOG.warning('robot %s at its dock: %s', client, why)
            with suppress(Exception):  # it has gone
                await send(closed(_POLICY, why))


def read(text: str | bytes) -> dict[str, Any]:
    """Return the object that a short text of a stranger holds; ValueError if it is none."""
    found = parse_json(text) if len(text) <= MAX_TEXT else None
    if not isinstance(found, dict):
        raise ValueError('a short object of JSON is expected')
    return found


def as_number(value: Any) -> int:
    """Return a whole number, -1 for what is none."""
    return value if type(value) is int and value >= 0 else -1


async def _offers(receive: Receive) -> dict[str, int]:
    """Return the names of the services that a robot offers, with its own numbers of them."""
    message = await asyncio.wait_for(receive(), SILENCE)
    offers = read(message.get('text') or '').get('offers')
    if not isinstance(offers, dict) or not offers or not all(
            type(number) is int and 0 <= number < 1 << 16 for number in offers.values()) \
            or len(set(offers.values())) < len(offers):
        raise ValueError('offers of services are expected: {"offers": {"NAME": NUMBER}}')
    return offers


class _Robot(RemoteExecutor):
    """The executor of a robot, as its gateway sees it; it numbers services as it likes."""

    def __init__(self, number: int, theirs: Mapping[int, int], services: Mapping[int, Service],
                 listener: Any, send: Callable[[bytes], None], cut: Callable[[], None]) -> None:
        super().__init__(number, services, listener)
        self._theirs, self._send_it, self._cut = theirs, send, cut
        self._rows: dict[int, int] = {}

    def kill(self) -> None:
        """Cut it off."""
        self._cut()

    def close(self) -> None:
        """Cut it off."""
        self._cut()

    def know(self, service: int, found: Opened) -> None:
        """Note what a service takes and gives."""
        self._specs[service] = found

    def run(self, number: int, service: int, rows: Sequence[Tensors]) -> None:
        """Begin a batch."""
        self._running[number], self._rows[number] = service, len(rows)
        self._send(batch_message(number, self._theirs[service], self._specs[service].inputs,
                                 rows))

    def answered(self, message: bytearray) -> None:
        """Take an answer; ValueError if it is none."""
        check_answer(message, self._rows, {
            number: sum(spec.nbytes for spec in self._specs[service].outputs)
            for number, service in self._running.items()})
        self._heard(message)
        self._rows = {number: self._rows[number] for number in self._running}

    def _send(self, parts: Sequence[Bytes]) -> None:
        self._send_it(b''.join(parts))


class _Dock:
    """
    One robot: it is tried once all that it offers is loaded, and used from then on.

    What it has measured lacks the way between: of each size of batches one is tried.
    """

    def __init__(self, gateway: Gateway, name: str, offers: Mapping[str, int],
                 loop: asyncio.AbstractEventLoop) -> None:
        self._gateway, self._name, self._loop = gateway, name, loop
        numbers = {service.name: k for k, service in enumerate(gateway.services)}
        mine = {numbers[name]: theirs for name, theirs in offers.items() if name in numbers}
        self._waited = {theirs: k for k, theirs in mine.items()}
        self._found: dict[int, Opened] = {}
        self._tried: list[tuple[int, int]] = []
        self._began, self._joined = 0.0, False
        self._out: asyncio.Queue[str | bytes] = asyncio.Queue()
        self._over = asyncio.Event()
        self._services = {k: gateway.services[k] for k in mine}
        for k in mine:
            known = gateway.specs(gateway.services[k].name)
            if known is None or not known.digest:
                raise ValueError(f'{gateway.services[k].name} is not loaded by this site itself, '
                                 'so that nobody can compare: later')
        if not mine:
            raise ValueError(f'none of what it offers is served here: {", ".join(numbers)}')
        self._number = gateway.numbers.take()
        self._robot = _Robot(self._number, mine, self._services, self, self._put, self._cut)

    def _put(self, data: str | bytes) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._out.put_nowait, data)

    def _cut(self) -> None:
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._over.set)

    async def write(self, send: Send) -> None:
        """Send what there is to be sent."""
        while True:
            data = await self._out.get()
            await send({'type': 'websocket.send',
                        'text' if isinstance(data, str) else 'bytes': data})

    async def serve(self, receive: Receive) -> None:
        """Hear the robot until it leaves, or is cut off; ValueError if it says what is wrong."""
        cut = asyncio.create_task(self._over.wait())
        try:
            while True:
                heard = asyncio.ensure_future(receive())
                done, _ = await asyncio.wait((heard, cut), timeout=SILENCE,
                                             return_when=asyncio.FIRST_COMPLETED)
                if heard not in done:
                    heard.cancel()
                    raise ValueError('cut off' if cut in done else f'silent for {SILENCE:g} s')
                message = heard.result()
                if message['type'] != 'websocket.receive':
                    return
                if data := message.get('bytes'):
                    self._hear(data)
        finally:
            cut.cancel()

    def _hear(self, data: bytes) -> None:
        if data[:1] == RESULT:
            self._robot.answered(bytearray(data))
        elif data[:1] == JSON:
            said = read(data[1:])
            service = self._waited.pop(as_number(said.get('service')), -1)
            if service < 0:
                return  # it is not served here
            if said.get('said') == 'opened':
                known = self._gateway.specs(self._services[service].name)
                assert known is not None
                self._found[service] = found = _agreed(said, self._services[service], known)
                self._robot.know(service, found)
                self._tried += [(service, size) for size in found.sizes]
            else:
                _LOG.warning('robot %s cannot load %s: %.300s', self._name,
                             self._services[service].name, said.get('error'))
            if not self._waited:
                self._try_next()
        else:
            raise ValueError('it says what is neither JSON nor an answer')

    def _try_next(self) -> None:
        """Try the next size of a batch; after all of them let the robot be used."""
        if not self._tried:
            self._join()
            return
        service, size = self._tried[0]
        row = {spec.name: np.zeros(spec.shape, spec.dtype)
               for spec in self._found[service].inputs}
        self._began = time.monotonic()
        self._robot.run(_TRIED + secrets.randbelow(_TRIED), service, [row] * size)

    def _join(self) -> None:
        if not self._found:
            raise ValueError('it could load nothing of what it offers')
        self._joined = True
        self._gateway.docked[self._number] = self._name
        names = ', '.join(self._services[k].name for k in self._found)
        _LOG.info('robot %s is on its dock, as executor %d: %s', self._name, self._number, names)
        self._put(f'as executor {self._number}, with {names}')
        self._gateway.changed([Coming(self._number, self._robot, self._found)], {})

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""
        if self._joined:
            self._gateway.ended(executor, result)
            return
        took = time.monotonic() - self._began
        service, size = self._tried.pop(0)
        found = self._found[service]
        self._found[service] = replace(found, seconds=tuple(
            max(known, took) if b == size else known
            for b, known in zip(found.sizes, found.seconds)))
        self._try_next()

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear nothing: what a robot has opened is looked at before."""

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear nothing, as `opened`."""

    def lost(self, executor: int, why: str, which: Executor) -> None:
        """Hear nothing: a connection says when it ends."""

    def leave(self, why: str) -> None:
        """Let the robot go: what it had is placed anew."""
        if self._joined:
            self._gateway.docked.pop(self._number, None)
            _LOG.info('robot %s is not on its dock any more: %s', self._name, why)
            self._gateway.lost(self._number, why, self._robot)
            self._gateway.changed([], {
                self._number: lambda: self._gateway.numbers.give(self._number)})
        else:
            self._gateway.numbers.give(self._number)


def _agreed(said: Mapping[str, Any], service: Service, known: Opened) -> Opened:
    """Return what a robot has opened, with names and shapes of the site; ValueError if other."""
    try:
        sizes, seconds, spread = (tuple(said[key]) for key in ('sizes', 'seconds', 'spread'))
        same = said['digest'] == known.digest and all(
            [(dtype, tuple(shape)) for _, dtype, shape in said[key]] == [
                (spec.dtype, spec.shape) for spec in specs]
            for key, specs in (('inputs', known.inputs), ('outputs', known.outputs)))
    except (KeyError, TypeError, ValueError):
        raise ValueError('it does not say what it has opened') from None
    if not same:
        raise ValueError(f'its {service.name} is not the model of this site: copy the archive')
    if [as_number(size) for size in sizes] != sorted(
            {1, *service.batches} & {as_number(size) for size in sizes}) or 1 not in sizes \
            or not len(sizes) == len(seconds) == len(spread):
        raise ValueError(f'its batches of {service.name} are not those of this site')
    for key, numbers, least in (('seconds', seconds, 1e-9), ('spread', spread, 0.0)):
        for number in numbers:
            if type(number) not in (int, float):
                raise ValueError(f'{key} of a batch are not numbers')
            within(f'{key} of a batch', number, least, MAX_SECONDS)
    return replace(known, sizes=sizes, seconds=seconds, spread=spread)


