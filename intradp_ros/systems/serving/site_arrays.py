# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
All that one site knows, as named arrays that numba takes as they stand.

An executor runs one batch at a time.  A *place* is a service on an executor.  What an executor
will run stands in its `slots`, each a planned batch of one place.  Requests wait in the queue of
a place, by priority, then deadline, then number; the i-th one sits in the (i // size)-th slot of
its place, which is its *seat*.  So a request that leaves only lets others move forward.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import math
from typing import Any, NamedTuple

import numpy as np

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

#: Fates; what is let go has none yet: it is forwarded or refused.
IN_TIME, LATE, REFUSED, CANCELLED, LET_GO = range(5)
FATES = 4
#: States of a row; what is over runs on for nobody.
FREE, SEATED, RUNNING, OVER = range(4)
#: What an executor is, in `alive`; one that is leaving ends what it has, and takes nobody new.
GONE, SERVING, LEAVING = range(3)
#: Why a request gets no seat.
TOO_LATE, NOT_HERE, LOADING, NO_ROOM, WOULD_BE_LATE, WOULD_HARM = range(6)
#: Of `marks`: how many rows are free, and how many ended in the newest call.
FREE_ROWS, ENDED = range(2)
ROWS, QUEUE = 1024, 256


class Asked(NamedTuple):
    """A request as a site sees it: `deadline` is a time of the site's clock."""

    number: int
    service: int
    deadline: float
    priority: int


class Seat(NamedTuple):
    """
    Where a request sits and when it is predicted to end, at the latest.

    `executor` -1: nowhere; then `batch` says why and `finish` when a request of as much
    remaining time would be taken, as far as is known, or infinity.  `batch` 0 is the next one.
    """

    executor: int
    batch: int
    finish: float
    row: int


class SiteArrays(NamedTuple):
    """
    One site.

    By row (a request): `number`, `service`, `deadline`, `priority`, `place`, `state`, and `fate`
    once it ended.  `free` is a stack of rows.  `ended` lists the rows that the newest call ended
    (`marks[ENDED]` of them): who calls reads them before the next call, which may use them anew.

    By place: its `executor_of` and `service_of`, `size` of full batches and the one that is
    `wanted`, which it gets once nobody sits there, `ready` (from when on, infinite: not loaded),
    promised `seconds` by rows of a batch, and the `queue` of rows with its length (`queued`).

    By executor: `alive` (gone, serving, leaving), the place that is `running` (-1: none), `began`
    and `free_at`, the rows of its `batch` and their number, its `slots` (places) and their number.

    By service: seconds of executors `spent` for answers in time and for nobody.

    `turn`, `kept` (by place) and `doomed` (by row) are room for the kernels.
    """

    number: Ints
    service: Ints
    deadline: Floats
    priority: Ints
    place: Ints
    state: Ints
    fate: Ints
    doomed: Ints
    free: Ints
    ended: Ints
    marks: Ints
    executor_of: Ints
    service_of: Ints
    size: Ints
    wanted: Ints
    ready: Floats
    seconds: Floats
    queue: Ints
    queued: Ints
    turn: Ints
    kept: Ints
    alive: Ints
    running: Ints
    began: Floats
    free_at: Floats
    batch: Ints
    batched: Ints
    slots: Ints
    slotted: Ints
    spent: Floats


@dataclass(frozen=True, slots=True)
class Place:
    """
    A service on an executor: full batches have `size` rows; `seconds` promised by rows.

    They may go on beyond `size`: a larger one may be wanted later.
    """

    executor: int
    service: int
    size: int
    seconds: tuple[float, ...]
    ready: float = -math.inf


def make_site(places: Sequence[Place], executors: int, services: int, rows: int = ROWS,
              queue: int = QUEUE, largest: int = 1) -> SiteArrays:
    """
    Return an idle site with room for so many requests, and so many that wait at a place.

    `largest` is the largest batch that a place may get later.

    :raises ValueError: if a place names an executor or a service that is not there, stands twice,
        or has no times for its batches.
    """
    seen = set()
    for place in places:
        if not (0 <= place.executor < executors and 0 <= place.service < services):
            raise ValueError(f'{place} names none of {executors} executors or {services} services')
        if (place.executor, place.service) in seen:
            raise ValueError(f'service {place.service} stands twice on executor {place.executor}')
        seen.add((place.executor, place.service))
        if not 1 <= place.size <= len(place.seconds) or not min(place.seconds) > 0:
            raise ValueError(f'{place} lacks times above 0 for batches of 1 to {place.size}')
    most = max(largest, *(len(place.seconds) for place in places)) if places else largest
    count = len(places)
    seconds = np.full((count, most + 1), np.inf)
    for k, place in enumerate(places):
        seconds[k, 1:len(place.seconds) + 1] = place.seconds
    marks = _ints(2)
    marks[FREE_ROWS] = rows
    return SiteArrays(
        _ints(rows), _ints(rows), np.zeros(rows), _ints(rows), _ints(rows), _ints(rows),
        _ints(rows), _ints(rows), np.arange(rows)[::-1].copy(), _ints(rows), marks,
        np.array([p.executor for p in places], np.int64),
        np.array([p.service for p in places], np.int64),
        np.array([p.size for p in places], np.int64),
        np.array([p.size for p in places], np.int64),
        np.array([p.ready for p in places], np.float64), seconds,
        _ints(count, queue), _ints(count), _ints(count), _ints(count),
        np.ones(executors, np.int64), np.full(executors, -1, np.int64), np.zeros(executors),
        np.zeros(executors), _ints(executors, most), _ints(executors),
        _ints(executors, max(1, count) * queue), _ints(executors), np.zeros((services, 2)))


def absent(executor: int, service: int) -> Place:
    """Return a place whose service is not loaded yet."""
    return Place(executor, service, 1, (1.0,), math.inf)


def set_place(site: SiteArrays, place: int, size: int, seconds: Sequence[float], ready: float,
              ) -> None:
    """Change what is known of a place at which nobody sits, or only its seconds."""
    if size != site.size[place]:
        if site.queued[place]:
            raise ValueError(f'requests sit in batches of {site.size[place]} at place {place}')
        site.size[place] = site.wanted[place] = size
    most = min(len(seconds), site.seconds.shape[1] - 1)
    site.seconds[place, 1:most + 1] = seconds[:most]
    site.ready[place] = ready


def _ints(*shape: int) -> Ints:
    return np.zeros(shape, np.int64)
