# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What several sites would answer: sizes of batches, a placement, and a replay beside its bounds.

All follows from tables of seconds and from what is asked for; nothing is started.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math
from typing import Any

import numpy as np

from intradp_ros.systems.serving.allocator import allocate, Allocation, category, may_share
from intradp_ros.systems.serving.arrivals import (
    Arrivals,
    arrivals,
    merged,
    poisson,
    streams_of_robots,
)
from intradp_ros.systems.serving.placement import (
    candidates,
    checked,
    demand,
    fluid,
    improve,
    place,
    Placement,
)
from intradp_ros.systems.serving.placement_kernels import Demand, Floats
from intradp_ros.systems.serving.placement_plan import PlacementPlan
from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import ServiceTable
from intradp_ros.systems.serving.site_arrays import Place
from intradp_ros.systems.serving.world import most, replay, Report, SimulatedSite, World

#: Of a replay: requests, and model seconds at most; frames come late by a part of their period.
REQUESTS, SECONDS, JITTER = 20_000, 60.0, 0.2
#: Exchanges that are tried, and of how many places (lanes x services) at most.
EXCHANGES, SMALL = 300, 64
#: Share of the requests in time from which on nothing binds.
ENOUGH = 0.99


@dataclass(frozen=True)
class OfferedSite:
    """A site: executors, bytes of its machine, and by service its table there."""

    name: str
    executors: int
    room: float
    tables: tuple[ServiceTable, ...]


@dataclass(frozen=True)
class Sites:
    """
    Sites and what is asked of them.

    `asked[i, s]`: requests per second for service s that come to site i.  `hop[i, j]`: seconds
    one way; `transfer[s]`: of a request's bytes in addition.
    """

    services: tuple[Service, ...]
    sites: tuple[OfferedSite, ...]
    asked: Floats
    hop: Floats
    transfer: tuple[float, ...]

    def kind(self, service: int) -> str:
        """Return the category of a service: latency or frequency."""
        return category(self.services[service], ())

    def too_large(self, service: int) -> bool:
        """Say whether no site's memory holds a service."""
        return all(site.tables[service].nbytes > site.room for site in self.sites)

    def allocation(self, site: int, service: int) -> Allocation | None:
        """Return the sizes for a service at a site; None where no batch fits its deadline."""
        return allocate(self.services[service], self.kind(service), self.too_large(service),
                        {1: self.sites[site].tables[service]})


@dataclass(frozen=True, repr=False)
class Forecast:
    """
    A placement, the replay of what is asked for, and its bounds.

    `of_placement` and `of_all` are shares of the requests that no policy exceeds with this
    placement, and with any.
    `binds` names what leaves requests without an answer, empty where nearly all have one.
    """

    sites: Sites
    demand: Demand
    placement: Placement
    report: Report
    of_placement: float
    of_all: float
    binds: str

    @property
    def plan(self) -> PlacementPlan:
        """Return the placement by name."""
        names = [service.name for service in self.sites.services]
        return PlacementPlan({site.name: tuple(
            tuple(names[s] for s in np.flatnonzero(self.placement.placed[lane]))
            for lane in np.flatnonzero(self.demand.site == i))
            for i, site in enumerate(self.sites.sites)})


