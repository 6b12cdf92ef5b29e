# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The event loop of the simulator: the sites' own functions on all rows, in model time.

Chance follows from the numbers of requests alone, so that equal requests meet
equal chance under every policy.  Other policies take the place of `enters`, `admit`, `begin`,
`roomier_site`, `next_site`, `note_row` and `happens`.
"""
from __future__ import annotations

import math
from typing import Any, NamedTuple

from intradp_ros.systems.serving.site_arrays import (
    Asked,
    CANCELLED,
    ENDED,
    Floats,
    Ints,
    LET_GO,
    REFUSED,
    Seat,
    SEATED,
    SiteArrays,
    TOO_LATE,
)
from intradp_ros.systems.serving.site_kernels import dispatch, seats
from intradp_ros.systems.serving.site_kernels.dispatch import Flags, MAX_HOPS, SiteRows

#: Of events: a batch ends, a site makes its row, a request arrives at a site, a site is gone, a
#: site is back; larger ones are of other policies.
BATCH, ROW, HOP, GONE, BACK = range(5)
#: Of `progress`.
OPEN, COME, BEGUN = range(3)
#: Rows that are kept of each site.
HISTORY = 64
#: Why a request got no answer, in addition to the reasons of a seat.
HOPS_EXCEEDED, NO_SITE, SITE_LOST = range(16, 19)
#: What rounding of times may amount to.
ROUNDING = 1e-6


class Requests(NamedTuple):
    """
    Requests in the order of their time, and what becomes of each.

    `deadline`: by when the answer is due at the first site.  `at`, `row`: where it is now.
    `back`: seconds of the way back from there.  `fate`: -1 as long as it is open.
    """

    time: Floats
    home: Ints
    service: Ints
    deadline: Floats
    priority: Ints
    stream: Ints
    number: Ints
    fate: Ints
    why: Ints
    finish: Floats
    predicted: Floats
    at: Ints
    row: Ints
    hops: Ints
    back: Floats
    batch: Ints
    path: Ints


class Network(NamedTuple):
    """
    What joins the sites.

    `hop[i, j]` seconds one way; rows are made every `period` seconds and are `lag[i, j]` seconds
    old when they arrive at i from j.  `due`: seconds of an answer of each service on the way to
    the site, in addition to the hop (its bytes).

    `holders[s]` are the sites that have service s, `held[s]` of them.

    Where rows are not sent to all (`ring`), site i hears at `heard_at[k]` the row that
    `heard_of[k]` made at `heard_made[k]`, k from `first[i]` to `first[i + 1]`; those above the age
    `oldest` count no more.
    """

    hop: Floats
    lag: Floats
    bytes_: Floats
    period: float
    holders: Ints
    held: Ints
    ring: bool
    oldest: float
    first: Ints
    heard_at: Floats
    heard_of: Ints
    heard_made: Floats


class Behaviour(NamedTuple):
    """
    How executors behave.

    `actual[i, place, b]`: mean seconds of batches, of which single ones differ by the factor
    exp(`spread` z).  `newest[s]`: newer frames of a stream replace waiting ones.  `more` is what
    other policies need.
    """

    actual: Floats
    spread: float
    newest: Flags
    more: Any


class State(NamedTuple):
    """
    What changes beside the sites.

    `request[i, row]`; `version[i, j]` of the row of j that i has, what i has `sent` there since,
    whether it found j `lost` since, and how many rows it `heard` of a ring.  The last rows of each
    site (`past_...`), how many it has made (`versions`), the `newest` request of each stream,
    `ends_at[i, executor]`: when its batch really ends.  `progress`: how many requests are open,
    have come, and whether it began.  `visited` and the rest are room.
    """

    request: Ints
    sent: Floats
    lost: Flags
    heard: Ints
    version: Ints
    past_ends: Floats
    past_shares: Floats
    past_least: Floats
    past_made: Floats
    versions: Ints
    newest: Ints
    alive: Ints
    ends_at: Floats
    progress: Ints
    visited: Flags
    slack: Floats
    ends: Floats
    shares: Floats
    least: Floats
    made: Floats


class Events(NamedTuple):
    """
    What is to happen, as a heap: `time`, and `what`: kind and two numbers; `size` are there.

    Arrays, since what numba does not allocate it does not count.
    """

    time: Floats
    what: Ints
    size: Ints


def run(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, faults: Floats,
        events: Events, until: float) -> int:
    """Play on `until` a time; `faults` has rows of start, stop, site; return the events played."""
    count = len(q.time)
    if not w.progress[BEGUN] and count > 0:
        _prepare(q, stacked, n, b, w, faults, events)
    played = 0
    while w.progress[OPEN] > 0:
        following = w.progress[COME]
        if events.size[0] == 0 or following < count and q.time[following] < events.time[0]:
            if q.time[following] >= until:
                break
            w.progress[COME] += 1
            played += 1
            arrive(q, stacked, n, b, w, events, following, q.home[following], q.time[following],
                   True)
            continue
        if events.time[0] >= until:
            break
        played += 1
        now = events.time[0]
        kind, first, second = events.what[0, 0], events.what[0, 1], events.what[0, 2]
        pop(events)
        if kind == BATCH:
            _end(q, stacked, n, b, w, events, first, second, now)
        elif kind == ROW:
            _make_row(stacked, n, b, w, first, now)
            push(events, now + n.period, ROW, first, 0)
        elif kind == HOP:
            if q.fate[first] < 0:
                arrive(q, stacked, n, b, w, events, first, second, now, False)
        elif kind == GONE:
            _gone(q, stacked, n, b, w, events, first, now)
        elif kind > BACK:
            happens(q, stacked, n, b, w, events, kind, first, second, now)
        else:
            w.alive[first] = 1
            for executor in range(stacked.alive.shape[1]):
                stacked.alive[first, executor] = 1
                stacked.free_at[first, executor] = now
    return played


def _prepare(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, faults: Floats,
             events: Events) -> None:
    """Let all sites make their first rows, and note what is to happen."""
    sites = len(w.versions)
    for site in range(sites):
        _make_row(stacked, n, b, w, site, q.time[0])
        push(events, q.time[0] + n.period * (site + 1) / sites, ROW, site, 0)
    for k in range(len(faults)):
        push(events, faults[k, 0], GONE, int(faults[k, 2]), 0)
        push(events, faults[k, 1], BACK, int(faults[k, 2]), 0)
    w.progress[OPEN] = len(q.time)
    w.progress[BEGUN] = 1


def push(events: Events, time: float, kind: int, first: int, second: int) -> None:
    """Let something happen at a time."""
    k = events.size[0]
    events.size[0] += 1
    events.time[k], events.what[k, 0], events.what[k, 1], events.what[k, 2] = \
        time, kind, first, second
    while k > 0 and _earlier(events, k, (k - 1) // 2):
        _swap(events, k, (k - 1) // 2)
        k = (k - 1) // 2


def pop(events: Events) -> None:
    """Remove what happens first."""
    events.size[0] -= 1
    count, k = events.size[0], 0
    _swap(events, 0, count)
    while 2 * k + 1 < count:
        least = 2 * k + 1
        if least + 1 < count and _earlier(events, least + 1, least):
            least += 1
        if not _earlier(events, least, k):
            return
        _swap(events, k, least)
        k = least


def _earlier(events: Events, a: int, b: int) -> bool:
    """Return whether something comes before something else; numbers decide between equal times."""
    if events.time[a] != events.time[b]:
        return bool(events.time[a] < events.time[b])
    for k in range(3):
        if events.what[a, k] != events.what[b, k]:
            return bool(events.what[a, k] < events.what[b, k])
    return False


def _swap(events: Events, a: int, b: int) -> None:
    events.time[a], events.time[b] = events.time[b], events.time[a]
    for k in range(3):
        events.what[a, k], events.what[b, k] = events.what[b, k], events.what[a, k]


def one_site(s: SiteArrays, i: int) -> SiteArrays:
    """Return the arrays of one of several sites."""
    return SiteArrays(
        s.number[i], s.service[i], s.deadline[i], s.priority[i], s.place[i], s.state[i],
        s.fate[i], s.doomed[i], s.free[i], s.ended[i], s.marks[i], s.executor_of[i],
        s.service_of[i], s.size[i], s.wanted[i], s.ready[i], s.seconds[i], s.queue[i],
        s.queued[i], s.turn[i], s.kept[i], s.alive[i], s.running[i], s.began[i], s.free_at[i],
        s.batch[i], s.batched[i], s.slots[i], s.slotted[i], s.spent[i])


def enters(b: Behaviour, events: Events, r: int, now: float) -> bool:
    """Say whether a request that comes from its client goes to its site at once."""
    return True


def admit(stacked: SiteArrays, b: Behaviour, events: Events, i: int, asked: Asked, now: float,
          ) -> Seat:
    """Seat a request at a site, or say why not."""
    return seats.take_seat(one_site(stacked, i), asked, now)


def begin(site: SiteArrays, b: Behaviour, executor: int, now: float) -> int:
    """Let a free executor begin a batch; return its rows."""
    return seats.start_batch(site, executor, now)


def roomier_site(q: Requests, n: Network, b: Behaviour, w: State, r: int, i: int, now: float,
                 remaining: float, seconds: float) -> int:
    """Return the site to which a request goes that has a seat, -1 if it stays."""
    if q.hops[r] >= MAX_HOPS or not dispatch.is_crowded(remaining, seconds):
        return -1
    look_round(q, n, w, r, i, now)
    return dispatch.choose_roomier(site_rows(n, w, i), 0, remaining, w.visited, q.number[r], now,
                                   seconds)


def next_site(q: Requests, n: Network, b: Behaviour, w: State, r: int, i: int, now: float,
              remaining: float) -> int:
    """Return the site to which a request goes that has no seat, -1 for none."""
    look_round(q, n, w, r, i, now)
    return dispatch.choose_site(site_rows(n, w, i), 0, remaining, w.visited, q.number[r], now)


def note_row(stacked: SiteArrays, n: Network, b: Behaviour, i: int, k: int) -> None:
    """Note what else a site says when it makes its k-th row."""


def happens(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
            kind: int, first: int, second: int, now: float) -> None:
    """Do what only other policies have happen."""


def arrive(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
           r: int, i: int, now: float, first: bool) -> None:
    """Let a request be seated at a site, forwarded, or refused."""
    if first and not enters(b, events, r, now):
        return
    q.at[r] = i
    if first:
        q.path[r, 0] = i
        if q.stream[r] >= 0:
            if b.newest[q.service[r]]:
                _replace(q, stacked, w, r, now)
            w.newest[q.stream[r]] = r
    if not w.alive[i]:
        q.why[r] = SITE_LOST
        _back_to_sender(q, n, b, w, events, r, i, now)
        return
    site = one_site(stacked, i)
    if b.spread > 0.0:
        seats.expire(site, now)
        _ended(q, stacked, n, b, w, events, i, now)
    asked = Asked(q.number[r], q.service[r], q.deadline[r] - q.back[r], q.priority[r])
    seat = admit(stacked, b, events, i, asked, now)
    if seat.executor >= 0 and site.marks[ENDED] == 0:
        target = roomier_site(q, n, b, w, r, i, now, asked.deadline - now, seat.finish - now)
        if target >= 0:
            seats.withdraw(site, seat.row, now)
            site.marks[ENDED] = 0
            _send(q, n, w, events, r, i, target, now)
            return
    _ended(q, stacked, n, b, w, events, i, now)  # before a row that was let go is used anew
    if seat.executor >= 0:
        w.request[i, seat.row] = r
        q.row[r] = seat.row
        q.predicted[r] = seat.finish + q.back[r]
        start(q, stacked, b, w, events, i, seat.executor, now)
    else:
        q.why[r] = seat.batch
        _forward(q, n, b, w, events, r, i, now)


def look_round(q: Requests, n: Network, w: State, r: int, i: int, now: float) -> None:
    """Write what a site knows of the others, and where a request has been."""
    _hear(n, w, i, q.service[r], now)
    w.visited[:] = False
    for k in range(q.hops[r] + 1):
        w.visited[q.path[r, k]] = True


def site_rows(n: Network, w: State, i: int) -> SiteRows:
    """Return what was written of a site's knowledge, for one service."""
    return SiteRows(w.ends, w.shares, w.least, w.made, n.hop[i], w.sent[i], w.slack)


