# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which services go to which executors (lanes): greedy by local gain, the best few replayed.

A placement's gain is counted from what is left: requests that nobody answers
yet, the lane's time, the device's memory.  That is quick, and gains never grow
while others are made, which the paper asserts of replayed goodput, where it
does not hold.  `fluid` says what a placement can answer at most if requests
were a fluid; `checked` replays the best candidates.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from intradp_ros.core.numba_compile import machine_code
from intradp_ros.planning.fluid import most_answered
from intradp_ros.systems.serving import placement_kernels
from intradp_ros.systems.serving.placement_kernels import Demand, Flags, Floats, Ints, Left

#: What an answer at the own site counts more: ties are broken by it, no more.
CLOSE = 1e-3


@dataclass(frozen=True)
class Placement:
    """`placed[lane, service]`, and the requests per second that the greedy count answers."""

    placed: Flags
    answered: float

    @property
    def places(self) -> tuple[tuple[int, int], ...]:
        """Return lane and service of each place."""
        return tuple((int(lane), int(service)) for lane, service in np.argwhere(self.placed))


def demand(asked: Floats, rate: Floats, nbytes: Floats, room: Floats,
           device: Ints | None = None, site: Ints | None = None, travels: Flags | None = None,
           shares: Flags | None = None, close: float = CLOSE, by_memory: bool = False) -> Demand:
    """
    Return what is asked for, with the usual where nothing is said; see `Demand` for shapes.

    That is one lane and one device to a site, requests that may be answered everywhere, and
    services that may all share a lane.

    :raises ValueError: if shapes do not match, or numbers are negative or not finite.
    """
    lanes, services = rate.shape
    device = np.arange(lanes) if device is None else device
    site = np.arange(lanes) if site is None else site
    found = Demand(
        np.ascontiguousarray(asked, float), np.ascontiguousarray(rate, float),
        np.ascontiguousarray(nbytes, float), np.ascontiguousarray(room, float),
        np.ascontiguousarray(device, np.int64), np.ascontiguousarray(site, np.int64),
        np.ones(services, bool) if travels is None else np.ascontiguousarray(travels, bool),
        np.ones((services, services), bool) if shares is None
        else np.ascontiguousarray(shares, bool), float(close), bool(by_memory))
    if found.asked.ndim != 2 or found.asked.shape[1] != services \
            or found.nbytes.shape != (services,) or found.shares.shape != (services, services) \
            or found.travels.shape != (services,):
        raise ValueError(f'{services} services need a column of requests each, bytes, and whether '
                         'they travel and share')
    if found.device.shape != (lanes,) or found.site.shape != (lanes,) or lanes and not (
            0 <= found.device.min() <= found.device.max() < len(found.room)
            and 0 <= found.site.min() <= found.site.max() < len(found.asked)):
        raise ValueError(f'{lanes} lanes need a device of {len(found.room)} and a site of '
                         f'{len(found.asked)} each')
    for name in ('asked', 'rate', 'nbytes', 'room'):
        values = getattr(found, name)
        if not (np.isfinite(values) & (values >= 0)).all():
            raise ValueError(f'{name} has numbers below 0, or that are not finite')
    return found


def place(d: Demand, first: Iterable[tuple[int, int]] = ()) -> Placement:
    """
    Return the greedy placement.

    `first` are lanes and services that come before all others, each once, as far as they fit:
    what is leased, or holds several devices together (step S1 of the paper).
    """
    left = untouched(d)
    answered = sum(placement_kernels.put(d, left, lane, service) for lane, service in
                   dict.fromkeys(first) if _fits(d, left, lane, service))
    return Placement(left.placed, answered + float(_greedy()(d, left)))


def candidates(d: Demand, first: Sequence[tuple[int, int]] = ()) -> tuple[Placement, ...]:
    """Return placements that differ, the one that answers most first: by gain, also by byte."""
    found: dict[bytes, Placement] = {}
    for by_memory in (False, True):
        for close in (d.close, 1.0):
            one = place(d._replace(close=close, by_memory=by_memory), first)
            found.setdefault(one.placed.tobytes(), one)
    return tuple(sorted(found.values(), key=lambda one: -one.answered))


def checked(found: Sequence[Placement], goodput: Callable[[Placement], float],
            most: int = 3) -> Placement:
    """Return the first few placements' best by `goodput`, as a replay says it."""
    return max(found[:most], key=goodput)


def improve(d: Demand, found: Placement, goodput: Callable[[Placement], float],
            tries: int = 1000) -> Placement:
    """
    Return a placement after exchanges, each of one place for what is greedy without it.

    An exchange stays where `goodput` grows by more than rounding; the search ends when none
    does, or after so many tries.
    """
    best, value = found, goodput(found)
    grows = True
    while grows and tries > 0:
        grows = False
        for other in _exchanged(d, best):
            tries -= 1
            now = goodput(other)
            if now > value * (1 + 1e-9) + placement_kernels.LEAST:
                best, value, grows = other, now, True
                break
            if tries <= 0:
                break
    return best


def _exchanged(d: Demand, found: Placement) -> Iterator[Placement]:
    """Yield placements that put another service, or none, in the place of one."""
    for lane, service in found.places:
        kept = [other for other in found.places if other != (lane, service)]
        rate = d.rate.copy()
        rate[lane, service] = 0.0
        without = d._replace(rate=rate)
        yield place(without, kept)
        for other in np.flatnonzero(~found.placed[lane]).tolist():
            one = place(without, [*kept, (lane, other)])
            if one.placed[lane, other]:
                yield one


def fluid(d: Demand, placed: Flags) -> float:
    """
    Return the requests per second that a placement can answer if they could be cut at will.

    Lanes share their time among their services; requests of services that travel may go
    anywhere.  The linear program is exact, for hundreds of lanes at most.
    """
    lanes, services = np.nonzero(placed & (d.rate > 0))
    kinds = d.asked.shape[1]
    # Of a service that travels all requests are one row, else those of a site.
    rows = np.where(d.travels[services], services, kinds + d.site[lanes] * kinds + services)
    return most_answered(lanes, rows, d.rate[lanes, services],
                         np.concatenate([d.asked.sum(0), d.asked.ravel()]))


def untouched(d: Demand) -> Left:
    """Return what is left before anything is placed: all."""
    return Left(d.asked.copy(), d.asked.sum(0), np.ones(len(d.device)), d.room.copy(),
                np.zeros(d.rate.shape, bool))


def _fits(d: Demand, left: Left, lane: int, service: int) -> bool:
    return bool(not left.placed[lane, service] and d.rate[lane, service] > 0
                and d.nbytes[service] <= left.room[d.device[lane]]
                and d.shares[service][left.placed[lane]].all())


@cache
def _greedy() -> Callable[..., Any]:
    """Return the greedy loop: machine code, or plain where numba is not installed."""
    compiled = machine_code((placement_kernels,), (placement_kernels.greedy,), inline=False)
    return compiled[0] if compiled else placement_kernels.greedy
