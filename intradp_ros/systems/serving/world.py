# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The simulator: sites, their executors and links, and the functions of the live gateways.

Chance follows from the numbers of requests, so what was recorded live meets
the same chance again, and policies are compared on equal draws.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
import math
from typing import Any, NamedTuple

import numpy as np

from intradp_ros.core.limits import MAX_SECONDS
from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving import world_kernels
from intradp_ros.systems.serving.arrivals import Arrivals
from intradp_ros.systems.serving.oracle import bound
from intradp_ros.systems.serving.site_arrays import (
    CANCELLED,
    Floats,
    IN_TIME,
    Ints,
    LATE,
    make_site,
    Place,
    REFUSED,
    SiteArrays,
)
from intradp_ros.systems.serving.site_functions import MODULES
from intradp_ros.systems.serving.site_kernels.dispatch import MAX_HOPS
from intradp_ros.systems.serving.world_kernels import (
    Behaviour,
    Events,
    HISTORY,
    Network,
    Requests,
    State,
)

#: Above so many sites what each knows of all would need much memory.
MAX_SITES = 256


#: What stands in the arrays of a site for places and executors that only larger sites have.
FILL = {'service_of': -1, 'size': 1, 'wanted': 1, 'ready': math.inf, 'seconds': math.inf,
        'running': -1}

#: As `world_kernels.run`.
Run = Callable[..., int]


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """Executors, and services on them; `actual` mean seconds by place where not the promised."""

    executors: int
    places: tuple[Place, ...]
    actual: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True)
class World:
    """
    Sites that are joined.

    `hop[i, j]`: seconds one way.  Rows are made every `period` seconds; `lag[i, j]`: how old they
    are when they come to i from j, the hop where not given.  `spread`: relative deviation of the
    seconds of batches (lognormal).  `transfer[s]`: seconds of a request's bytes of service s in
    each hop.  `newest`: services whose newer frames replace waiting ones.
    """

    sites: tuple[SimulatedSite, ...]
    services: int
    hop: Floats
    period: float = 0.1
    lag: Floats | None = None
    spread: float = 0.0
    transfer: tuple[float, ...] = ()
    newest: frozenset[int] = frozenset()

    @property
    def executors(self) -> int:
        """Return how many executors all sites have."""
        return sum(site.executors for site in self.sites)

    def seconds(self) -> tuple[tuple[float, ...], ...]:
        """Return, by service and rows, the least mean seconds of a batch anywhere."""
        found: list[list[float]] = [[] for _ in range(self.services)]
        for site in self.sites:
            for place, times in zip(site.places, site.actual or
                                    [place.seconds for place in site.places]):
                own = found[place.service]
                own += [math.inf] * (place.size - len(own))
                for b, time in enumerate(times[:place.size]):
                    own[b] = min(own[b], time)
        return tuple(tuple(row) if row else (math.inf,) for row in found)


@dataclass(frozen=True, repr=False)
class Report:
    """
    What became of each request.

    By request: `fate` (as in `site_arrays`), `why` it was refused, `finish` (when its answer is
    back, or its refusal), `predicted` finish, the `site` that had it last, `hops` and its
    `path`, rows of its `batch`.  `spent[service]`: seconds of executors for answers in time, and
    for nobody.
    """

    arrivals: Arrivals
    fate: Ints
    why: Ints
    finish: Floats
    predicted: Floats
    site: Ints
    hops: Ints
    path: Ints
    batch: Ints
    spent: Floats
    events: Ints

    @property
    def in_time(self) -> int:
        """Return how many were answered in time."""
        return int((self.fate == IN_TIME).sum())

    @property
    def late(self) -> int:
        """Return how many were taken, and answered late or not at all."""
        return int((self.fate == LATE).sum())

    @property
    def refused(self) -> int:
        """Return how many were refused at once, or let go."""
        return int((self.fate == REFUSED).sum())

    @property
    def cancelled(self) -> int:
        """Return how many were replaced by a newer frame."""
        return int((self.fate == CANCELLED).sum())

    @property
    def span(self) -> float:
        """Return the seconds from the first request to the last."""
        return float(self.arrivals.time[-1] - self.arrivals.time[0]) if len(self.fate) else 0.0

    @property
    def goodput(self) -> float:
        """Return the requests answered in time in a second."""
        return self.in_time / self.span if self.span else 0.0

    @property
    def share(self) -> float:
        """Return the share of all requests that were answered in time."""
        return self.in_time / max(1, len(self.fate))

    @property
    def late_share(self) -> float:
        """Return the share of those taken that were late."""
        return self.late / max(1, self.late + self.in_time)

    @property
    def seconds(self) -> Floats:
        """Return the seconds from request to answer, of those in time."""
        mine = self.fate == IN_TIME
        return np.asarray(self.finish[mine] - self.arrivals.time[mine])

    def quantile(self, share: float) -> float:
        """Return seconds within which that share of the answers in time came."""
        return float(np.quantile(self.seconds, share)) if self.in_time else math.nan

    @property
    def transfers(self) -> int:
        """Return how often requests went from one site to another."""
        return int(self.hops.sum())

    @property
    def wasted(self) -> int:
        """Return the transfers of requests that were not answered in time."""
        return int(self.hops[self.fate != IN_TIME].sum())

    def fates(self, service: int | None = None) -> dict[str, int]:
        """Return how many had each fate; they sum up to the requests."""
        mine = self.fate if service is None else self.fate[self.arrivals.service == service]
        return {name: int((mine == fate).sum()) for name, fate in (
            ('in_time', IN_TIME), ('late', LATE), ('refused', REFUSED),
            ('cancelled', CANCELLED))}


