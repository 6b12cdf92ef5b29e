# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Inferences that were asked for: which waits, which is in flight, and in which order answers go.

A state machine over (event, time) without threads or tensors.  Every request
is answered exactly once, in the order of asking.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
import math


class State(Enum):
    """Where a request is."""

    WAITING = 'waiting'
    INFLIGHT = 'in flight'
    ANSWERED = 'answered'


@dataclass
class Request:
    """One request: when it was asked (s), until when it is of use, and what became of it."""

    number: int
    asked: float
    deadline: float = math.inf
    state: State = State.WAITING
    reason: str = ''

    def late(self, now: float) -> bool:
        """Return whether the deadline is over."""
        return now >= self.deadline


@dataclass
class RequestQueue:
    """
    Requests in order, at most `waiting` of them not begun and `inflight` begun.

    Where one too many waits, the late ones make room first, then the oldest.
    """

    inflight: int
    waiting: int
    _requests: dict[int, Request] = field(default_factory=dict)
    _newest: int = 0
    _delivered: int = 0

    def __post_init__(self) -> None:
        """See that the limits let anything through."""
        if self.inflight < 1 or self.waiting < 1:
            raise ValueError('at least 1 inference must be allowed to wait and to be in flight, '
                             f'got {self.waiting} and {self.inflight}')

    def ask(self, now: float, seconds: float = math.inf) -> Request:
        """
        Take a request that is of use for so many seconds; return it.

        What made room for it is `ANSWERED` with a reason.
        """
        self._newest += 1
        asked = self._requests[self._newest] = Request(self._newest, now, now + seconds)
        waiting = self.those(State.WAITING)
        if len(waiting) > self.waiting:
            late = [r for r in waiting if r.late(now)]
            self._drop(late[0] if late else waiting[0], now)
        return asked

    def begin(self, now: float) -> Request | None:
        """Return the next request to begin, if one more may be in flight."""
        if len(self.those(State.INFLIGHT)) >= self.inflight:
            return None
        for request in self.those(State.WAITING):
            if request.late(now):
                self._drop(request, now)
                continue
            request.state = State.INFLIGHT
            return request
        return None

    def answer(self, number: int, reason: str = '') -> bool:
        """Note that a request has its answer; False if it had one before."""
        request = self._requests.get(number)
        if request is None or request.state is State.ANSWERED:
            return False
        request.state, request.reason = State.ANSWERED, reason
        return True

    def late(self, now: float) -> list[Request]:
        """Return the requests without an answer whose deadline is over."""
        return [r for r in self._requests.values()
                if r.state is not State.ANSWERED and r.late(now)]

    def those(self, state: State) -> list[Request]:
        """Return the requests in a state, in order."""
        return [r for r in self._requests.values() if r.state is state]

    def deliver(self) -> list[Request]:
        """Return the answered requests whose turn it is, in order, and forget them."""
        turn = []
        while (following := self._requests.get(self._delivered + 1)) and \
                following.state is State.ANSWERED:
            self._delivered += 1
            turn.append(self._requests.pop(self._delivered))
        return turn

    def counts(self) -> Mapping[str, int]:
        """Return how many requests are in each state."""
        return {state.value: len(self.those(state)) for state in State}

    def _drop(self, request: Request, now: float) -> None:
        if request.late(now):
            allowed, waited = request.deadline - request.asked, now - request.asked
            self.answer(request.number, f'late: {1e3 * waited:.0f} ms before it began, allowed '
                                        f'are {1e3 * allowed:.0f} ms')
        else:
            self.answer(request.number, f'dropped: {self.waiting} newer ones wait')