def _send(q: Requests, n: Network, w: State, events: Events, r: int, i: int, target: int,
          now: float) -> None:
    """Send a request to another site."""
    dispatch.note_sent(site_rows(n, w, i), target, 0)
    q.hops[r] += 1
    q.path[r, q.hops[r]] = target
    q.back[r] += n.hop[target, i]
    push(events, now + n.hop[i, target] + n.bytes_[q.service[r]], HOP, r, target)


def _forward(q: Requests, n: Network, b: Behaviour, w: State, events: Events, r: int, i: int,
             now: float) -> None:
    """Send a request on, or refuse it."""
    if q.why[r] == TOO_LATE:
        _refuse(q, w, r, q.why[r], now)
        return
    if q.hops[r] >= MAX_HOPS:
        _refuse(q, w, r, HOPS_EXCEEDED, now)
        return
    target = next_site(q, n, b, w, r, i, now, q.deadline[r] - q.back[r] - now)
    if target < 0:
        _refuse(q, w, r, NO_SITE if q.hops[r] == 0 else q.why[r], now)
        return
    _send(q, n, w, events, r, i, target, now)


def _hear(n: Network, w: State, i: int, service: int, now: float) -> None:
    """Take the newest rows that have come to a site; write what they say of a service."""
    if n.ring:
        _hear_round(n, w, i, now)
    w.ends[:] = math.inf
    w.shares[:] = 0.0
    for which in range(n.held[service]):
        j = n.holders[service, which]
        if not n.ring:
            oldest = max(0, w.versions[j] - HISTORY, w.version[i, j])
            k = w.versions[j] - 1
            while k > oldest and w.past_made[j, k % HISTORY] + n.lag[i, j] > now:
                k -= 1
            _take_row(w, i, j, k)
        at = w.version[i, j] % HISTORY
        w.made[j] = w.past_made[j, at]
        w.shares[j, 0] = w.past_shares[j, at, service]
        w.least[j, 0] = w.past_least[j, at, service]
        w.ends[j, 0] = w.past_ends[j, at, service]
        if w.lost[i, j] or now - w.made[j] > n.oldest:
            w.ends[j, 0] = math.inf
            w.shares[j, 0] = 0.0


