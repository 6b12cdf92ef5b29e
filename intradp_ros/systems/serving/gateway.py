# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The gateway of a site: each request gets a seat here, goes to another site, or is refused at once.

The gateway that took a request keeps it until it has its one end, whatever executors and sites do.
It has one lock and one thread for timers, and does no I/O: what is to be done (batches to begin,
requests to send, ends to hand out) leaves in order, after the lock is released.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
import heapq
import logging
import math
import threading
import time
from typing import Any, Protocol

import numpy as np

from intradp_ros.core.steady import Steady
from intradp_ros.runtime.requests.infer_requests import (
    CLOSING,
    InferEnd,
    InferFate,
    InferRequest,
    Tensors,
)
from intradp_ros.runtime.requests.outbox import Outbox
from intradp_ros.systems.serving.executor import Executor, Opened
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.fates import ServiceFates
from intradp_ros.systems.serving.request_check import check_outputs, checked_tensors, RequestError
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.site_arrays import (
    absent,
    Asked,
    ENDED,
    GONE,
    IN_TIME,
    LATE,
    LEAVING,
    LOADING,
    make_site,
    NO_ROOM,
    NOT_HERE,
    Seat,
    SERVING,
    SiteArrays,
    TOO_LATE,
    WOULD_BE_LATE,
    WOULD_HARM,
)
from intradp_ros.systems.serving.site_change import rearranged
from intradp_ros.systems.serving.site_functions import site_functions, warmed
from intradp_ros.systems.serving.site_kernels.dispatch import (
    Flags,
    is_crowded,
    make_rows,
    MAX_HOPS,
    note_sent,
    SiteRows,
)
from intradp_ros.systems.serving.site_kernels.seats import ROUNDING
from intradp_ros.systems.serving.state_row import StateRow
from intradp_ros.systems.serving.streams import Stream, StreamError
from intradp_ros.systems.serving.table_book import TableBook

_LOG = logging.getLogger(__name__)
#: Requests that one client may have in flight; streams that are remembered.
PER_CLIENT, MOST_STREAMS = 256, 4096
#: A batch that takes this many times as long as promised, and at least so many seconds, hangs.
HANGS, HANGS_SECONDS = 20.0, 5.0
#: Seconds between looks at executors, and the longest deadline of a request.
LOOK, LONGEST = 0.5, 3600.0
#: Seconds of rest after a look that failed.
REST = 0.05
OTHER_MODEL = ('it is not the model that other executors serve: its file has changed, or its '
               'factory makes others each time')
WAITED = 'late: its time was over before earlier frames of its stream had their ends'
_WHY = {
    TOO_LATE: 'its time is over', NOT_HERE: 'no site serves it',
    LOADING: 'it is being loaded', NO_ROOM: 'the queue is full',
    WOULD_BE_LATE: 'would be late', WOULD_HARM: 'would make others late'}

Heard = Callable[[InferEnd], None]
#: As `site_kernels.dispatch.choose_site`.
Chooser = Callable[[SiteRows, int, float, Flags, int, float], int]


class Link(Protocol):
    """The way to the gateway of another site."""

    def send(self, request: InferRequest, path: Sequence[str], heard: Heard,
             ) -> Callable[[], None]:
        """Send a request that was at the sites of `path`; return what withdraws it, at once."""


class Numbers:
    """Numbers of executors; one that is given back is taken again, so that they stay small."""

    def __init__(self, taken: int) -> None:
        self._taken, self._lock = set(range(taken)), threading.Lock()

    def take(self) -> int:
        """Return the least number that nobody has."""
        with self._lock:
            number = next(k for k in range(len(self._taken) + 1) if k not in self._taken)
            self._taken.add(number)
        return number

    def give(self, number: int) -> None:
        """Give a number back."""
        with self._lock:
            self._taken.discard(number)


@dataclass(frozen=True)
class Coming:
    """An executor that has loaded its services, and a number for it that no other one has."""

    number: int
    executor: Executor
    opened: Mapping[int, Opened]


