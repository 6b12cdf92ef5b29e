# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which requests are taken, in which order they are served, and what becomes of each.

A state machine over (event, time) without threads.  Requests are served by
priority, then by earliest deadline, then in the order of arrival.  A request
is refused at once, with the reason, when the work ahead of it lets it end too
late, or when taking it would make an admitted one of its own priority or a
higher one late.  One of a higher priority displaces what it makes late.
Every request ends exactly once, with one `Fate`.

Times are seconds of the caller's own clock.  Deadlines arrive as remaining
seconds, since clocks of machines differ.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
import heapq
import math


class Fate(Enum):
    """What became of a request."""

    DONE = 'done'
    #: Done, after a device or a plan was lost on the way.
    RESUMED = 'resumed'
    #: Not served; the reason says why.
    REFUSED = 'refused'
    #: Stopped since its deadline was over, or could no longer be met.
    LATE = 'late'
    #: Withdrawn by its client.
    CANCELLED = 'cancelled'


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many requests are served at once (`lanes`), wait, and belong to one client."""

    lanes: int = 8
    waiting: int = 64
    per_client: int = 16

    def __post_init__(self) -> None:
        """Raise ValueError if nothing could ever be served."""
        if min(self.lanes, self.waiting, self.per_client) < 1:
            raise ValueError('lanes, waiting and per_client must be at least 1, got '
                             f'{self.lanes}, {self.waiting} and {self.per_client}')


@dataclass(frozen=True, slots=True)
class Ticket:
    """A request: `deadline` is a time of the own clock, `seconds` the work it is predicted."""

    number: int
    client: str
    priority: int
    asked: float
    deadline: float
    seconds: float

    @property
    def order(self) -> tuple[int, float, int]:
        """Return what requests are served by, the least first."""
        return -self.priority, self.deadline, self.number


@dataclass(frozen=True, slots=True)
class Ending:
    """The one end of a request, at a time, with the reason if it is not done."""

    ticket: Ticket
    fate: Fate
    reason: str
    time: float


@dataclass
class Admission:
    """Requests that wait and that are served; see the module for the rules."""

    limits: AdmissionLimits = AdmissionLimits()
    _waiting: dict[int, Ticket] = field(default_factory=dict)
    #: When each request in service is predicted to end.
    _serving: dict[int, tuple[Ticket, float]] = field(default_factory=dict)
    _endings: list[Ending] = field(default_factory=list)
    _counts: dict[Fate, int] = field(default_factory=lambda: dict.fromkeys(Fate, 0))
    _newest: int = 0

    def ask(self, now: float, client: str, seconds: float, remaining: float = math.inf,
            priority: int = 0) -> Ticket:
        """
        Take a request, or refuse it: then its ending is among `endings`.

        `seconds` of work are predicted, `remaining` is the time until its
        deadline; both must not be negative or NaN (ValueError).
        """
        if not (seconds >= 0 and remaining >= 0):
            raise ValueError(f'work of {seconds} s and a deadline in {remaining} s: neither may '
                             'be negative')
        self.expire(now)
        self._newest += 1
        new = Ticket(self._newest, client, priority, now, now + remaining, seconds)
        reason, displaced = self._judged(new, now)
        if reason:
            self._end(new, Fate.LATE if not remaining else Fate.REFUSED, reason, now)
            return new
        for ticket in displaced:
            del self._waiting[ticket.number]
            self._end(ticket, Fate.REFUSED, 'displaced by a request of higher priority', now)
        self._waiting[new.number] = new
        return new

    def begin(self, now: float) -> Ticket | None:
        """Return the next request to serve, if a lane is free and one can still be in time."""
        self.expire(now)
        while self._waiting and len(self._serving) < self.limits.lanes:
            ticket = self._waiting.pop(min(self._waiting.values(), key=lambda t: t.order).number)
            if now + ticket.seconds > ticket.deadline:
                self._end(ticket, Fate.LATE, f'would be late: {_ms(ticket.seconds)} of work, '
                          f'{_ms(ticket.deadline - now)} are left', now)
                continue
            self._serving[ticket.number] = ticket, now + ticket.seconds
            return ticket
        return None

    def put_back(self, ticket: Ticket) -> None:
        """Let a request that `begin` returned wait again: there is no room for it yet."""
        if self._serving.pop(ticket.number, None):
            self._waiting[ticket.number] = ticket

    def progress(self, number: int, now: float, seconds_left: float) -> None:
        """Correct how much work a request in service still has."""
        if number in self._serving:
            self._serving[number] = self._serving[number][0], now + max(0.0, seconds_left)

    def end(self, number: int, now: float, fate: Fate, reason: str = '') -> bool:
        """End a request that waits or is served; False if it has ended before."""
        ticket = self._waiting.pop(number, None)
        if ticket is None:
            if number not in self._serving:
                return False
            ticket, _ = self._serving.pop(number)
        self._end(ticket, fate, reason, now)
        return True

    def expire(self, now: float) -> None:
        """End as late what is past its deadline, waiting or served."""
        for ticket in (*self._waiting.values(), *(t for t, _ in self._serving.values())):
            if now >= ticket.deadline:
                self.end(ticket.number, now, Fate.LATE, 'late: '
                         f'{_ms(ticket.deadline - ticket.asked)} were allowed')

    def endings(self) -> list[Ending]:
        """Return the requests that have ended since the last call, each exactly once."""
        ended, self._endings = self._endings, []
        return ended

    @property
    def waiting(self) -> int:
        """Return how many requests wait."""
        return len(self._waiting)

    @property
    def serving(self) -> int:
        """Return how many requests are served."""
        return len(self._serving)

    def holds(self, number: int) -> bool:
        """Return whether a request waits or is served."""
        return number in self._waiting or number in self._serving

    def serves(self, number: int) -> bool:
        """Return whether a request is served."""
        return number in self._serving

    def counts(self) -> Mapping[Fate, int]:
        """Return how many requests had each fate."""
        return dict(self._counts)

    def _judged(self, new: Ticket, now: float) -> tuple[str, list[Ticket]]:
        """Return why a request is refused, or '' and the requests that it displaces."""
        held = [*self._waiting.values(), *(ticket for ticket, _ in self._serving.values())]
        if sum(ticket.client == new.client for ticket in held) >= self.limits.per_client:
            return f'{self.limits.per_client} requests of this client are in flight', []
        last = max(self._waiting.values(), key=lambda t: t.order, default=None)
        full = [last] if last and len(self._waiting) >= self.limits.waiting else []
        if full and full[0].priority >= new.priority:
            return f'the queue is full: {self.limits.waiting} requests wait', []
        free_at = [end for _, end in self._serving.values()]
        before = finish_times(self._waiting.values(), free_at, self.limits.lanes, now)
        after = finish_times([*(t for t in self._waiting.values() if t not in full), new],
                             free_at, self.limits.lanes, now)
        if after[new.number] > new.deadline:
            ahead = after[new.number] - now - new.seconds
            return (f'would be late: {_ms(ahead)} until it begins and {_ms(new.seconds)} of '
                    f'work, {_ms(new.deadline - now)} are allowed'), []
        harmed = [t for t in self._waiting.values() if t not in full
                  and before[t.number] <= t.deadline < after[t.number]]
        if any(ticket.priority >= new.priority for ticket in harmed):
            return 'would make requests late that were taken before', []
        return '', full + harmed

    def _end(self, ticket: Ticket, fate: Fate, reason: str, now: float) -> None:
        self._counts[fate] += 1
        self._endings.append(Ending(ticket, fate, reason, now))


def finish_times(waiting: Iterable[Ticket], free_at: Iterable[float], lanes: int, now: float,
                 ) -> dict[int, float]:
    """Return when each waiting request ends if served in order; `free_at`: of busy lanes."""
    busy = sorted(max(now, time) for time in free_at)[-lanes:]
    free = [now] * (lanes - len(busy)) + busy
    ends = {}
    for ticket in sorted(waiting, key=lambda t: t.order):
        ends[ticket.number] = free[0] + ticket.seconds
        heapq.heapreplace(free, ends[ticket.number])
    return ends


@dataclass
class ClientRates:
    """
    A token bucket for each client: `rate` requests a second, `burst` at once.

    At most `clients` are known by name; all others share one bucket, so that
    a stranger who invents names gains nothing and takes no memory.
    """

    rate: float
    burst: int
    clients: int = 1024
    _buckets: dict[str, tuple[float, float]] = field(default_factory=dict)

    def wait(self, client: str, now: float) -> float:
        """Take a request: return 0.0, or the seconds after which one is taken again."""
        name, level = self._level(client, now)
        taken = level >= 1
        self._buckets[name] = (level - 1 if taken else level, now)
        return 0.0 if taken else (1 - level) / self.rate

    def spend(self, client: str, count: int, now: float) -> float:
        """Take so many, there or not; return the seconds until the debt is paid."""
        name, level = self._level(client, now)
        self._buckets[name] = (level - count, now)
        return max(0.0, count - level) / self.rate

    def _level(self, client: str, now: float) -> tuple[str, float]:
        """Return a client's bucket, and what is in it."""
        name = client
        if client not in self._buckets and len(self._buckets) >= self.clients:
            full = [known for known, (level, since) in self._buckets.items()
                    if level + (now - since) * self.rate >= self.burst]
            for known in full:
                del self._buckets[known]
            name = client if full else ''
        level, since = self._buckets.get(name, (float(self.burst), now))
        return name, min(float(self.burst), level + (now - since) * self.rate)


def _ms(seconds: float) -> str:
    return f'{max(0.0, 1e3 * seconds):.0f} ms'