def _hear_round(n: Network, w: State, i: int, now: float) -> None:
    """Take what came to a site round the ring."""
    k = w.heard[i]
    while k < n.first[i + 1] and n.heard_at[k] <= now:
        j = n.heard_of[k]
        version = w.versions[j] - 1
        while version > max(0, w.versions[j] - HISTORY) \
                and w.past_made[j, version % HISTORY] > n.heard_made[k] + ROUNDING:
            version -= 1
        _take_row(w, i, j, version)
        k += 1
    w.heard[i] = k


def _take_row(w: State, i: int, j: int, version: int) -> None:
    """Let a site know a row of another if it is newer than what it has."""
    if version > w.version[i, j]:
        w.version[i, j] = version
        w.sent[i, j] = 0.0
        w.lost[i, j] = False


def _make_row(stacked: SiteArrays, n: Network, b: Behaviour, w: State, i: int, now: float,
              ) -> None:
    """Write what others need to know of a site."""
    if not w.alive[i]:
        return
    k = w.versions[i] % HISTORY
    seats.outlook(one_site(stacked, i), now, w.past_ends[i, k], w.past_shares[i, k],
                  w.past_least[i, k])
    note_row(stacked, n, b, i, k)
    w.past_made[i, k] = now
    w.versions[i] += 1


