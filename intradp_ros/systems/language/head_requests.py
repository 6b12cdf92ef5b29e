# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The requests of a head, and the book in which each stands until it has heard its end once."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
import math
import time

from torch import Tensor

from intradp_ros.runtime.requests.admission import Admission, AdmissionLimits, Fate, Ticket
from intradp_ros.runtime.requests.text_requests import Piece, Sampling, TextEnd
from intradp_ros.systems.language.answer_text import AnswerText
from intradp_ros.systems.language.drafts import Lookup
from intradp_ros.systems.language.grammar import Grammar

Heard = Callable[[Piece | TextEnd], None]
#: Failures of rounds from which on their requests are computed one at a time; an error is so many.
CERTAIN = 3


@dataclass(frozen=True, slots=True)
class Drawing:
    """
    How the tokens of an answer are drawn, and what is said of them.

    `ends` are the tokens that end it, once it has `least`; `logits` collects those of each token.
    """

    sampling: Sampling
    text: AnswerText | None
    grammar: Grammar | None
    ends: frozenset[int]
    least: int = 0
    logprobs: int | None = None
    logits: list[Tensor] | None = None


@dataclass(slots=True)
class Failures:
    """Failures of rounds with a request since it got on: the first, and how far it must get."""

    count: int = 0
    first: float = math.inf
    until: int = 0


@dataclass(eq=False)
class Request:
    """A request that was taken."""

    ticket: Ticket
    heard: Heard
    tokens: list[int]
    prompt: int
    most: int
    drawing: Drawing
    asked: float
    pages: tuple[int, ...] = ()
    names: list[bytes] = field(default_factory=list)
    computed: int = 0
    resumed: bool = False
    first: float = math.nan
    over: bool = False
    wrong: bool = False
    finish: str = ''
    failures: Failures = field(default_factory=Failures)
    lookup: Lookup = field(default_factory=Lookup)
    draft: list[int] = field(default_factory=list)

    @property
    def answer(self) -> int:
        """Return the number of tokens of the answer so far."""
        return len(self.tokens) - self.prompt


class RequestBook:
    """All requests of a head that have not heard their end; its lock is the head's."""

    def __init__(self, limits: AdmissionLimits) -> None:
        self.admission = Admission(limits)
        self.requests: dict[int, Request] = {}
        self._ended: deque[tuple[int, Fate, str, float]] = deque()  # of which nobody heard yet
        self._forgotten: dict[int, str] = {}  # refused, and unknown to the admission
        self._withdrawn: deque[tuple[int, Fate]] = deque()  # filled without a lock

    def serving(self) -> list[Request]:
        """Return those in service that are not over."""
        return [request for request in self.requests.values() if not request.over
                and self.admission.serves(request.ticket.number)]

    def alone(self) -> Request | None:
        """Return the request that is computed by itself now, since rounds with it failed."""
        return min((request for request in self.serving() if request.failures.count >= CERTAIN),
                   key=lambda r: (r.failures.count, r.ticket.order), default=None)

    def withdraw(self, number: int, fate: Fate) -> None:
        """End a request for its client; needs no lock."""
        self._withdrawn.append((number, fate))

    def refuse(self, request: Request, reason: str) -> None:
        """End a request that cannot be gone on with, whatever state it is in."""
        request.over = True
        if not self.admission.end(request.ticket.number, time.monotonic(), Fate.REFUSED, reason):
            self._forgotten[request.ticket.number] = reason

    def report_ends(self, give_back: Callable[[Sequence[int]], None]) -> None:
        """Say to each request that has ended what became of it, once; take its pages."""
        now = time.monotonic()
        while self._withdrawn:
            number, fate = self._withdrawn.popleft()
            self.admission.end(number, now, fate, 'ended by its client')
        self._ended += [(ending.ticket.number, ending.fate, ending.reason, ending.time)
                        for ending in self.admission.endings()]
        self._ended += [(number, Fate.REFUSED, reason, now)
                        for number, reason in self._forgotten.items()]
        self._forgotten.clear()
        known = {number for number, *_ in self._ended}
        self._ended += [(number, Fate.REFUSED, 'its place was lost', now)
                        for number in self.requests
                        if number not in known and not self.admission.holds(number)]
        while self._ended:
            number, fate, reason, at = self._ended.popleft()
            request = self.requests.pop(number, None)
            if request is None:
                continue
            request.over = True
            with suppress(BaseException):
                if request.pages:
                    give_back(request.pages)
            with suppress(BaseException):
                text = request.drawing.text
                request.heard(TextEnd(fate, reason, request.finish, request.prompt,
                                      request.answer, request.first, at - request.asked,
                                      text.calls if text else (), request.wrong))
