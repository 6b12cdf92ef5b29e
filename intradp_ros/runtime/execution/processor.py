# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A processor that the inferences of several parties take turns on, operator by operator."""
from __future__ import annotations

from collections.abc import Hashable
from itertools import count
import threading
import time

from intradp_ros.runtime.execution.load_meter import LoadMeter
from intradp_ros.runtime.execution.turn_order import TurnOrder, TurnRequest


class Processor:
    """
    Gives turns to threads, `lanes` at a time; safe to call from several threads.

    What an inference computes is not interrupted: it asks before each
    operator whether it may go on.
    """

    def __init__(self, lanes: int = 1) -> None:
        self._order, self._meter = TurnOrder(lanes), LoadMeter(lanes)
        self._granted: dict[TurnRequest, threading.Event] = {}
        self._lock = threading.Lock()
        self._begun = count(1)

    def turns(self, party: Hashable) -> Turns:
        """Return what a party's next inference takes its turns by; those before it come first."""
        return Turns(self, TurnRequest(party, next(self._begun)))

    def factor(self, party: Hashable) -> float:
        """Return how many times as long as alone a party has to expect to compute."""
        with self._lock:
            return self._meter.factor(party, time.monotonic())

    @property
    def load(self) -> float:
        """How many parties want to compute, in the mean of the last seconds."""
        with self._lock:
            return self._meter.load(time.monotonic())

    def forget(self, party: Hashable) -> None:
        """Forget a party that has gone; if it computes, it has not."""
        with self._lock:
            if party not in self._order.busy:
                self._order.forget(party)
                self._meter.forget(party)

    def take(self, claim: TurnRequest, *, again: bool = False) -> bool:
        """Wait for a turn, `again` after one that ends now; return whether others had theirs."""
        granted = threading.Event()
        with self._lock:
            now = time.monotonic()
            if claim.party not in self._order.busy:
                self._meter.wants(claim.party, True, now)
            if again:
                self._order.end(claim, now, again=True)
            else:
                self._order.ask(claim, now)
            self._granted[claim] = granted
            self._grant()
        at_once = granted.is_set()
        granted.wait()
        return not at_once

    def may_go_on(self, claim: TurnRequest) -> bool:
        """Return whether who has a turn may keep it for one more operator."""
        with self._lock:
            return self._order.may_go_on(claim, time.monotonic())

    def end(self, claim: TurnRequest) -> None:
        """End a turn."""
        with self._lock:
            now = time.monotonic()
            self._order.end(claim, now)
            if claim.party not in self._order.busy:
                self._meter.wants(claim.party, False, now)
            self._grant()

    def _grant(self) -> None:
        while claim := self._order.grant(time.monotonic()):
            self._granted.pop(claim).set()


class Turns:
    """The turns of one inference; for the one thread that computes it."""

    def __init__(self, processor: Processor, claim: TurnRequest) -> None:
        self._processor, self._claim = processor, claim
        self._has_turn = False

    def take(self) -> tuple[float, float] | None:
        """Have a turn for one operator; return from when to when others had theirs, if so."""
        if self._has_turn and self._processor.may_go_on(self._claim):
            return None
        start = time.monotonic()
        waited = self._processor.take(self._claim, again=self._has_turn)
        self._has_turn = True
        return (start, time.monotonic()) if waited else None

    def rest(self) -> None:
        """Let others compute: there is nothing to compute for now."""
        if self._has_turn:
            self._has_turn = False
            self._processor.end(self._claim)
