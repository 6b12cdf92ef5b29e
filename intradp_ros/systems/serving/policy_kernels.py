# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How others admit requests and choose sites: baselines on the arrays of the same sites.

`take_by_deadline` is the usual rule: the earliest deadline first, refused at
once what would be late, batches as large as the deadline of their first allows.
`take_all` takes all in the order of arrival; what is over is dropped when its
batch would start.
"""
from __future__ import annotations

import math

from intradp_ros.systems.serving.site_arrays import (
    Asked,
    ENDED,
    Floats,
    FREE_ROWS,
    Ints,
    LATE,
    NO_ROOM,
    NOT_HERE,
    RUNNING,
    Seat,
    SiteArrays,
    TOO_LATE,
    WOULD_BE_LATE,
)
from intradp_ros.systems.serving.site_kernels import dispatch, seats
from intradp_ros.systems.serving.site_kernels.dispatch import Flags, SiteRows

ROUNDING = 1e-9


def take_by_deadline(site: SiteArrays, asked: Asked, now: float) -> Seat:
    """Seat a request where it ends first if all end in time with batches that may shrink."""
    site.marks[ENDED] = 0
    if not asked.deadline > now:
        return Seat(-1, TOO_LATE, math.inf, -1)
    best, finish, why = -1, math.inf, NOT_HERE
    for place in range(len(site.queued)):
        if not _open(site, place, asked.service, now):
            continue
        why = WOULD_BE_LATE if why == NOT_HERE else why
        if not _room(site, place):
            why = NO_ROOM
            continue
        index = _by_deadline(site, place, asked.deadline)
        row = seats.insert(site, place, index, _new_slot(site, place), asked)
        end = _played(site, site.executor_of[place], row, now)
        seats.leave_queue(site, place, index, 1, False)
        seats.release(site, row)
        if end < finish:
            best, finish = place, end
    if best < 0:
        return Seat(-1, why, math.inf, -1)
    index = _by_deadline(site, best, asked.deadline)
    executor = site.executor_of[best]
    row = seats.insert(site, best, index, _new_slot(site, best), asked)
    return Seat(executor, index // site.size[best], finish, row)


def take_all(site: SiteArrays, asked: Asked, now: float) -> Seat:
    """Seat a request behind all others, where the fewest wait."""
    site.marks[ENDED] = 0
    best, least, why = -1, math.inf, NOT_HERE
    for place in range(len(site.queued)):
        if not _open(site, place, asked.service, now):
            continue
        if not _room(site, place):
            why = NO_ROOM
            continue
        executor = site.executor_of[place]
        ahead = 1.0 if site.running[executor] >= 0 else 0.0
        for other in range(len(site.queued)):
            if site.executor_of[other] == executor:
                ahead += site.queued[other]
        if ahead < least:
            best, least = place, ahead
    if best < 0:
        return Seat(-1, why, math.inf, -1)
    executor = site.executor_of[best]
    index = site.queued[best]
    row = seats.insert(site, best, index, _new_slot(site, best), asked)
    return Seat(executor, index // site.size[best], math.inf, row)


def start_shrunk(site: SiteArrays, executor: int, now: float, shrink: bool) -> int:
    """
    Start the batch whose first row comes first; return its rows.

    What is over is dropped.  With `shrink` the batch is as large as the first row's deadline
    allows, and what is first has the earliest deadline; else it was the first to come.
    """
    site.marks[ENDED] = 0
    if not site.alive[executor] or site.running[executor] >= 0:
        return 0
    for place in range(len(site.queued)):
        if site.executor_of[place] == executor:
            k = 0
            while k < site.queued[place]:
                row = site.queue[place, k]
                if site.deadline[row] <= now:
                    seats.leave_queue(site, place, k, 1, False)
                    seats.end_row(site, row, LATE)
                else:
                    k += 1
    place = _first_place(site, executor, now, shrink)
    if place < 0:
        return 0
    count = min(site.size[place], site.queued[place])
    if shrink:
        while count > 1 and now + site.seconds[place, count] \
                > site.deadline[site.queue[place, 0]] + ROUNDING:
            count -= 1
    for k in range(count):
        row = site.queue[place, k]
        site.state[row] = RUNNING
        site.batch[executor, k] = row
    seats.leave_queue(site, place, 0, count, True)
    site.batched[executor] = count
    site.running[executor] = place
    site.began[executor] = now
    site.free_at[executor] = now + site.seconds[place, count]
    return int(count)


def choose_next(rows: SiteRows, service: int, remaining: float, visited: Flags, turn: Ints,
                ) -> int:
    """Return the next site in turn that has a service and could answer in time if it were idle."""
    sites = len(rows.made)
    for _ in range(sites):
        turn[0] = (turn[0] + 1) % sites
        site = turn[0]
        if not visited[site] and rows.shares[site, service] > 0 \
                and remaining - 2 * rows.hop[site] - rows.least[site, service] >= -ROUNDING:
            return int(site)
    return -1


def choose_idle(rows: SiteRows, service: int, remaining: float, visited: Flags, idle: Floats,
                number: int, now: float) -> int:
    """
    Draw a site by its idle goodput (Eq. 1 of the paper).

    `idle` has, by site, the seconds that executors could have worked in the last period and did
    not.  Sites where the request would be late are left out, by what is left of its deadline.
    """
    dispatch.slacks(rows, service, remaining, visited, now)
    for site in range(len(idle)):
        if rows.slack[site] > 0.0:
            rows.slack[site] = max(0.0, idle[site])
    return dispatch.drawn_site(rows.slack, visited, number)


def choose_best(rows: SiteRows, service: int, remaining: float, visited: Flags, now: float) -> int:
    """Return the site with most slack by the rows as they are."""
    dispatch.slacks(rows, service, remaining, visited, now)
    best, most = -1, 0.0
    for site in range(len(rows.slack)):
        slack = rows.slack[site] + rows.sent[site] if rows.slack[site] > 0 else 0.0
        if slack > most:
            best, most = site, slack
    return best


def _open(site: SiteArrays, place: int, service: int, now: float) -> bool:
    return bool(site.service_of[place] == service and site.ready[place] <= now
                and site.alive[site.executor_of[place]])


def _room(site: SiteArrays, place: int) -> bool:
    return bool(site.marks[FREE_ROWS] > 0 and site.queued[place] < site.queue.shape[1])


def _new_slot(site: SiteArrays, place: int) -> int:
    """Return where the slot for another row goes, -1 where none is needed; their order is free."""
    if site.queued[place] % site.size[place] != 0:
        return -1
    return int(site.slotted[site.executor_of[place]])


def _by_deadline(site: SiteArrays, place: int, deadline: float) -> int:
    index = site.queued[place]
    while index > 0 and site.deadline[site.queue[place, index - 1]] > deadline:
        index -= 1
    return int(index)


def _first_place(site: SiteArrays, executor: int, now: float, by_deadline: bool) -> int:
    best, first = -1, math.inf
    for place in range(len(site.queued)):
        if site.executor_of[place] == executor and site.queued[place] > 0 \
                and site.ready[place] <= now:
            row = site.queue[place, 0]
            key = site.deadline[row] if by_deadline else float(site.number[row])
            if key < first:
                best, first = place, key
    return best


def _played(site: SiteArrays, executor: int, row: int, now: float) -> float:
    """Return when a row ends; infinity if it or another of its executor is late."""
    time = now if site.running[executor] < 0 else max(now, site.free_at[executor])
    finish = math.inf
    site.turn[:] = 0
    while True:
        place, first = -1, math.inf
        for other in range(len(site.queued)):
            if site.executor_of[other] == executor and site.turn[other] < site.queued[other]:
                due = site.deadline[site.queue[other, site.turn[other]]]
                if due < first:
                    place, first = other, due
        if place < 0:
            return finish
        count = min(site.size[place], site.queued[place] - site.turn[place])
        while count > 1 and time + site.seconds[place, count] > first + ROUNDING:
            count -= 1
        time += site.seconds[place, count]
        if time > first + ROUNDING:
            return math.inf
        for k in range(site.turn[place], site.turn[place] + count):
            if site.queue[place, k] == row:
                finish = time
        site.turn[place] += count