@dataclass(eq=False)
class _Held:
    """A request that this gateway keeps; times are of the gateway's clock."""

    serial: int
    request: InferRequest
    heard: Heard
    service: int
    came: float
    deadline: float
    priority: int
    path: tuple[str, ...]
    forwarded: bool
    row: int = -1
    away: str = ''
    withdraw: Callable[[], None] | None = None
    predicted: float = math.nan
    began: float = math.nan
    hops: int = 0
    #: What the service took when the tensors were checked.
    opened: Opened | None = None
    #: What it joined; its end is handed out after those of earlier frames.
    stream: Stream[_Held] | None = None
    end: InferEnd | None = None
    #: Where another site refused, when it would take it.
    retry: float = math.inf

    @property
    def over(self) -> bool:
        """Return whether it has its end, though that may wait for earlier frames."""
        return self.end is not None


class Gateway:
    """
    Takes requests for services at one of several sites.

    `executors` are the numbers of services that each executor of this site has.  Nothing is
    served before executors say that they opened something (`opened`).
    """

    def __init__(self, site: str, services: Sequence[Service],
                 executors: Sequence[Sequence[int]], sites: Sequence[str] = (), *,
                 clock: Callable[[], float] = time.monotonic, compiled: bool = True,
                 threaded: bool = True) -> None:
        """Make it; `sites` are the names of all, `threaded` is False where tests look by hand."""
        self.site, self.services = site, tuple(services)
        self.sites = tuple(dict.fromkeys((site, *sites)))
        self._number = {service.name: k for k, service in enumerate(services)}
        self._clock = clock
        self._lock = threading.Condition(threading.Lock())
        self._functions = site_functions(False)
        if compiled:
            threading.Thread(target=self._compile, daemon=True).start()
        self._arrays: SiteArrays = make_site(
            [absent(e, s) for e, numbers in enumerate(executors) for s in numbers],
            len(executors), len(services),
            largest=max((max(service.batches) for service in services), default=1))
        self._arrays.alive[:] = GONE
        self._book = TableBook()
        self._book.arrange(self._arrays)
        self._executors: dict[int, Executor] = {}
        #: What is called when an executor that is leaving has ended what it had.
        self._leaving: dict[int, Callable[[], None]] = {}
        #: Numbers of executors, those of this gateway and those that may come.
        self.numbers = Numbers(len(executors))
        #: Names of robots on their docks by the numbers that their executors have.
        self.docked: dict[int, str] = {}
        #: What became of the newest plan, for people.
        self.plan: Mapping[str, str] = {'state': 'used', 'why': ''}
        self._rows: dict[int, _Held] = {}
        self._held: dict[int, _Held] = {}
        self._batches: dict[int, tuple[int, list[_Held], float]] = {}
        self._deadlines: list[tuple[float, int]] = []
        self._clients: dict[str, int] = {}
        self._streams: dict[tuple[str, str, int], Stream[_Held]] = {}
        self._neighbours = _Neighbours(self.sites, len(services))
        #: Chooses the next site in place of `choose_site`, for comparisons.
        self.chooser: Chooser | None = None
        self._counts = [ServiceFates() for _ in services]
        self._specs: dict[int, Opened] = {}
        self._problems: dict[tuple[int, int], str] = {}
        self._serial = 0
        self._outbox = Outbox[Callable[[], None]](lambda call: call())
        self._closed = False
        self._woken = math.inf
        self._timer = threading.Thread(target=self._watch, name=f'gateway-{site}', daemon=True)
        if threaded:
            self._timer.start()

    def _compile(self) -> None:
        """Go over to machine code once it is there: until then plain Python decides the same."""
        functions = warmed()
        with self._lock:
            self._functions = functions

    # ---- requests ----

    def submit(self, request: InferRequest, heard: Heard) -> Callable[[], None]:
        """Take a request of a client; see `InferService`."""
        return self._take(request, heard, (), False)

    def forwarded(self, request: InferRequest, path: Sequence[str], heard: Heard,
                  ) -> Callable[[], None]:
        """Take a request of another gateway, which was at the sites of `path`."""
        return self._take(request, heard, tuple(path), True)

    def _take(self, request: InferRequest, heard: Heard, path: tuple[str, ...],
              forwarded: bool) -> Callable[[], None]:
        now = self._clock()
        number = self._number.get(request.service, -1)
        if number < 0:
            known = ', '.join(self._number)
            self._say(heard, InferEnd(InferFate.REFUSED, f'service {request.service[:64]!r} is '
                                      f'not served; there are {known}', site=self.site))
            return _nothing
        service, opened = self.services[number], self._specs.get(number)
        try:
            request = replace(request, tensors=checked_tensors(request.tensors, opened, service))
        except RequestError as error:
            with self._lock:
                if not forwarded:
                    self._counts[number].asked += 1
                    self._counts[number].counts[InferFate.REFUSED] += 1
            self._say(heard, InferEnd(InferFate.REFUSED, str(error), site=self.site))
            return _nothing
        with self._lock:
            held = self._new(request, heard, number, path, forwarded, now)
            held.opened = opened
            reason = CLOSING if self._closed else self._enter(held, now)
            if reason:
                self._end(held, InferEnd(InferFate.REFUSED, reason), now)
            else:
                self._place_it(held, now)
                self._start_free(now)
        self._outbox.drain()
        return lambda: self._withdrawn(held)

    def _new(self, request: InferRequest, heard: Heard, number: int, path: tuple[str, ...],
             forwarded: bool, now: float) -> _Held:
        """Return a request that is held from now on."""
        service = self.services[number]
        self._serial += 1
        remaining = service.deadline if math.isinf(request.remaining) else request.remaining
        deadline = now + min(remaining, LONGEST)
        held = _Held(self._serial, request, heard, number, now, deadline,
                     2 * (request.priority + service.priority), (*path, self.site), forwarded)
        self._held[held.serial] = held
        if not forwarded:
            self._counts[number].asked += 1
        self._clients[request.client] = self._clients.get(request.client, 0) + 1
        heapq.heappush(self._deadlines, (deadline, held.serial))
        if deadline < self._woken:
            self._lock.notify()
        return held

    def _enter(self, held: _Held, now: float) -> str:
        """Let a request join its stream; say why it is not taken at all, or ''."""
        request = held.request
        if self._clients[request.client] > PER_CLIENT:
            return f'{PER_CLIENT} requests of this client are in flight'
        if not request.stream or held.forwarded:
            return ''
        service = self.services[held.service]
        key = request.client, request.stream, held.service
        stream = self._streams.get(key)
        if stream is None:
            if len(self._streams) >= MOST_STREAMS:
                self._forget_streams()
            if len(self._streams) >= MOST_STREAMS:
                return f'{MOST_STREAMS} streams are open'
            stream = self._streams[key] = Stream(service.keep, service.rate)
        try:
            replaced, above = stream.came(request.frame, now)
        except StreamError as error:
            return str(error)
        held.stream = stream
        held.priority -= above
        older = [other for other in self._held.values()
                 if other.stream is stream and other.request.frame in replaced and not other.over
                 ] if replaced else []
        for other in older:
            self._leave(other, now)
            self._end(other, InferEnd(InferFate.CANCELLED, 'replaced by a newer frame of its '
                                      'stream'), now)
        return ''

    def _forget_streams(self) -> None:
        for key in [key for key, stream in self._streams.items() if stream.idle]:
            del self._streams[key]

    def _place_it(self, held: _Held, now: float) -> None:
        """Find a seat here or another site, or refuse."""
        opened = self._specs.get(held.service)
        if opened is not held.opened:  # what came while nobody knew what the service takes
            try:
                held.request = replace(held.request, tensors=checked_tensors(
                    held.request.tensors, opened, self.services[held.service]))
            except RequestError as error:
                self._end(held, InferEnd(InferFate.REFUSED, str(error)), now)
                return
            held.opened = opened
        seat = self._functions.take_seat(self._arrays, Asked(
            held.request.number or held.serial, held.service, held.deadline, held.priority), now)
        displaced = self._ended_rows()
        if seat.executor >= 0 and not displaced and self._roomier(held, seat, now):
            return
        if seat.executor >= 0:
            held.row, held.predicted = int(seat.row), seat.finish
            self._rows[held.row] = held
        for other in displaced:
            self._elsewhere(other, 'displaced by a request of higher priority', math.inf, now)
        if seat.executor < 0:
            when = min(held.retry, seat.finish)
            self._elsewhere(held, self._reason(held, seat.batch, now), when, now)

    def _roomier(self, held: _Held, seat: Seat, now: float) -> bool:
        """Send a request to a site that leaves it much more time than its seat, if one does."""
        seconds = seat.finish - now
        if self.chooser or len(held.path) > MAX_HOPS \
                or not is_crowded(held.deadline - now, seconds):
            return False
        choose = self._functions.choose_roomier

        def chosen(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                   at: float) -> int:
            return choose(rows, service, remaining, visited, number, at, seconds)
        target = self._neighbours.target(chosen, held, now)
        if target >= 0:
            self._functions.withdraw(self._arrays, seat.row, now)
            self._send(held, target, now)
        return target >= 0

    def _reason(self, held: _Held, why: int, now: float) -> str:
        text = _WHY[why]
        problems = {cause for (_, service), cause in self._problems.items()
                    if service == held.service}
        if why in (NOT_HERE, LOADING) and problems:
            return f'it cannot be loaded: {"; ".join(sorted(problems))}'
        if why == WOULD_BE_LATE:
            text += f': {1e3 * (held.deadline - now):.0f} ms are left'
        return text

    def _elsewhere(self, held: _Held, reason: str, when: float, now: float) -> None:
        """Forward a request that has no seat here, or refuse it."""
        target = self._neighbours.target(self.chooser or self._functions.choose_site, held, now) \
            if len(held.path) <= MAX_HOPS else -1
        if target < 0:
            self._end(held, InferEnd(InferFate.REFUSED, reason, retry_after=max(0.0, when - now)),
                      now)
            return
        self._send(held, target, now)

    def _send(self, held: _Held, target: int, now: float) -> None:
        """Send a request to another site."""
        note_sent(self._neighbours.rows, target, held.service)
        name = self.sites[target]
        held.away, held.hops = name, held.hops + 1
        self._started(held)
        held.predicted = now + self._neighbours.seconds(target, held.service, now)
        link = self._neighbours.links[name]
        request = replace(held.request, stream='', frame=0, number=held.request.number
                          or held.serial, priority=held.request.priority)
        path, ways = held.path, 2 * float(self._neighbours.rows.hop[target])

        def send() -> None:
            left = held.deadline - self._clock() - ways
            try:
                withdraw = link.send(replace(request, remaining=max(0.0, left)), path,
                                     lambda end: self._away_ended(held, name, end))
            except Exception as error:  # whatever a way raises: it is placed anew
                _LOG.exception('%s: a request cannot be sent to %s', self.site, name)
                self._away_ended(held, name, InferEnd(InferFate.REFUSED, str(error)))
                return
            with self._lock:
                gone = held.over or held.away != name
                held.withdraw = None if gone else withdraw
            if gone:
                withdraw()
        self._outbox.put(send)

    def _withdrawn(self, held: _Held) -> None:
        now = self._clock()
        with self._lock:
            if held.end is not None:
                _taken_back(held, InferFate.CANCELLED, 'withdrawn')
            else:
                self._leave(held, now)
                self._end(held, InferEnd(InferFate.CANCELLED, 'withdrawn'), now)
                self._start_free(now)
        self._outbox.drain()

    def _leave(self, held: _Held, now: float) -> None:
        """Take a request from its seat, or call it back."""
        if held.row >= 0:
            self._functions.withdraw(self._arrays, held.row, now)
            self._rows.pop(held.row, None)
            held.row = -1
        self._call_back(held)

    def _call_back(self, held: _Held) -> None:
        if held.withdraw is not None:
            self._outbox.put(held.withdraw)
        held.withdraw, held.away = None, ''

    def _away_ended(self, held: _Held, site: str, end: InferEnd) -> None:
        """Hear from another site of a request that was sent there."""
        now = self._clock()
        with self._lock:
            if held.over or held.away != site:
                return
            held.away, held.withdraw = '', None
            end = self._checked(held, site, end)
            if end.fate in (InferFate.IN_TIME, InferFate.LATE):
                late = end.fate is InferFate.LATE or now > held.deadline
                self._end(held, replace(
                    end, fate=InferFate.LATE if late else InferFate.IN_TIME,
                    reason=end.reason if late else '', tensors={} if late else end.tensors), now)
            else:
                held.path = tuple(dict.fromkeys((*held.path, *end.path, site)))
                held.retry = min(held.retry, now + end.retry_after)
                self._place_it(held, now)
            self._start_free(now)
        self._outbox.drain()

    def _checked(self, held: _Held, site: str, end: InferEnd) -> InferEnd:
        """Return what another site answered; a refusal if that is not what the service gives."""
        known = self._neighbours.sites
        end = replace(end, site=end.site if end.site in known else site,
                      path=tuple(name for name in end.path if name in known))
        if end.fate is InferFate.IN_TIME:
            try:
                check_outputs(end.tensors, self._specs.get(held.service),
                              self.services[held.service])
            except RequestError as error:
                _LOG.error('%s: site %s answers something else: %s', self.site, site, error)
                return InferEnd(InferFate.REFUSED, str(error))
        return end

    # ---- executors ----

    def joined(self, executor: int, what: Executor) -> None:
        """Take an executor, which has loaded nothing yet; one in its place is lost."""
        now = self._clock()
        with self._lock:
            if executor in self._executors:
                self._lose(executor, now)
            self._executors[executor] = what
            self._arrays.alive[executor] = SERVING
        self._outbox.drain()

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear that an executor has loaded a service, also anew: then who sits there moves."""
        now = self._clock()
        with self._lock:
            place = self._book.place.get((executor, service))
            if place is None:  # its executor has left
                return
            served = self._specs.get(service)
            if served and not served.same(found) and self._book.serves(service, executor):
                self._problems[executor, service] = OTHER_MODEL
                _LOG.error('%s: executor %d cannot serve %s: %s', self.site, executor,
                           self.services[service].name, OTHER_MODEL)
                return
            self._specs[service] = found
            self._problems.pop((executor, service), None)
            seated = [self._rows[int(row)] for row in
                      self._arrays.queue[place, :self._arrays.queued[place]]]
            for held in seated:
                self._leave(held, now)
            self._book.open(executor, service, self.services[service], found)
            for held in seated:
                self._place_it(held, now)
            self._start_free(now)
        self._outbox.drain()

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear that an executor cannot load a service."""
        _LOG.error('%s: executor %d cannot load %s: %s', self.site, executor,
                   self.services[service].name, why)
        with self._lock:
            if (executor, service) in self._book.place:
                self._problems[executor, service] = why

    def changed(self, coming: Sequence[Coming], leaving: Mapping[int, Callable[[], None]],
                ) -> None:
        """
        Go over to other executors: `coming` ones are used at once, `leaving` ones take nobody new.

        These end what they have, as far as others do not take it over before; then what stands
        beside their number is called, and the number may be used again.
        """
        now = self._clock()
        with self._lock:
            self._arrange([*self._book.place, *((one.number, s) for one in coming
                                                for s in one.opened)])
            for one in coming:
                self._executors[one.number] = one.executor
                self._arrays.alive[one.number] = SERVING
                for service, found in one.opened.items():
                    self._specs[service] = found
                    self._book.open(one.number, service, self.services[service], found)
            for number, over in leaving.items():
                self._leaving[number] = over
                if self._arrays.alive[number]:
                    self._arrays.alive[number] = LEAVING
            self._start_free(now)
        self._outbox.drain()

    def _arrange(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._arrays = rearranged(self._arrays, pairs, 1 + max((e for e, _ in pairs), default=-1))
        self._book.arrange(self._arrays)
        self._problems = {pair: why for pair, why in self._problems.items()
                          if pair in self._book.place}

    def _end_leaving(self) -> None:
        """Let go executors that are leaving and have ended what they had."""
        arrays = self._arrays
        over = [e for e in self._leaving if arrays.running[e] < 0 and not arrays.slotted[e]]
        if not over:
            return
        for executor in over:
            self._executors.pop(executor, None)
            self._outbox.put(self._leaving.pop(executor))
        self._arrange([pair for pair in self._book.place if pair[0] not in over])

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""
        now = self._clock()
        with self._lock:
            number, batch, began = self._batches.get(executor, (-1, [], 0.0))
            if number != result.number:
                return
            del self._batches[executor]
            place = int(self._arrays.running[executor])
            self._functions.end_batch(self._arrays, executor, now)
            ended = self._arrays.ended[:self._arrays.marks[ENDED]]
            fates = {int(row): int(self._arrays.fate[row]) for row in ended}
            self._book.learn(place, len(batch), now - began)
            for k, held in enumerate(batch):
                if held.over:
                    continue
                self._rows.pop(held.row, None)
                fate, held.row = fates[held.row], -1
                self._end(held, self._answer(held, fate, result, k, len(batch)), now)
            self._start_free(now)
        self._outbox.drain()

    def _answer(self, held: _Held, fate: int, result: BatchResult, k: int, rows: int) -> InferEnd:
        end = InferEnd(InferFate.IN_TIME, queue=held.began - held.came, compute=result.seconds,
                       batch=rows)
        if result.why[k]:
            return replace(end, fate=InferFate.REFUSED, reason=result.why[k])
        if fate == LATE:
            return replace(end, fate=InferFate.LATE,
                           reason='late: its batch took longer than promised')
        assert fate == IN_TIME
        return replace(end, tensors=result.rows[k])

    def lost(self, executor: int, why: str, which: Executor) -> None:
        """Hear that an executor is gone: its requests are placed anew, forwarded or refused."""
        now = self._clock()
        with self._lock:
            if self._executors.get(executor) is not which:
                return
            self._lose(executor, now)
            self._start_free(now)
        self._outbox.drain()

    def _lose(self, executor: int, now: float) -> None:
        self._executors.pop(executor, None)
        self._batches.pop(executor, None)
        self._functions.lose(self._arrays, executor, now)
        self._book.close(executor)
        for held in self._ended_rows():
            self._place_it(held, now)

    def _start_free(self, now: float) -> None:
        """Let free executors begin with whoever is seated."""
        arrays = self._arrays
        # who has nothing seated takes over from others: after these have begun
        for executor in sorted(self._executors, key=lambda number: not arrays.slotted[number]):
            what = self._executors[executor]
            if arrays.running[executor] >= 0 or not arrays.alive[executor]:
                continue
            rows = self._functions.start_batch(arrays, executor, now)
            for held in self._ended_rows():
                self._end(held, InferEnd(InferFate.LATE, 'late: its time was over before it '
                                         'was computed'), now)
            if not rows:
                continue
            batch = [self._rows[int(row)] for row in arrays.batch[executor, :rows]]
            self._serial += 1
            self._batches[executor] = self._serial, batch, now
            for held in batch:
                held.began = now
                self._started(held)
            service = int(arrays.service_of[arrays.running[executor]])
            self._outbox.put(_begin(what, self._serial, service,
                                    [held.request.tensors for held in batch]))
        self._end_leaving()

    def _started(self, held: _Held) -> None:
        if held.stream is not None:
            held.stream.started(held.request.frame)

    def _ended_rows(self) -> list[_Held]:
        """Return the requests whose rows the newest call has ended."""
        arrays = self._arrays
        rows = [int(row) for row in arrays.ended[:arrays.marks[ENDED]]]
        found = [held for row in rows if (held := self._rows.pop(row, None)) is not None]
        for held in found:
            held.row = -1
        return found

    # ---- other sites ----

    def linked(self, site: str, link: Link) -> None:
        """Hear that another site can be reached."""
        with self._lock:
            if site in self.sites:
                self._neighbours.links[site] = link

    def unlinked(self, site: str) -> None:
        """Hear that it cannot: what was sent there is placed anew."""
        now = self._clock()
        with self._lock:
            self._neighbours.forget(site)
            for held in [h for h in self._held.values() if h.away == site]:
                held.away, held.withdraw = '', None
                held.path = tuple(dict.fromkeys((*held.path, site)))
                self._place_it(held, now)
            self._start_free(now)
        self._outbox.drain()

    def heard_row(self, site: str, row: StateRow, hop: float) -> None:
        """Take the state row of another site, which was made `hop` seconds ago."""
        with self._lock:
            self._neighbours.heard(site, row, self._number, hop, self._clock())

    def row(self) -> StateRow:
        """Return what other sites need to know of this one now."""
        with self._lock:
            count = len(self.services)
            ends, shares, least = np.empty(count), np.empty(count), np.empty(count)
            self._functions.outlook(self._arrays, self._clock(), ends, shares, least)
        return StateRow({service.name: (float(ends[k]), float(shares[k]), float(least[k]))
                         for k, service in enumerate(self.services) if math.isfinite(ends[k])})

    # ---- ends ----

    def _end(self, held: _Held, end: InferEnd, now: float) -> None:
        """Give a request its one end; call it with the lock."""
        if held.over:
            return
        held.end = end if end.site else replace(end, site=self.site)
        if held.stream is None:
            self._release(held, held.end, now)
            return
        for _, other in held.stream.ended(held.request.frame, held):
            assert other.end is not None
            self._release(other, other.end, now)

    def _release(self, held: _Held, end: InferEnd, now: float) -> None:
        """Count an end and hand it out: nothing holds the request any more."""
        if end.fate is InferFate.IN_TIME and now > held.deadline + ROUNDING:
            end = _taken_back(held, InferFate.LATE, WAITED)
        del self._held[held.serial]
        client = held.request.client
        if self._clients[client] == 1:
            del self._clients[client]
        else:
            self._clients[client] -= 1
        if len(self._deadlines) > 2 * len(self._held) + 64:
            self._deadlines = [(one.deadline, serial) for serial, one in self._held.items()]
            heapq.heapify(self._deadlines)
        if not held.forwarded:
            self._count(held, end, now)
        end = replace(end, finished=now - held.came, predicted=held.predicted - held.came,
                      path=tuple(dict.fromkeys((*held.path, *end.path))))
        self._outbox.put(lambda: held.heard(end))

    def _count(self, held: _Held, end: InferEnd, now: float) -> None:
        counts = self._counts[held.service]
        counts.counts[end.fate] += 1
        counts.transfers += held.hops
        if end.fate is InferFate.IN_TIME:
            counts.seconds.append(now - held.came)
            counts.promised += int(now <= held.predicted + 1e-3)
        else:
            counts.wasted += held.hops

    def _expire(self, now: float) -> None:
        """End as late what is past its deadline; call it with the lock."""
        late = []
        while self._deadlines and self._deadlines[0][0] < now:
            _, serial = heapq.heappop(self._deadlines)
            if serial in self._held:
                late.append(self._held[serial])
        if not late:
            return
        self._functions.expire(self._arrays, now)
        self._ended_rows()
        for held in late:
            if held.end is not None:
                _taken_back(held, InferFate.LATE, WAITED)
                continue
            self._leave(held, now)
            self._end(held, InferEnd(InferFate.LATE, 'late: its time was over'), now)

    # ---- the thread for timers ----

    def look(self) -> float:
        """Do what time alone brings; return when the next look is due at the latest."""
        now = self._clock()
        with self._lock:
            self._expire(now)
            for executor, (_, _, began) in self._batches.items():
                promised = float(self._arrays.free_at[executor]) - began
                what = self._executors.get(executor)
                if what is not None and now - began > max(HANGS_SECONDS, HANGS * promised):
                    _LOG.error('%s: executor %d hangs in a batch, and is ended', self.site,
                               executor)
                    self._outbox.put(what.kill)
            self._start_free(now)
            first = self._deadlines[0][0] if self._deadlines else math.inf
            self._woken = min(first + 1e-4, now + LOOK)
        self._outbox.drain()
        return self._woken

    def _watch(self) -> None:
        steady = Steady(f'deadlines of site {self.site}')
        while not self._closed:
            due = steady.do(self.look, math.nan)
            if math.isnan(due):
                time.sleep(REST)
                continue
            with self._lock:
                first = self._deadlines[0][0] if self._deadlines else math.inf
                wait = min(due, first + 1e-4) - self._clock()
                if wait > 0 and not self._closed:
                    self._lock.wait(wait)

    def close(self) -> None:
        """Refuse what is held, and end the thread."""
        now = self._clock()
        with self._lock:
            self._closed = True
            for held in list(self._held.values()):
                self._leave(held, now)
                self._end(held, InferEnd(InferFate.REFUSED, CLOSING), now)
            self._lock.notify()
        self._outbox.drain()
        if self._timer.is_alive() and threading.current_thread() is not self._timer:
            self._timer.join()

    def described(self) -> Mapping[str, Any]:
        """Return plain figures of this site, for people and pages."""
        with self._lock:
            in_flight = [0] * len(self.services)
            for held in self._held.values():
                in_flight[held.service] += not held.forwarded
            return {
                'site': self.site, 'executors': len(self._executors), 'plan': dict(self.plan),
                'docked': sorted(self.docked.values()),
                'links': sorted(self._neighbours.links),
                'hop_ms': {name: 1e3 * float(self._neighbours.rows.hop[k])
                           for name, k in self._neighbours.sites.items()
                           if name in self._neighbours.links},
                'services': {service.name: {
                    **self._counts[k].described(in_flight[k]), 'kind': service.kind,
                    'waiting': int(self._arrays.queued[self._arrays.service_of == k].sum()),
                    'spent_in_time_s': float(self._arrays.spent[k, 0]),
                    'spent_wasted_s': float(self._arrays.spent[k, 1]),
                    'batches': self._book.described(k)}
                    for k, service in enumerate(self.services)},
                'problems': {f'{self.services[s].name} on executor {e}': why
                             for (e, s), why in self._problems.items()}}

    def specs(self, service: str) -> Opened | None:
        """Return what a service takes and gives, None until an executor has opened it."""
        number = self._number.get(service, -1)
        return self._specs.get(number)

    def _say(self, heard: Heard, end: InferEnd) -> None:
        self._outbox.put(lambda: heard(end))
        self._outbox.drain()


class _Neighbours:
    """What a gateway knows of other sites."""

    def __init__(self, sites: Sequence[str], services: int) -> None:
        self.sites = {name: k for k, name in enumerate(sites)}
        self.links: dict[str, Link] = {}
        self.rows = make_rows(len(sites), services)

    def target(self, chooser: Chooser, held: _Held, now: float) -> int:
        """Return the site that a request is forwarded to, -1 for none."""
        visited = np.array([name not in self.links or name in held.path for name in self.sites])
        if visited.all():
            return -1
        return int(chooser(
            self.rows, held.service, held.deadline - now, visited,
            held.request.number or held.serial, now))

    def seconds(self, target: int, service: int, now: float) -> float:
        """Return after how many seconds an answer of a site is predicted."""
        rows = self.rows
        ends = rows.ends[target, service] - (now - rows.made[target])
        return float(max(ends, rows.least[target, service]) + rows.sent[target]
                     + 2 * rows.hop[target])

    def heard(self, site: str, row: StateRow, numbers: Mapping[str, int], hop: float,
              now: float) -> None:
        """Take a row."""
        k = self.sites.get(site, 0)
        if k == 0:
            return
        self.rows.ends[k] = math.inf
        for name, (ends, share, least) in row.services.items():
            if (number := numbers.get(name)) is not None:
                self.rows.ends[k, number] = ends
                self.rows.shares[k, number] = share
                self.rows.least[k, number] = least
        self.rows.made[k], self.rows.hop[k], self.rows.sent[k] = now - hop, hop, 0.0

    def forget(self, site: str) -> None:
        """Forget a site that cannot be reached."""
        self.links.pop(site, None)
        if k := self.sites.get(site, 0):
            self.rows.ends[k] = math.inf


def _taken_back(held: _Held, fate: InferFate, reason: str) -> InferEnd:
    """Return the end of a request whose answer, if it has one, is not handed out any more."""
    assert held.end is not None
    if held.end.fate is InferFate.IN_TIME:
        held.end = replace(held.end, fate=fate, reason=reason, tensors={})
    return held.end


def _begin(executor: Executor, number: int, service: int, rows: Sequence[Tensors],
           ) -> Callable[[], None]:
    def begin() -> None:
        try:
            executor.run(number, service, rows)
        except Exception:  # whatever it is, no answer would come: its requests are placed anew
            _LOG.exception('a batch cannot begin, and its executor is ended')
            executor.kill()
    return begin


def _nothing() -> None:
    return