def shares(found: Sites) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Return which services may be on one executor, at every site."""
    count = len(found.services)
    together = np.ones((count, count), bool)
    for i, site in enumerate(found.sites):
        sizes = [one.batch if (one := found.allocation(i, s)) else 0 for s in range(count)]
        for a in range(count):
            for b in range(count):
                if a != b and sizes[a] and sizes[b]:
                    together[a, b] &= may_share(
                        site.tables[a], sizes[a], found.services[a].deadline,
                        site.tables[b], sizes[b], found.services[b].deadline)
    return together


def demanded(found: Sites) -> Demand:
    """Return what is asked for, with a lane for each executor."""
    lanes = [i for i, site in enumerate(found.sites) for _ in range(site.executors)]
    rate = np.array([[one.rate if (one := found.allocation(i, s)) else 0.0
                      for s in range(len(found.services))] for i in lanes])
    apart = found.hop[~np.eye(len(found.hop), dtype=bool)]
    way = 2 * float(apart.min()) if len(apart) else math.inf
    travels = np.array([
        way + found.transfer[s] + min(site.tables[s].quantile(1) for site in found.sites)
        <= service.deadline for s, service in enumerate(found.services)])
    return demand(found.asked, rate, np.array([float(max(
        site.tables[s].nbytes for site in found.sites)) for s in range(len(found.services))]),
        np.array([site.room for site in found.sites]), np.array(lanes), np.array(lanes), travels,
        shares(found))


def requests(found: Sites, seed: int = 1) -> Arrivals:
    """Return requests as they are asked for: frames of streams, others at random times."""
    total = float(found.asked.sum())
    seconds, streams = min(SECONDS, REQUESTS / total), 0
    parts: list[Arrivals] = []
    for (i, s), rate in np.ndenumerate(found.asked):
        service, own = found.services[s], seed + 7919 * len(parts)
        if rate <= 0:
            continue
        if found.kind(s) == 'frequency' and math.isfinite(service.rate):
            count = max(1, round(rate / service.rate))
            when, of = streams_of_robots(count, rate / count, seconds, own, JITTER)
            stream: Any = of + streams
            streams += count
        else:
            when, stream = poisson(rate, max(1, round(rate * seconds)), own), -1
        parts.append(arrivals(when, service.deadline, i, s, service.priority, stream))
    return merged(*parts)


def world(found: Sites, placed: np.ndarray[Any, np.dtype[np.bool_]], d: Demand) -> World:
    """Return the sites with the places of a placement."""
    sites = []
    for i, site in enumerate(found.sites):
        places, actual = [], []
        for executor, lane in enumerate(np.flatnonzero(d.site == i)):
            for s in np.flatnonzero(placed[lane] & (d.rate[lane] > 0)).tolist():
                one = found.allocation(i, s)
                assert one is not None, 'a rate above 0 has an allocation'
                table = site.tables[s]
                places.append(Place(executor, s, one.batch, table.quantiles()[:one.batch]))
                actual.append(tuple(np.maximum.accumulate(table.seconds[:one.batch]).tolist()))
        sites.append(SimulatedSite(site.executors, tuple(places), tuple(actual)))
    spreads = [spread / mean for site in found.sites for table in site.tables
               for mean, spread in zip(table.seconds, table.spread)]
    return World(tuple(sites), len(found.services), found.hop, spread=float(np.median(spreads)),
                 transfer=found.transfer, newest=frozenset(
                     s for s, service in enumerate(found.services) if service.keep == 'newest'))


def with_spares(d: Demand, found: Placement) -> Placement:
    """
    Return a placement that also uses what is left: services with the fewest sites come first.

    A spare place answers in bursts, and when another site is lost.
    """
    while True:
        held = np.array([len(set(d.site[found.placed[:, s]])) for s in range(d.rate.shape[1])])
        left = sorted(((int(held[s] + 256 * found.placed[d.site == d.site[lane], s].any()),
                        int(found.placed[lane].sum()), lane, s)
                       for lane, s in np.argwhere(~found.placed & (d.rate > 0)).tolist()
                       if d.asked[:, s].sum() > 0))
        for *_, lane, s in left:
            more = place(d, [*found.places, (lane, s)])
            if more.placed[lane, s]:
                found = more
                break
        else:
            return found


def forecast(found: Sites) -> Forecast:
    """
    Place the services, replay the best few placements, and return the best one.

    :raises ValueError: if nothing is asked for.
    """
    if not found.asked.sum() > 0:
        raise ValueError('nothing is asked for: the placement follows from the requests')
    d, asked = demanded(found), requests(found)
    reports: dict[bytes, Report] = {}

    def goodput(one: Placement) -> float:
        reports[one.placed.tobytes()] = report = replay(world(found, one.placed, d), asked)
        return report.in_time
    found_ones = candidates(d)
    better = improve(d, checked(found_ones, lambda one: fluid(d, one.placed)),
                     lambda one: fluid(d, one.placed), EXCHANGES if d.rate.size <= SMALL else 0)
    best = checked((*found_ones[:3], better), goodput, 4)
    if d.rate.size <= SMALL:
        best = checked((with_spares(d, best), best), goodput)  # of equals the first
    report = reports[best.placed.tobytes()]
    placed, all_ = (most(world(found, one, d), asked) / len(asked.time)
                    for one in (best.placed, np.ones_like(best.placed)))
    return Forecast(found, d, best, report, placed, all_, _binding(found, d, report))


def _binding(found: Sites, d: Demand, report: Report) -> str:
    """Return which limit, if it were lifted, would let most further requests be answered."""
    if report.share >= ENOUGH:
        return ''
    hopeless = [service.name for s, service in enumerate(found.services)
                if found.asked[:, s].sum() > 0 and not (d.rate[:, s] > 0).any()]
    if hopeless:
        return f'deadline: no batch of {", ".join(hopeless)} fits it'
    lifted = {
        'memory': d._replace(room=np.full_like(d.room, d.nbytes.sum() * len(d.device) + 1)),
        "sharing: batches of one service are too long for another's deadline":
            d._replace(shares=np.ones_like(d.shares)),
        'hops between sites': d._replace(travels=np.ones_like(d.travels)),
        'compute': d._replace(rate=10 * d.rate)}
    base = _answered(d)
    if base >= ENOUGH * d.asked.sum():
        return 'batches: a request waits for the one that runs'
    gains = {name: _answered(one) for name, one in lifted.items()}
    name = max(gains, key=lambda each: gains[each])
    return name if gains[name] > base * (1 + 1e-6) else 'several limits together'


def _answered(d: Demand) -> float:
    return max(fluid(d, one.placed) for one in candidates(d))


def by_rows(sizes: Sequence[int], seconds: Sequence[float], spread: Sequence[float],
            nbytes: int = 0) -> ServiceTable:
    """
    Return a table by rows of what was measured for some sizes.

    A batch runs in the next larger size that there is.
    """
    rungs = [next(k for k, size in enumerate(sizes) if size >= rows)
             for rows in range(1, sizes[-1] + 1)]
    return ServiceTable(tuple(seconds[k] for k in rungs),
                        tuple(spread[k] for k in rungs), nbytes)


def with_batches(service: Service, sizes: Sequence[int]) -> Service:
    """Return a service that runs in batches of the given sizes alone."""
    return replace(service, batches=tuple(sizes))
