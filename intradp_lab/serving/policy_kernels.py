# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How others admit requests and choose sites: baselines on the arrays of the same sites.

`take_by_deadline` is the usual rule: the earliest deadline first, refused at
once what would be late, batches as large as the deadline of their first allows.
`take_all` takes all in the order of arrival; what is over is dropped when its
batch would start.  What has the name of a function of `world_kernels` takes its place.
"""
from __future__ import annotations

import math
from typing import NamedTuple

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
from intradp_ros.systems.serving.world_kernels import (
    arrive,
    BACK,
    Behaviour,
    Events,
    HISTORY,
    HOP,
    look_round,
    Network,
    one_site,
    push,
    Requests,
    site_rows,
    start,
    State,
)
from intradp_ros.systems.serving.world_kernels import (
    roomier_site as ours,
)

#: How requests are admitted: seats; the earliest deadline first; all, in their order.
SEATS, BY_DEADLINE, ALL = range(3)
#: How the next site is chosen: none; in turn; Eq. 1; by slack, drawn; the best of old rows; by a
#: centre that knows all sites, after a delay.
NOWHERE, IN_TURN, IDLE_GOODPUT, SLACK, BEST, CENTRE = range(6)
#: Of events: a place is ready, a centre decides.
READY, DECIDE = BACK + 1, BACK + 2


class More(NamedTuple):
    """
    What these policies need in addition: `Behaviour.more`.

    `delay`: seconds until a centre has decided.  `nbytes[s]`, `load[s]`, `room[i, executor]`:
    memory, and seconds to load a service, where that is done `on_demand`; `used[i, place]`: when a
    place was last asked for.  The seconds of work that a site `accepted` since its last row, those
    that it could have done (`past_idle`), the `turn` of round robin.  Rows of the `log`, `logged`
    of them: time, site, service and deadline of what came to sites.  `idle` is room.
    """

    admission: int
    choice: int
    delay: float
    on_demand: bool
    nbytes: Floats
    load: Floats
    room: Floats
    used: Floats
    accepted: Floats
    past_idle: Floats
    turn: Ints
    log: Floats
    logged: Ints
    idle: Floats


def enters(b: Behaviour, events: Events, r: int, now: float) -> bool:
    """Say whether a request that comes from its client goes to its site at once."""
    if b.more.choice == CENTRE:
        push(events, now + b.more.delay, DECIDE, r, 0)
        return False
    return True


def admit(stacked: SiteArrays, b: Behaviour, events: Events, i: int, asked: Asked, now: float,
          ) -> Seat:
    """Seat a request at a site, or say why not."""
    m, site = b.more, one_site(stacked, i)
    if m.logged[0] < len(m.log):
        k = m.logged[0]
        m.log[k, 0], m.log[k, 1], m.log[k, 2], m.log[k, 3] = now, i, asked.service, asked.deadline
        m.logged[0] += 1
    if m.on_demand:
        _load(stacked, m, events, i, asked.service, now)
    if m.admission == SEATS:
        seat = seats.take_seat(site, asked, now)
    elif m.admission == BY_DEADLINE:
        seat = take_by_deadline(site, asked, now)
    else:
        seat = take_all(site, asked, now)
    if seat.executor >= 0:
        place = site.place[seat.row]
        m.accepted[i] += site.seconds[place, site.size[place]] / site.size[place]
    return seat


def begin(site: SiteArrays, b: Behaviour, executor: int, now: float) -> int:
    """Let a free executor begin a batch; return its rows."""
    if b.more.admission == SEATS:
        return seats.start_batch(site, executor, now)
    return start_shrunk(site, executor, now, b.more.admission == BY_DEADLINE)


def roomier_site(q: Requests, n: Network, b: Behaviour, w: State, r: int, i: int, now: float,
                 remaining: float, seconds: float) -> int:
    """Return the site to which a request goes that has a seat, -1 if it stays."""
    if b.more.choice != SLACK:
        return -1
    return ours(q, n, b, w, r, i, now, remaining, seconds)


def next_site(q: Requests, n: Network, b: Behaviour, w: State, r: int, i: int, now: float,
              remaining: float) -> int:
    """Return the site to which a request goes that has no seat, -1 for none."""
    m = b.more
    if m.choice == NOWHERE or m.choice == CENTRE:
        return -1
    look_round(q, n, w, r, i, now)
    rows = site_rows(n, w, i)
    if m.choice == SLACK:
        return dispatch.choose_site(rows, 0, remaining, w.visited, q.number[r], now)
    if m.choice == IN_TURN:
        return choose_next(rows, 0, remaining, w.visited, m.turn[i])
    if m.choice == BEST:
        return choose_best(rows, 0, remaining, w.visited, now)
    for j in range(len(w.versions)):
        m.idle[j] = m.past_idle[j, w.version[i, j] % HISTORY]
    return choose_idle(rows, 0, remaining, w.visited, m.idle, q.number[r], now)


def note_row(stacked: SiteArrays, n: Network, b: Behaviour, i: int, k: int) -> None:
    """Note what else a site says when it makes its k-th row."""
    executors = 0.0
    for executor in range(stacked.alive.shape[1]):
        executors += stacked.alive[i, executor]
    b.more.past_idle[i, k] = executors * n.period - b.more.accepted[i]
    b.more.accepted[i] = 0.0


def happens(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
            kind: int, first: int, second: int, now: float) -> None:
    """Let a place be ready, or a centre decide."""
    if kind == READY:
        start(q, stacked, b, w, events, first, second, now)
    else:
        _decide(q, stacked, n, b, w, events, first, now)




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
                > site.deadline[site.queue[place, 0]] + seats.ROUNDING:
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
                and remaining - 2 * rows.hop[site] - rows.least[site, service] >= -seats.ROUNDING:
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
        while count > 1 and time + site.seconds[place, count] > first + seats.ROUNDING:
            count -= 1
        time += site.seconds[place, count]
        if time > first + seats.ROUNDING:
            return math.inf
        for k in range(site.turn[place], site.turn[place] + count):
            if site.queue[place, k] == row:
                finish = time
        site.turn[place] += count


def _load(stacked: SiteArrays, m: More, events: Events, i: int, service: int, now: float) -> None:
    """Load a service that a site lacks where most was not asked for longest (LRU)."""
    best, oldest = -1, math.inf
    for place in range(stacked.service_of.shape[1]):
        if stacked.service_of[i, place] != service:
            continue
        if stacked.ready[i, place] < math.inf:
            m.used[i, place] = now
            return
        executor = stacked.executor_of[i, place]
        newest = -math.inf
        for other in range(stacked.service_of.shape[1]):
            if stacked.executor_of[i, other] == executor and stacked.ready[i, other] < math.inf:
                newest = max(newest, m.used[i, other])
        if newest < oldest:
            best, oldest = place, newest
    if best < 0:
        return
    executor = stacked.executor_of[i, best]
    room = m.room[i, executor] - m.nbytes[service]
    for other in range(stacked.service_of.shape[1]):
        if stacked.executor_of[i, other] == executor and stacked.ready[i, other] < math.inf:
            room -= m.nbytes[stacked.service_of[i, other]]
    while room < 0:
        out, oldest = -1, math.inf
        for other in range(stacked.service_of.shape[1]):
            if stacked.executor_of[i, other] == executor and stacked.ready[i, other] <= now \
                    and stacked.queued[i, other] == 0 and m.used[i, other] < oldest:
                out, oldest = other, m.used[i, other]
        if out < 0:
            return
        stacked.ready[i, out] = math.inf
        room += m.nbytes[stacked.service_of[i, out]]
    m.used[i, best] = now
    stacked.ready[i, best] = now + m.load[service]
    push(events, now + m.load[service], READY, i, executor)


def _decide(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
            r: int, now: float) -> None:
    """Send a request from the centre to the site where it ends first."""
    home, service = q.home[r], q.service[r]
    sites = len(w.versions)
    best, first = home, math.inf
    for j in range(sites):
        if not w.alive[j]:
            continue
        seats.outlook(one_site(stacked, j), now, w.past_ends[j, 0], w.past_shares[j, 0],
                      w.past_least[j, 0])
        ends = max(w.past_ends[j, 0, service], n.hop[home, j]) + n.hop[j, home]
        if ends < first:
            best, first = j, ends
    q.path[r, 0] = home
    if best == home:
        arrive(q, stacked, n, b, w, events, r, home, now, False)
        return
    q.hops[r] = 1
    q.path[r, 1] = best
    q.back[r] = n.hop[best, home]
    push(events, now + n.hop[home, best] + n.bytes_[service], HOP, r, best)