class RowsHeard(NamedTuple):
    """
    Which rows sites hear where they are not sent to all, those of `first[i]` to `first[i + 1]` i.

    At `time` a row of site `of` comes that it made at `made`; above the age `oldest` it counts no
    more.
    """

    first: Ints
    time: Floats
    of: Ints
    made: Floats
    oldest: float


@dataclass(frozen=True, slots=True)
class Fault:
    """A site that is gone from `start` to `stop`, seconds of the clock of the arrivals."""

    site: int
    start: float
    stop: float


class Playing:
    """Requests that are being played; other policies have another `run`, and more `behaviour`."""

    def __init__(self, world: World, asked: Arrivals, faults: Sequence[Fault] = (),
                 rows: RowsHeard | None = None, run: Run = world_kernels.run,
                 seated: bool = True) -> None:
        """Play nothing yet; not `seated`: all requests may wait.  See `replay`."""
        _check(world, asked)
        sites = len(world.sites)
        heard = rows or RowsHeard(np.zeros(sites + 1, np.int64), np.zeros(0),
                                  np.zeros(0, np.int64), np.zeros(0), math.inf)
        self.arrivals, self._run = asked, run
        self.sites, self.behaviour, self.state = _sites(world, asked, seated, heard.first)
        lag = world.hop if world.lag is None else world.lag
        self._network = Network(
            np.ascontiguousarray(world.hop, float), np.ascontiguousarray(lag, float),
            np.array([*world.transfer, *(0.0,) * world.services][:world.services]),
            world.period, *_holders(world), rows is not None, heard.oldest, *heard[:4])
        self._requests = _requests(asked)
        self._gone = np.array([(f.start, f.stop, f.site) for f in faults], float).reshape(-1, 3)
        room = 2 * len(asked.time) + (len(faults) + sites) * (2 + self.sites.alive.shape[1])
        self._waiting = Events(np.zeros(room), np.zeros((room, 3), np.int64),
                               np.zeros(1, np.int64))
        self._events = 0

    def run(self, until: float = math.inf) -> None:
        """Play on until a time."""
        self._events += self._run(self._requests, self.sites, self._network, self.behaviour,
                                  self.state, self._gone, self._waiting, until)

    def report(self) -> Report:
        """Return what became of the requests."""
        q = self._requests
        return Report(self.arrivals, q.fate, q.why, q.finish, q.predicted, q.at, q.hops, q.path,
                      q.batch, np.asarray(self.sites.spent.sum(0)), np.array(self._events))


def replay(world: World, arrivals: Arrivals, faults: Sequence[Fault] = (), compiled: bool = True,
           rows: RowsHeard | None = None) -> Report:
    """
    Play all requests; equal worlds and requests give equal reports.

    `rows`: what sites hear of each other, where that does not follow from `world.lag`.

    :raises ValueError: if requests name sites or services that are not there, or there are too
        many sites.
    """
    playing = Playing(world, arrivals, faults, rows, _runner() if compiled else world_kernels.run)
    playing.run()
    return playing.report()


def most(world: World, arrivals: Arrivals) -> int:
    """Return how many requests no policy can exceed, as `oracle.bound` says."""
    holders = [float(sum(len({p.executor for p in site.places if p.service == s})
                         for site in world.sites)) for s in range(world.services)]
    held = np.array(holders)[arrivals.service] > 0  # what is nowhere is answered by nobody
    seconds = [row if holders[s] else (1.0,) for s, row in enumerate(world.seconds())]
    return bound(arrivals.time[held], arrivals.deadline[held], arrivals.service[held], seconds,
                 world.executors, holders)


def capacity(world: World) -> float:
    """Return the sum of full batches' rates, each executor running its best service."""
    found = 0.0
    for site in world.sites:
        for executor in range(site.executors):
            found += max((p.size / p.seconds[p.size - 1] for p in site.places
                          if p.executor == executor), default=0.0)
    return found


def even_hops(sites: int, seconds: float) -> Floats:
    """Return hops of the same seconds between all sites."""
    return np.where(np.eye(sites, dtype=bool), 0.0, seconds)


