# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Requests of a robot that changes gateways: each gets one end, whoever answers, and however often.

A state machine over (event, time); who has it calls it under a lock, and hands out what it
returns afterwards, in order.  Gateways are asked for signs of life.  What a silent one has not
answered goes to the next one, with the time that is left, less the ways that were measured.  A
request has one number; it is asked in a stream of the visit, so that a gateway which is visited
again does not take it for a repetition.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
import math

from intradp_ros.runtime.requests.infer_requests import InferEnd, InferFate, InferRequest
from intradp_ros.runtime.requests.ways import in_time, Ways

#: Seconds between signs of life that are asked for.
PERIOD = 0.2
#: Gateways that are remembered.
MOST_GATEWAYS = 16

Heard = Callable[[InferEnd], None]


@dataclass(frozen=True)
class Ask:
    """A request that is to go to a gateway; `number` names it in the answer."""

    gateway: str
    number: int
    request: InferRequest


@dataclass(frozen=True)
class Ping:
    """A sign of life that is to be asked of a gateway."""

    gateway: str


@dataclass(frozen=True)
class Tell:
    """An end that is to be handed out."""

    heard: Heard
    end: InferEnd


Todo = Ask | Ping | Tell


@dataclass(eq=False)
class _Held:
    number: int
    request: InferRequest
    heard: Heard
    came: float
    deadline: float
    gateway: str = ''
    sent: float = math.nan


@dataclass
class _Gateway:
    heard: float = -math.inf
    asked: float = -math.inf


@dataclass
class Roaming:
    """
    Gateways by name, the first one that answers is asked; `silence` in seconds.

    `late` counts answers that came when their request had its end, `again` requests that were
    asked of another gateway, `changes` those of the gateway.
    """

    stream: str
    silence: float = 1.0
    late: int = 0
    again: int = 0
    changes: int = 0
    gateway: str = ''
    wanted: tuple[str, ...] = ()
    _known: dict[str, _Gateway] = field(default_factory=dict)
    _held: dict[int, _Held] = field(default_factory=dict)
    _visit: int = 0
    _newest: int = 0
    _numbers: int = 0
    _ways: Ways = field(default_factory=Ways)

    @property
    def in_flight(self) -> int:
        """Return how many requests have no end yet."""
        return len(self._held)

    @property
    def known(self) -> frozenset[str]:
        """Return the gateways that are wanted, or that have requests in flight."""
        return frozenset(self._known)

    def move(self, gateways: Sequence[str], now: float) -> list[Todo]:
        """
        Ask others from now on; those before answer what is in flight.

        :raises ValueError: if none is named, or too many are.
        """
        names = tuple(dict.fromkeys(gateways))
        kept = dict.fromkeys(  # those that are preferred are asked for a sign of life first
            (*names, *(held.gateway for held in self._held.values() if held.gateway)))
        if not names or len(kept) > MOST_GATEWAYS:
            raise ValueError(f'name 1 to {MOST_GATEWAYS} gateways, with those that have requests '
                             'in flight')
        self.wanted = names
        self._known = {name: self._known.get(name, _Gateway()) for name in kept}
        return self.look(now)

    def submit(self, request: InferRequest, heard: Heard, now: float) -> tuple[int, list[Todo]]:
        """Take a request; return its number and what is to be done."""
        self._numbers += 1
        held = _Held(self._numbers, request, heard, now, now + request.remaining)
        self._held[held.number] = held
        return held.number, self._ask(held, now) if self.gateway else []

    def withdraw(self, number: int, now: float) -> list[Todo]:
        """End a request as cancelled; nothing if it has its end."""
        return self._end(number, InferEnd(InferFate.CANCELLED, 'withdrawn'), now)

    def repeat(self, number: int, now: float) -> list[Todo]:
        """Ask a request anew of the same gateway, which could not take it as it was."""
        held = self._held.get(number)
        return self._ask(held, now) if held and self.gateway else []

    def end_all(self, now: float) -> list[Todo]:
        """End all requests as cancelled."""
        return [todo for number in list(self._held) for todo in self._end(
            number, InferEnd(InferFate.CANCELLED, 'the client is closed'), now)]

    def answered(self, gateway: str, number: int, end: InferEnd, now: float,
                 leaving: bool = False) -> list[Todo]:
        """Take an answer; a gateway that is `leaving` is asked no more until it says otherwise."""
        known = self._known.get(gateway)
        held = self._held.get(number)
        if known is None or held is None or (
                held.gateway != gateway and end.fate is not InferFate.IN_TIME):
            self.late += 1
            return []
        if leaving:
            known.heard = -math.inf
            return self.look(now)
        known.heard = now
        if held.gateway == gateway:
            self._ways.measure(held.sent, end, now)
        return self._end(number, in_time(end, held.deadline, now), now)

    def alive(self, gateway: str, now: float) -> list[Todo]:
        """Take a sign of life."""
        if (known := self._known.get(gateway)) is not None:
            known.heard = now
        return self.look(now)

    def gone(self, gateway: str, now: float) -> list[Todo]:
        """Hear that a gateway cannot be reached."""
        if (known := self._known.get(gateway)) is not None:
            known.heard = -math.inf
        return self.look(now)

    def look(self, now: float) -> list[Todo]:
        """Do what time brings: ends that are due, another gateway, signs of life."""
        todo: list[Todo] = []
        for number in [n for n, held in self._held.items() if held.deadline < now]:
            todo += self._end(number, InferEnd(InferFate.LATE, 'late: no answer in time'), now)
        best = self.gateway if self._lives(self.gateway, now) and self.gateway in self.wanted \
            else next((name for name in self.wanted if self._lives(name, now)), '')
        if best != self.gateway:
            self.changes += bool(self.gateway)
            self.gateway = best
            self._visit, self._newest = self._visit + 1, 0
        for held in list(self._held.values()):
            if best and not (held.gateway and self._lives(held.gateway, now)):
                self.again += bool(held.gateway)
                todo += self._ask(held, now)
        busy = {held.gateway for held in self._held.values()}
        for name, known in self._known.items():
            if (name in self.wanted or name in busy) and now - known.asked >= PERIOD:
                known.asked = now
                todo.append(Ping(name))
        return todo

    def _lives(self, name: str, now: float) -> bool:
        known = self._known.get(name)
        return known is not None and now - known.heard <= self.silence + PERIOD

    def _ask(self, held: _Held, now: float) -> list[Todo]:
        held.gateway, held.sent = self.gateway, now
        # of an older frame than the gateway has seen: in no order with the newer ones
        apart = f'.{held.number}' if held.number < self._newest else ''
        self._newest = max(held.number, self._newest)
        return [Ask(self.gateway, held.number, replace(
            held.request, remaining=self._ways.left(held.deadline, now),
            stream=f'{self.stream} {self._visit}{apart}', frame=held.number))]

    def _end(self, number: int, end: InferEnd, now: float) -> list[Todo]:
        held = self._held.pop(number, None)
        if held is None:
            return []
        return [Tell(held.heard, replace(end, finished=now - held.came))]