def _refuse(q: Requests, w: State, r: int, why: int, now: float) -> None:
    q.fate[r] = REFUSED
    q.why[r] = why
    q.finish[r] = now + q.back[r]
    w.progress[OPEN] -= 1


def _ended(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
           i: int, now: float) -> None:
    """Note the fates of rows that the newest call ended; forward what was let go."""
    count = stacked.marks[i, ENDED]
    if count == 0:
        return
    stacked.marks[i, ENDED] = 0
    for k in range(count):
        row = stacked.ended[i, k]
        r = w.request[i, row]
        if stacked.fate[i, row] == LET_GO:
            _forward(q, n, b, w, events, r, i, now)
        else:
            q.fate[r] = stacked.fate[i, row]
            q.finish[r] = now + q.back[r]
            w.progress[OPEN] -= 1


def start(q: Requests, stacked: SiteArrays, b: Behaviour, w: State, events: Events, i: int,
          executor: int, now: float) -> None:
    """Let a free executor begin its next batch."""
    site = one_site(stacked, i)
    count = begin(site, b, executor, now)
    for k in range(site.marks[ENDED]):
        r = w.request[i, site.ended[k]]
        q.fate[r] = site.fate[site.ended[k]]
        q.finish[r] = now + q.back[r]
        w.progress[OPEN] -= 1
    if count == 0:
        return
    seconds = b.actual[i, site.running[executor], count]
    if b.spread > 0.0:
        seconds *= math.exp(b.spread * _normal(site.number[site.batch[executor, 0]])
                            - b.spread * b.spread / 2)
    for k in range(count):
        q.batch[w.request[i, site.batch[executor, k]]] = count
    w.ends_at[i, executor] = now + seconds
    push(events, now + seconds, BATCH, i, executor)


