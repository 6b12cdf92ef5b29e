# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A ring of sites in model time: when which rows arrive where, and what they are good for."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
import heapq
from itertools import count
import math
from typing import Any, NamedTuple

import numpy as np

from intradp_lab.serving.policies import OURS, Policy, replay
from intradp_lab.serving.ring import oldest, PERIOD, refresh, RingMessage, RingSite
from intradp_ros.systems.serving.arrivals import Arrivals
from intradp_ros.systems.serving.site_arrays import Floats, Ints
from intradp_ros.systems.serving.world import Fault, Report, RowsHeard, World

#: Seconds from one site to another for a message sent at a time; infinite: it is lost.
Links = Callable[[int, int, float], float]


@dataclass(frozen=True, slots=True)
class Absence:
    """
    A site that is gone from `start` to `stop`, or lies `still` and then goes on as it was.

    What is sent to one that lies still waits for it.
    """

    site: int
    start: float
    stop: float
    still: bool = False


class RingRows(NamedTuple):
    """
    Which rows sites heard, by receiver i those of `first[i]` to `first[i + 1]`.

    At `time` a row of site `of` came that it had made at `made`.  `messages[i, k]` and
    `rows[i, k]`: what site i sent in the k-th second.
    """

    first: Ints
    time: Floats
    of: Ints
    made: Floats
    messages: Ints
    rows: Ints


def play_ring(sites: int, links: Links, start: float, stop: float,
              absences: Sequence[Absence] = (), phases: Sequence[float] = ()) -> RingRows:
    """
    Play a ring from `start` to `stop`.

    Site i starts `phases[i]` seconds later, by default evenly spread over the time between rows;
    one that comes back has forgotten all.
    """
    if not len(phases):
        phases = [refresh(sites) * (i + 1) / sites for i in range(sites)]
    lives: list[RingSite | None] = [None] * sites
    still: dict[int, list[Any]] = {}
    heard: list[list[tuple[float, int, float]]] = [[] for _ in range(sites)]
    seconds = max(1, math.ceil(stop - start))
    messages, rows = np.zeros((2, sites, seconds), np.int64)
    order, life = count(), count(1)
    events: list[tuple[float, int, str, int, Any]] = []

    def push(time: float, what: str, site: int, more: Any = None) -> None:
        if time < stop:
            heapq.heappush(events, (time, next(order), what, site, more))

    for i, phase in enumerate(phases):
        push(start + phase, 'begin', i)
    for one in absences:
        push(one.start, 'leave', one.site, one)
        push(one.stop, 'return' if one.still else 'begin', one.site)
    while events:
        now, _, what, i, more = heapq.heappop(events)
        site = lives[i]
        if what == 'begin':
            lives[i] = site = RingSite(i, sites, next(life), now)
        elif what == 'leave':
            if more.still:
                still[i] = []
            else:
                lives[i] = None
        elif what == 'return':
            for message, hop in still.pop(i, []):
                _hear(heard[i], site, message, hop, now)
        elif what == 'message':
            if i in still:
                still[i].append(more)
            else:
                _hear(heard[i], site, more[0], more[1], now)
        if what in ('begin', 'return') or what == 'tick' and more is site:
            if site is None:
                continue
            if i not in still:
                for target, message in site.look(now, partial(float, now)):
                    messages[i, int(now - start)] += 1
                    rows[i, int(now - start)] += len(message.rows)
                    hop = links(i, target, now)
                    push(now + hop, 'message', target, (message, hop))
            if what != 'return':
                push(now + PERIOD, 'tick', i, site)
    first = np.cumsum([0, *map(len, heard)])
    columns = np.array([one for own in heard for one in own], float).reshape(-1, 3).T
    return RingRows(first, columns[0].copy(), columns[1].astype(np.int64), columns[2].copy(),
                    messages, rows)


def _hear(heard: list[tuple[float, int, float]], site: RingSite | None, message: RingMessage,
          hop: float, now: float) -> None:
    """Let a site take a message; contents are the times at which rows were made."""
    if site is not None:
        heard += [(now, row.site, row.content) for row in site.heard(message, hop, now)]


def replay_ring(world: World, asked: Arrivals, policy: Policy = OURS,
                faults: Sequence[Fault] = ()) -> Report:
    """Play requests at sites whose rows go round a ring; see `replay`."""
    sites = len(world.sites)
    before = math.ceil(oldest(sites) / refresh(sites)) * refresh(sites)
    found = play_ring(
        sites, lambda i, j, now: float(world.hop[i, j]), float(asked.time[0]) - before,
        float((asked.time + asked.remaining).max()),
        [Absence(fault.site, fault.start, fault.stop) for fault in faults])
    return replay(replace(world, period=refresh(sites)), asked, policy, faults,
                  rows=RowsHeard(*found[:4], oldest(sites)))