def _check(world: World, arrivals: Arrivals) -> None:
    sites = len(world.sites)
    if not 1 <= sites <= MAX_SITES:
        raise ValueError(f'1 to {MAX_SITES} sites can be played, not {sites}')
    if world.hop.shape != (sites, sites) or (world.hop < 0).any():
        raise ValueError(f'hops of {sites} sites are {sites} x {sites} seconds, none below 0')
    if not (0 < world.period < math.inf and np.isfinite(world.hop).all()):
        raise ValueError(f'rows are made every {world.period} s: a period is finite and above 0, '
                         'hops are finite')
    if not len(arrivals.time):
        return
    if not (arrivals.time[-1] - arrivals.time[0] <= MAX_SECONDS
            and np.isfinite(arrivals.time).all()):
        raise ValueError(f'requests come within {MAX_SECONDS:g} s, got {arrivals.time[0]} to '
                         f'{arrivals.time[-1]}')
    for name, values, count in (('site', arrivals.site, sites),
                                ('service', arrivals.service, world.services)):
        if not 0 <= values.min() <= values.max() < count:
            raise ValueError(f'a request names a {name} that is not among the {count}')
    if (np.diff(arrivals.time) < 0).any():
        raise ValueError('requests come in the order of their time')


def _requests(a: Arrivals) -> Requests:
    count = len(a.time)

    def ints(value: int = 0) -> Ints:
        return np.full(count, value, np.int64)

    return Requests(
        a.time, a.site, a.service, a.deadline, a.priority, a.stream, a.number, ints(-1), ints(-1),
        np.full(count, np.inf), np.full(count, np.inf), a.site.copy(), ints(-1), ints(),
        np.zeros(count), ints(), np.zeros((count, MAX_HOPS + 1), np.int64))


def _holders(world: World) -> tuple[Ints, Ints]:
    """Return, by service, the sites that have it, and how many they are."""
    found = np.zeros((world.services, len(world.sites)), np.int64)
    held = np.zeros(world.services, np.int64)
    for i, site in enumerate(world.sites):
        for s in {place.service for place in site.places}:
            found[s, held[s]] = i
            held[s] += 1
    return found, held


def _waiting(world: World, a: Arrivals, seated: bool) -> int:
    """
    Return how many requests can wait at once at a place.

    That is those that came within the longest deadline; where each has a seat, twice what a place
    can answer in that time.
    """
    if not len(a.time):
        return 1
    longest = float(a.remaining.max())
    until = np.searchsorted(a.time, a.time + longest, 'right')
    most = min(1 << 14, int((until - np.arange(len(until))).max()) + 1)
    if not seated or math.isinf(longest):
        return most
    return min(most, max((math.ceil(2 * b * (2 + longest / seconds)) for site in world.sites
                          for place in site.places for b, seconds in enumerate(place.seconds, 1)),
                         default=1))


def _sites(world: World, a: Arrivals, seated: bool, first: Ints,
           ) -> tuple[SiteArrays, Behaviour, State]:
    """Return the arrays of all sites, each filled up to the largest."""
    queue = _waiting(world, a, seated)
    most = max((len(p.seconds) for site in world.sites for p in site.places), default=1)
    executors = max(site.executors for site in world.sites)
    places = max(1, *(len(site.places) for site in world.sites))
    rows = min(queue * places, 1 << 14) + executors * most + 1
    single = [make_site(site.places, site.executors, world.services, rows, queue)
              for site in world.sites]
    stacked = SiteArrays(*(_stacked(columns, FILL.get(name, 0)) for name, columns in
                           zip(SiteArrays._fields, zip(*single))))
    actual = np.full((len(single), places, most + 1), np.inf)
    for i, site in enumerate(world.sites):
        for k, place in enumerate(site.places):
            times = site.actual[k] if site.actual else place.seconds
            actual[i, k, 1:len(times) + 1] = times[:most]
    newest = np.zeros(world.services, bool)
    newest[list(world.newest)] = True
    behaviour = Behaviour(actual, math.sqrt(math.log1p(world.spread**2)), newest, ())
    return stacked, behaviour, _state(len(single), world.services, rows, executors, a, first)


def _stacked(columns: Sequence[Any], fill: float) -> Any:
    """Return arrays as one, the smaller ones filled up."""
    shape = np.max([one.shape for one in columns], axis=0)
    found = np.full((len(columns), *shape), fill, columns[0].dtype)
    for row, one in zip(found, columns):
        row[tuple(slice(n) for n in one.shape)] = one
    return found


def _state(sites: int, services: int, rows: int, executors: int, a: Arrivals, first: Ints,
           ) -> State:
    past, columns = (sites, HISTORY, services), (sites, 1)
    streams = int(a.stream.max(initial=-1)) + 1
    return State(
        np.full((sites, rows), -1, np.int64), np.zeros((sites, sites)),
        np.zeros((sites, sites), bool), first[:-1].copy(), np.zeros((sites, sites), np.int64),
        np.full(past, np.inf), np.zeros(past), np.full(past, np.inf), np.zeros(past[:2]),
        np.zeros(sites, np.int64), np.full(max(1, streams), -1, np.int64),
        np.ones(sites, np.int64), np.full((sites, executors), np.inf), np.zeros(3, np.int64),
        np.zeros(sites, bool), np.zeros(sites), np.zeros(columns), np.zeros(columns),
        np.zeros(columns), np.zeros(sites))


@cache
def _runner() -> Run:
    """Return the loop: machine code, or plain where numba is not installed."""
    compiled = machine_code((*MODULES, world_kernels), (world_kernels.run,), inline=False,
                            allocates=False)
    return compiled[0] if compiled else world_kernels.run