def _end(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
         i: int, executor: int, now: float) -> None:
    site = one_site(stacked, i)
    if site.running[executor] < 0 or now != w.ends_at[i, executor]:
        return  # of a site that was gone meanwhile
    if b.spread > 0.0:
        seats.expire(site, now)
        _ended(q, stacked, n, b, w, events, i, now)
    seats.end_batch(site, executor, now)
    _ended(q, stacked, n, b, w, events, i, now)
    start(q, stacked, b, w, events, i, executor, now)


def _replace(q: Requests, stacked: SiteArrays, w: State, r: int, now: float) -> None:
    """Withdraw the older frame of a stream that still waits at the same site."""
    older = w.newest[q.stream[r]]
    if older < 0 or q.fate[older] >= 0 or q.at[older] != q.home[r] or q.row[older] < 0:
        return
    i, row = q.at[older], q.row[older]
    if stacked.state[i, row] == SEATED and w.request[i, row] == older:
        seats.withdraw(one_site(stacked, i), row, now)
        stacked.marks[i, ENDED] = 0
        q.fate[older] = CANCELLED
        q.finish[older] = now
        w.progress[OPEN] -= 1


def _gone(q: Requests, stacked: SiteArrays, n: Network, b: Behaviour, w: State, events: Events,
          i: int, now: float) -> None:
    """Take a site away: what it had is forwarded anew by those who sent it, or refused."""
    w.alive[i] = 0
    site = one_site(stacked, i)
    for executor in range(len(site.alive)):
        seats.lose(site, executor, now)
        for k in range(site.marks[ENDED]):
            r = w.request[i, site.ended[k]]
            q.why[r] = SITE_LOST
            _back_to_sender(q, n, b, w, events, r, i, now)
    if not n.ring:  # links to it break
        for j in range(len(w.lost)):
            w.lost[j, i] = True


def _back_to_sender(q: Requests, n: Network, b: Behaviour, w: State, events: Events, r: int,
                    i: int, now: float) -> None:
    """Let the site that sent a request forward it anew; refuse one that its client sent there."""
    if q.hops[r] == 0:
        _refuse(q, w, r, SITE_LOST, now)
        return
    sender = q.path[r, q.hops[r] - 1]
    w.lost[sender, i] = True
    q.back[r] -= n.hop[i, sender]
    q.at[r] = sender
    _forward(q, n, b, w, events, r, sender, now)


def _normal(number: int) -> float:
    """Return a normal number that follows from another."""
    u = dispatch.splitmix(3 * number + 1) + 2.0**-33
    v = dispatch.splitmix(7 * number + 2)
    return math.sqrt(-2 * math.log(u)) * math.cos(2 * math.pi * v)
