# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The simulator: sites, their executors and links, and the functions of the live gateways.

Chance follows from the numbers of requests, so what was recorded live meets
the same chance again, and policies are compared on equal draws.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
import math
from typing import Any

import numpy as np

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.systems.serving import policy_kernels, world_kernels
from intradp_ros.systems.serving.arrivals import Arrivals
from intradp_ros.systems.serving.arrivals import arrivals as make_arrivals
from intradp_ros.systems.serving.oracle import bound
from intradp_ros.systems.serving.ring import oldest, refresh
from intradp_ros.systems.serving.ring_world import Absence, play_ring, RowsHeard
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
    LOGGED,
    Network,
    Requests,
    SEATS,
    SLACK,
    State,
)

#: Above so many sites what each knows of all would need much memory.
MAX_SITES = 256


@dataclass(frozen=True, slots=True)
class Policy:
    """
    How requests are admitted and where they go; the numbers are those of `world_kernels`.

    `on_demand`: services are loaded when they are asked for, in place of those that were not
    asked for longest.  `delay`: seconds until a centre has decided.
    """

    name: str
    admission: int = SEATS
    choice: int = SLACK
    delay: float = 0.0
    on_demand: bool = False


#: What stands in the arrays of a site for places and executors that only larger sites have.
FILL = {'service_of': -1, 'size': 1, 'wanted': 1, 'ready': math.inf, 'seconds': math.inf,
        'running': -1}

OURS = Policy('seats, drawn by slack')
#: What chooses the sizes of a site's batches, by place, from what came to it.
Rechoose = Callable[['SimulatedSite', Arrivals], Sequence[int]]


@dataclass(frozen=True, slots=True)
class SimulatedSite:
    """Executors, and services on them; `actual` mean seconds by place where not the promised."""

    executors: int
    places: tuple[Place, ...]
    actual: tuple[tuple[float, ...], ...] = ()
    room: tuple[float, ...] = ()


@dataclass(frozen=True)
class World:
    """
    Sites that are joined.

    `hop[i, j]`: seconds one way.  Rows are made every `period` seconds; `lag[i, j]`: how old they
    are when they come to i from j, the hop where not given; with `ring` they go round (`ring`)
    instead.  `spread`: relative deviation of the
    seconds of batches (lognormal).  `transfer[s]`: seconds of a request's bytes of service s in
    each hop.  `newest`: services whose newer frames replace waiting ones.  `nbytes`, `load`:
    memory and seconds to load a service, for policies that load on demand.
    """

    sites: tuple[SimulatedSite, ...]
    services: int
    hop: Floats
    period: float = 0.1
    lag: Floats | None = None
    ring: bool = False
    spread: float = 0.0
    transfer: tuple[float, ...] = ()
    newest: frozenset[int] = frozenset()
    nbytes: tuple[float, ...] = ()
    load: tuple[float, ...] = ()

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


@dataclass(frozen=True, slots=True)
class Fault:
    """A site that is gone from `start` to `stop`, seconds of the clock of the arrivals."""

    site: int
    start: float
    stop: float


def replay(world: World, arrivals: Arrivals, policy: Policy = OURS,
           faults: Sequence[Fault] = (), compiled: bool = True,
           rechoose: Rechoose | None = None, every: float = 60.0) -> Report:
    """
    Play all requests; equal worlds, requests and policies give equal reports.

    `rechoose` returns the sizes of a site's batches, by place, from what came in the last
    `every` seconds; it is asked that often.

    Raises
    ------
    ValueError
        If requests name sites or services that are not there, or there are too many sites.

    """
    _check(world, arrivals)
    heard = _round(world, arrivals, faults)
    stacked, behaviour, state = _sites(world, arrivals, policy, heard.first)
    if rechoose is not None:
        state = state._replace(log=np.zeros(((MAX_HOPS + 1) * len(arrivals.time), 4)))
    lag = world.hop if world.lag is None else world.lag
    network = Network(np.ascontiguousarray(world.hop, float), np.ascontiguousarray(lag, float),
                      np.array([*world.transfer, *(0.0,) * world.services][:world.services]),
                      refresh(len(world.sites)) if world.ring else world.period,
                      *_holders(world), world.ring,
                      oldest(len(world.sites)) if world.ring else math.inf,
                      heard.first, heard.time, heard.of, heard.made)
    q = _requests(arrivals)
    gone = np.array([(f.start, f.stop, f.site) for f in faults], float).reshape(-1, 3)
    run = _runner() if compiled else world_kernels.run
    most = 2 * len(q.time) + (len(gone) + len(world.sites)) * (2 + stacked.alive.shape[1])
    waiting = Events(np.zeros(most), np.zeros((most, 3), np.int64), np.zeros(1, np.int64))
    until, events = float(arrivals.time[0]) if len(arrivals.time) else 0.0, 0
    while rechoose is not None and until <= arrivals.time.max(initial=-math.inf):
        logged, until = int(state.progress[LOGGED]), until + every
        events += run(q, stacked, network, behaviour, state, gone, waiting, until)
        _rechosen(world, state.log[logged:state.progress[LOGGED]], stacked, rechoose)
    events += run(q, stacked, network, behaviour, state, gone, waiting, math.inf)
    return Report(arrivals, q.fate, q.why, q.finish, q.predicted, q.at, q.hops, q.path,
                  q.batch, np.asarray(stacked.spent.sum(0)), np.array(events))


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
    if not len(arrivals.time):
        return
    for name, values, count in (('site', arrivals.site, sites),
                                ('service', arrivals.service, world.services)):
        if not 0 <= values.min() <= values.max() < count:
            raise ValueError(f'a request names a {name} that is not among the {count}')
    if (np.diff(arrivals.time) < 0).any():
        raise ValueError('requests come in the order of their time')


