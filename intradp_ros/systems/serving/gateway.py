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
from dataclasses import dataclass, field, replace
from functools import partial
import logging
import math
import threading
import time
from typing import Any

import numpy as np

from intradp_ros.core.steady import Steady
from intradp_ros.runtime.requests.infer_requests import (
    CLOSING,
    DEADLY,
    InferEnd,
    InferFate,
    InferRequest,
    Tensors,
)
from intradp_ros.runtime.requests.outbox import Outbox
from intradp_ros.systems.serving.executor import Executor, Opened
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.held_requests import Heard, Held, HeldRequests, WAITED
from intradp_ros.systems.serving.neighbours import Link, Neighbours
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
    MAX_HOPS,
    SiteRows,
)
from intradp_ros.systems.serving.state_row import StateRow
from intradp_ros.systems.serving.table_book import TableBook

_LOG = logging.getLogger(__name__)
#: A batch that takes this many times as long as promised, and at least so many seconds, hangs.
HANGS, HANGS_SECONDS = 20.0, 5.0
#: Executors of all sites that may die in the batch of a request: it may be what they die of.  So
#: after the first one the requests of a batch are computed one by one, and only one is to blame.
MOST_DEATHS = 2
#: Seconds between looks at executors, and of rest after one that failed.
LOOK, REST = 0.5, 0.05
OTHER_MODEL = ('it is not the model that other executors serve: its file has changed, or its '
               'factory makes others each time')
_WHY = {
    TOO_LATE: 'its time is over', NOT_HERE: 'no site serves it',
    LOADING: 'it is being loaded', NO_ROOM: 'the queue is full',
    WOULD_BE_LATE: 'would be late', WOULD_HARM: 'would make others late'}


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
class _Lane:
    """
    One executor: number, requests and begin of the batch that it runs.

    `ended` has what became of the first ones.
    `over` is called when it, which is leaving then, has ended what it had.
    """

    executor: Executor | None = None
    number: int = -1
    batch: Sequence[Held] = ()
    ended: list[tuple[BatchResult, int]] = field(default_factory=list)
    began: float = 0.0
    over: Callable[[], None] | None = None

    def asked(self) -> Sequence[Held]:
        """Return what it computes at once, of its batch: one if a batch with one ended it."""
        left = self.batch[len(self.ended):]
        return left[:1] if any(held.deaths for held in self.batch) else left

    def all_ended(self) -> list[tuple[Held, BatchResult, int]]:
        """Return what is computed of its batch, and where; it has none any more."""
        found = [(held, result, k) for held, (result, k) in zip(self.batch, self.ended)]
        self.batch, self.ended = (), []
        return found


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
        self._lanes: dict[int, _Lane] = {}
        #: Numbers of executors, those of this gateway and those that may come.
        self.numbers = Numbers(len(executors))
        #: Names of robots on their docks by the numbers that their executors have.
        self.docked: dict[int, str] = {}
        #: What became of the newest plan, for people.
        self.plan: Mapping[str, str] = {'state': 'used', 'why': ''}
        self._held = HeldRequests(services)
        self.neighbours = Neighbours((site, *sites), len(services))
        self._specs: dict[int, Opened] = {}
        #: Why an executor does not serve a service, and what it has loaded all the same.
        self._problems: dict[tuple[int, int], tuple[str, Opened | None]] = {}
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
                    self._held.refused(number)
            self._say(heard, InferEnd(InferFate.REFUSED, str(error), site=self.site))
            return _nothing
        with self._lock:
            held = self._held.hold(request, heard, number, (*path, self.site), forwarded, now)
            if held.deadline < self._woken:
                self._lock.notify()
            held.opened = opened
            if self._closed:
                self._end(held, InferEnd(InferFate.REFUSED, CLOSING), now)
            else:
                self._enter(held, now)
        self._outbox.drain()
        return lambda: self._withdrawn(held)

    def _enter(self, held: Held, now: float) -> None:
        reason, replaced = self._held.enter(held, now)
        for other in replaced:
            self._leave(other, now)
            self._end(other, InferEnd(InferFate.CANCELLED, 'replaced by a newer frame of its '
                                      'stream'), now)
        if reason:
            self._end(held, InferEnd(InferFate.REFUSED, reason), now)
        else:
            self._place_it(held, now)
            self._start_free(now)

    def _place_it(self, held: Held, now: float) -> None:
        """Find a seat here or another site, or refuse."""
        if held.deaths >= MOST_DEATHS:
            self._end(held, InferEnd(InferFate.REFUSED, DEADLY), now)
            return
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
            held.chance, held.service, held.deadline, held.priority), now)
        displaced = self._ended_rows()
        if seat.executor >= 0 and not displaced and self._roomier(held, seat, now):
            return
        if seat.executor >= 0:
            held.row, held.predicted = int(seat.row), seat.finish
            self._held.rows[held.row] = held
        for other in displaced:
            self._elsewhere(other, 'displaced by a request of higher priority', math.inf, now)
        if seat.executor < 0:
            when = min(held.retry, seat.finish)
            self._elsewhere(held, self._reason(held, seat.batch, now), when, now)

    def _roomier(self, held: Held, seat: Seat, now: float) -> bool:
        """Send a request to a site that leaves it much more time than its seat, if one does."""
        seconds = seat.finish - now
        if self.neighbours.chooser or len(held.path) > MAX_HOPS \
                or not is_crowded(held.deadline - now, seconds):
            return False
        choose = self._functions.choose_roomier

        def chosen(rows: SiteRows, service: int, remaining: float, visited: Flags, number: int,
                   at: float) -> int:
            return choose(rows, service, remaining, visited, number, at, seconds)
        target = self.neighbours.target(chosen, held, now)
        if target >= 0:
            self._functions.withdraw(self._arrays, seat.row, now)
            self._send(held, target, now)
        return target >= 0

    def lacking(self, name: str) -> str:
        """Say why a service that has no specs is not served."""
        with self._lock:
            return self._problem(self._number.get(name, -1)) or _WHY[LOADING]

    def _problem(self, service: int) -> str:
        problems = {cause for (_, number), (cause, _) in self._problems.items()
                    if number == service}
        return f'it cannot be loaded: {"; ".join(sorted(problems))}' if problems else ''

    def _reason(self, held: Held, why: int, now: float) -> str:
        text = _WHY[why]
        if why in (NOT_HERE, LOADING):
            return self._problem(held.service) or text
        if why == WOULD_BE_LATE:
            text += f': {1e3 * (held.deadline - now):.0f} ms are left'
        return text

    def _elsewhere(self, held: Held, reason: str, when: float, now: float) -> None:
        """Forward a request that has no seat here, or refuse it."""
        target = self.neighbours.target(self._functions.choose_site, held, now) \
            if len(held.path) <= MAX_HOPS else -1
        if target < 0:
            self._end(held, InferEnd(InferFate.REFUSED, reason, retry_after=max(0.0, when - now)),
                      now)
            return
        self._send(held, target, now)

    def _send(self, held: Held, target: int, now: float) -> None:
        """Send a request to another site."""
        name, link, seconds, ways = self.neighbours.way(target, held.service, now)
        held.away, held.hops, held.predicted = name, held.hops + 1, now + seconds
        held.started()
        request = replace(held.request, stream='', frame=0, number=held.chance,
                          deaths=held.deaths)
        path = held.path

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

    def _withdrawn(self, held: Held) -> None:
        now = self._clock()
        with self._lock:
            held.taken_back(InferFate.CANCELLED, 'withdrawn')
            if not held.over:
                self._leave(held, now)
                self._end(held, InferEnd(InferFate.CANCELLED, 'withdrawn'), now)
                self._start_free(now)
        self._outbox.drain()

    def _leave(self, held: Held, now: float) -> None:
        """Take a request from its seat, or call it back."""
        if held.row >= 0:
            self._functions.withdraw(self._arrays, held.row, now)
            self._held.of_rows([held.row])
        self._call_back(held)

    def _call_back(self, held: Held) -> None:
        if held.withdraw is not None:
            self._outbox.put(held.withdraw)
        held.withdraw, held.away = None, ''

    def _away_ended(self, held: Held, site: str, end: InferEnd) -> None:
        """Hear from another site of a request that was sent there."""
        now = self._clock()
        with self._lock:
            if held.over or held.away != site:
                return
            held.away, held.withdraw = '', None
            end = self._checked(held, site, end)
            held.deaths = max(held.deaths, end.deaths)
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

    def _checked(self, held: Held, site: str, end: InferEnd) -> InferEnd:
        """Return what another site answered; a refusal if that is not what the service gives."""
        known = self.neighbours.sites
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
            if executor in self._lanes:
                self._lose(executor, now)
            self._lanes.setdefault(executor, _Lane()).executor = what
            self._arrays.alive[executor] = SERVING
        self._outbox.drain()

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear that an executor has loaded a service, also anew: then who sits there moves."""
        now = self._clock()
        with self._lock:
            if (executor, service) not in self._book.place:  # its executor has left
                return
            self._problems[executor, service] = OTHER_MODEL, found
            self._open_same(now)
            if (executor, service) in self._problems:
                _LOG.error('%s: executor %d cannot serve %s: %s', self.site, executor,
                           self.services[service].name, OTHER_MODEL)
            self._start_free(now)
        self._outbox.drain()

    def _open_same(self, now: float) -> None:
        """Use what executors have loaded, unless others serve another model of that service."""
        for (executor, service), (_, found) in list(self._problems.items()):
            served = self._specs.get(service)
            if found is None or served and not served.same(found) \
                    and self._book.serves(service, executor):
                continue
            del self._problems[executor, service]
            self._specs[service] = found
            place = self._book.place[executor, service]
            seated = [self._held.rows[int(row)] for row in
                      self._arrays.queue[place, :self._arrays.queued[place]]]
            for held in seated:
                self._leave(held, now)
            self._book.open(executor, service, self.services[service], found)
            for held in seated:
                self._place_it(held, now)

    def lacks(self, executor: int) -> bool:
        """Return whether an executor does not serve all that it should."""
        with self._lock:
            return any(number == executor for number, _ in self._problems)

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear that an executor cannot load a service."""
        _LOG.error('%s: executor %d cannot load %s: %s', self.site, executor,
                   self.services[service].name, why)
        with self._lock:
            if (executor, service) in self._book.place:
                self._problems[executor, service] = why, None

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
                self._lanes[one.number] = _Lane(one.executor)
                self._arrays.alive[one.number] = SERVING
                for service, found in one.opened.items():
                    self._specs[service] = found
                    self._book.open(one.number, service, self.services[service], found)
            for number, over in leaving.items():
                self._lanes.setdefault(number, _Lane()).over = over
                if self._arrays.alive[number]:
                    self._arrays.alive[number] = LEAVING
            self._start_free(now)
        self._outbox.drain()

    def _arrange(self, pairs: Sequence[tuple[int, int]]) -> None:
        self._arrays = rearranged(self._arrays, pairs, 1 + max((e for e, _ in pairs), default=-1))
        self._book.arrange(self._arrays)
        self._problems = {pair: why for pair, why in self._problems.items()
                          if pair in self._book.place}

    def _end_leaving(self, now: float) -> None:
        """Let go executors that are leaving and have ended what they had."""
        arrays = self._arrays
        over = {e: lane.over for e, lane in self._lanes.items()
                if lane.over and arrays.running[e] < 0 and not arrays.slotted[e]}
        if not over:
            return
        for executor in over:
            del self._lanes[executor]
        self._outbox.put(*over.values())
        self._arrange([pair for pair in self._book.place if pair[0] not in over])
        self._open_same(now)

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""
        now = self._clock()
        with self._lock:
            lane = self._lanes.get(executor)
            if lane is None or not lane.batch or lane.number != result.number:
                return
            lane.ended += [(result, k) for k in range(len(result.why))]
            place = int(self._arrays.running[executor])
            if len(lane.ended) < len(lane.batch):
                self._ask(lane, place)
            else:
                self._functions.end_batch(self._arrays, executor, now)
                ended = self._arrays.ended[:self._arrays.marks[ENDED]]
                fates = {int(row): int(self._arrays.fate[row]) for row in ended}
                if len(result.why) == len(lane.batch):
                    self._book.learn(place, len(lane.batch), now - lane.began)
                for held, found, k in lane.all_ended():
                    if held.over:
                        continue
                    fate = fates[held.row]
                    self._held.of_rows([held.row])
                    self._end(held, self._answer(held, fate, found, k), now)
                self._start_free(now)
        self._outbox.drain()

    def _answer(self, held: Held, fate: int, result: BatchResult, k: int) -> InferEnd:
        end = InferEnd(InferFate.IN_TIME, queue=held.began - held.came, compute=result.seconds,
                       batch=len(result.why))
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
            lane = self._lanes.get(executor)
            if lane is None or lane.executor is not which:
                return
            self._lose(executor, now)
            self._start_free(now)
        self._outbox.drain()

    def _lose(self, executor: int, now: float) -> None:
        lane = self._lanes.pop(executor)
        if lane.over is not None:
            self._lanes[executor] = _Lane(over=lane.over)
        for held in lane.asked():
            held.deaths += 1
        computed = {held.serial: (result, k) for held, result, k in lane.all_ended()}
        self._functions.lose(self._arrays, executor, now)
        self._book.close(executor)
        ended = self._ended_rows()
        self._problems = {(e, s): said for (e, s), said in self._problems.items()
                          if e != executor or said[1] is None}
        self._open_same(now)
        for held in ended:
            if held.serial in computed:  # before it died of another one
                self._end(held, self._answer(held, IN_TIME if now <= held.deadline else LATE,
                                             *computed[held.serial]), now)
            else:
                self._place_it(held, now)

    def _start_free(self, now: float) -> None:
        """Let free executors begin with whoever is seated."""
        arrays = self._arrays
        # who has nothing seated takes over from others: after these have begun
        for executor in sorted(self._lanes, key=lambda number: not arrays.slotted[number]):
            lane = self._lanes[executor]
            if lane.executor is None or arrays.running[executor] >= 0 \
                    or not arrays.alive[executor]:
                continue
            rows = self._functions.start_batch(arrays, executor, now)
            for held in self._ended_rows():
                self._end(held, InferEnd(InferFate.LATE, 'late: its time was over before it '
                                         'was computed'), now)
            if not rows:
                continue
            lane.batch = [self._held.rows[int(row)] for row in arrays.batch[executor, :rows]]
            lane.began = now
            for held in lane.batch:
                held.began = now
                held.started()
            self._ask(lane, int(arrays.running[executor]))
        self._end_leaving(now)

    def _ask(self, lane: _Lane, place: int) -> None:
        """Let an executor compute what comes next of its batch."""
        assert lane.executor is not None
        lane.number = self._held.number()
        self._outbox.put(partial(_begin, lane.executor, lane.number,
                                 int(self._arrays.service_of[place]),
                                 [held.request.tensors for held in lane.asked()]))

    def _ended_rows(self) -> list[Held]:
        """Return the requests whose rows the newest call has ended."""
        arrays = self._arrays
        return self._held.of_rows(arrays.ended[:arrays.marks[ENDED]].tolist())

    # ---- other sites ----

    def linked(self, site: str, link: Link) -> None:
        """Hear that another site can be reached."""
        with self._lock:
            self.neighbours.reach(site, link)

    def unlinked(self, site: str) -> None:
        """Hear that it cannot: what was sent there is placed anew."""
        now = self._clock()
        with self._lock:
            self.neighbours.forget(site)
            for held in [h for h in self._held.all.values() if h.away == site]:
                held.away, held.withdraw = '', None
                held.path = tuple(dict.fromkeys((*held.path, site)))
                self._place_it(held, now)
            self._start_free(now)
        self._outbox.drain()

    def heard_row(self, site: str, row: StateRow, hop: float) -> None:
        """Take the state row of another site, which was made `hop` seconds ago."""
        with self._lock:
            self.neighbours.heard(site, row, self._number, hop, self._clock())

    def row(self) -> StateRow:
        """Return what other sites need to know of this one now."""
        with self._lock:
            count = len(self.services)
            ends, shares, least = np.empty(count), np.empty(count), np.empty(count)
            self._functions.outlook(self._arrays, self._clock(), ends, shares, least)
        return StateRow({service.name: (float(ends[k]), float(shares[k]), float(least[k]))
                         for k, service in enumerate(self.services) if math.isfinite(ends[k])})

    # ---- ends ----

    def _end(self, held: Held, end: InferEnd, now: float) -> None:
        """Give a request its one end; call it with the lock."""
        for heard, said in self._held.end(
                held, end if end.site else replace(end, site=self.site), now):
            self._outbox.put(partial(heard, said))

    def _expire(self, now: float) -> None:
        """End as late what is past its deadline; call it with the lock."""
        late = self._held.late(now)
        if not late:
            return
        self._functions.expire(self._arrays, now)
        self._ended_rows()
        for held in late:
            held.taken_back(InferFate.LATE, WAITED)
            if not held.over:
                self._leave(held, now)
                self._end(held, InferEnd(InferFate.LATE, 'late: its time was over'), now)

    # ---- the thread for timers ----

    def look(self) -> float:
        """Do what time alone brings; return when the next look is due at the latest."""
        now = self._clock()
        with self._lock:
            self._expire(now)
            for executor, lane in self._lanes.items():
                promised = float(self._arrays.free_at[executor]) - lane.began
                if lane.batch and lane.executor is not None \
                        and now - lane.began > max(HANGS_SECONDS, HANGS * promised):
                    _LOG.error('%s: executor %d hangs in a batch, and is ended', self.site,
                               executor)
                    self._outbox.put(lane.executor.kill)
            self._start_free(now)
            self._woken = min(self._held.due + 1e-4, now + LOOK)
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
                wait = min(due, self._held.due + 1e-4) - self._clock()
                if wait > 0 and not self._closed:
                    self._lock.wait(wait)

    def close(self) -> None:
        """Refuse what is held, and end the thread."""
        now = self._clock()
        with self._lock:
            self._closed = True
            for held in list(self._held.all.values()):
                self._leave(held, now)
                self._end(held, InferEnd(InferFate.REFUSED, CLOSING), now)
            self._lock.notify()
        self._outbox.drain()
        if self._timer.is_alive() and threading.current_thread() is not self._timer:
            self._timer.join()

    def described(self) -> Mapping[str, Any]:
        """Return plain figures of this site, for people and pages."""
        with self._lock:
            in_flight, near = self._held.in_flight(), self.neighbours
            return {
                'site': self.site, 'plan': dict(self.plan),
                'executors': sum(lane.executor is not None for lane in self._lanes.values()),
                'docked': sorted(self.docked.values()), 'links': sorted(near.links),
                'hop_ms': {name: 1e3 * float(near.rows.hop[k])
                           for name, k in near.sites.items() if name in near.links},
                'services': {service.name: {
                    **self._held.counts[k].described(in_flight[k]), 'kind': service.kind,
                    'waiting': int(self._arrays.queued[self._arrays.service_of == k].sum()),
                    'spent_in_time_s': float(self._arrays.spent[k, 0]),
                    'spent_wasted_s': float(self._arrays.spent[k, 1]),
                    'batches': self._book.described(k)}
                    for k, service in enumerate(self.services)},
                'problems': {f'{self.services[s].name} on executor {e}': why
                             for (e, s), (why, _) in self._problems.items()}}

    def specs(self, service: str) -> Opened | None:
        """Return what a service takes and gives, None until an executor has opened it."""
        number = self._number.get(service, -1)
        return self._specs.get(number)

    def _say(self, heard: Heard, end: InferEnd) -> None:
        self._outbox.put(lambda: heard(end))
        self._outbox.drain()


def _begin(executor: Executor, number: int, service: int, rows: Sequence[Tensors]) -> None:
    try:
        executor.run(number, service, rows)
    except Exception:  # whatever it is, no answer would come: its requests are placed anew
        _LOG.exception('a batch cannot begin, and its executor is ended')
        executor.kill()


def _nothing() -> None:
    return