def _round(world: World, a: Arrivals, faults: Sequence[Fault]) -> RowsHeard:
    """Return which rows come round the ring and when, empty without one."""
    sites = len(world.sites)
    if not world.ring or not len(a.time):
        none = np.zeros((sites, 1), np.int64)
        return RowsHeard(np.zeros(sites + 1, np.int64), np.zeros(0), np.zeros(0, np.int64),
                         np.zeros(0), none, none)
    before = math.ceil(oldest(sites) / refresh(sites)) * refresh(sites)
    longest = float((a.time + a.remaining).max())
    return play_ring(sites, lambda i, j, now: float(world.hop[i, j]), float(a.time[0]) - before,
                     longest, [Absence(f.site, f.start, f.stop) for f in faults])


def _rechosen(world: World, log: Floats, stacked: SiteArrays, rechoose: Rechoose) -> None:
    """Let each site want the batches that are chosen for what came to it."""
    for i, site in enumerate(world.sites):
        own = log[log[:, 1] == i]
        if len(own):
            now = replace(site, places=tuple(replace(place, size=int(size)) for place, size in
                                             zip(site.places, stacked.wanted[i])))
            stacked.wanted[i, :len(site.places)] = rechoose(now, make_arrivals(
                own[:, 0], own[:, 3] - own[:, 0], 0, own[:, 2]))


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


def _waiting(world: World, a: Arrivals, policy: Policy) -> int:
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
    if policy.admission != SEATS or math.isinf(longest):
        return most
    return min(most, max((math.ceil(2 * b * (2 + longest / seconds)) for site in world.sites
                          for place in site.places for b, seconds in enumerate(place.seconds, 1)),
                         default=1))


def _sites(world: World, a: Arrivals, policy: Policy, first: Ints,
           ) -> tuple[SiteArrays, Behaviour, State]:
    """Return the arrays of all sites, each filled up to the largest."""
    queue = _waiting(world, a, policy)
    most = max((len(p.seconds) for site in world.sites for p in site.places), default=1)
    executors = max(site.executors for site in world.sites)
    places = max(1, *(len(site.places) for site in world.sites))
    rows = min(queue * places, 1 << 14) + executors * most + 1
    single = [make_site(site.places, site.executors, world.services, rows, queue)
              for site in world.sites]
    stacked = SiteArrays(*(_stacked(columns, FILL.get(name, 0)) for name, columns in
                           zip(SiteArrays._fields, zip(*single))))
    if policy.on_demand:
        stacked.ready[:] = np.inf
    actual = np.full((len(single), places, most + 1), np.inf)
    room = np.full((len(single), executors), np.inf)
    for i, site in enumerate(world.sites):
        for k, place in enumerate(site.places):
            times = site.actual[k] if site.actual else place.seconds
            actual[i, k, 1:len(times) + 1] = times[:most]
        room[i, :len(site.room)] = site.room
    newest = np.zeros(world.services, bool)
    newest[list(world.newest)] = True
    spread = math.sqrt(math.log1p(world.spread**2))

    def by_service(values: tuple[float, ...]) -> Floats:
        return np.array([*values, *(0.0,) * world.services][:world.services])

    behaviour = Behaviour(policy.admission, policy.choice, actual, spread, newest, policy.delay,
                          policy.on_demand, by_service(world.nbytes), by_service(world.load), room)
    return stacked, behaviour, _state(len(single), world.services, rows, places, executors, a,
                                      first)


def _stacked(columns: Sequence[Any], fill: float) -> Any:
    """Return arrays as one, the smaller ones filled up."""
    shape = np.max([one.shape for one in columns], axis=0)
    found = np.full((len(columns), *shape), fill, columns[0].dtype)
    for row, one in zip(found, columns):
        row[tuple(slice(n) for n in one.shape)] = one
    return found


def _state(sites: int, services: int, rows: int, places: int, executors: int, a: Arrivals,
           first: Ints) -> State:
    past, columns = (sites, HISTORY, services), (sites, 1)
    streams = int(a.stream.max(initial=-1)) + 1
    return State(
        np.full((sites, rows), -1, np.int64), np.zeros((sites, sites)),
        np.zeros((sites, sites), bool), first[:-1].copy(), np.zeros((sites, sites), np.int64),
        np.full(past, np.inf), np.zeros(past),
        np.full(past, np.inf), np.zeros(past[:2]), np.zeros(past[:2]), np.zeros(sites, np.int64),
        np.zeros(sites), np.arange(sites, dtype=np.int64).reshape(-1, 1).copy(),
        np.full(max(1, streams), -1, np.int64), np.full((sites, places), -np.inf),
        np.ones(sites, np.int64), np.full((sites, executors), np.inf), np.zeros(4, np.int64),
        np.zeros((0, 4)), np.zeros(sites, bool), np.zeros(sites), np.zeros(sites),
        np.zeros(columns), np.zeros(columns), np.zeros(columns), np.zeros(sites))


@cache
def _runner() -> Callable[..., Any]:
    """Return the loop: machine code, or plain where numba is not installed."""
    compiled = machine_code((*MODULES, policy_kernels, world_kernels), (world_kernels.run,),
                            inline=False, allocates=False)
    return compiled[0] if compiled else world_kernels.run
