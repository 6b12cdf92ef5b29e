# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Who is taken, where it sits, and what becomes of it.

A request is taken if it and all that are seated end in time *with every planned batch full*:
otherwise the head of the queue never has time for more than a batch of one.  Since batches take
no longer than promised, and a request that leaves lets others only move forward, what is taken
stays in time as long as the promised seconds hold.
"""
from __future__ import annotations

import math
from typing import NamedTuple

from intradp_ros.systems.serving.site_arrays import (
    Asked,
    CANCELLED,
    ENDED,
    Floats,
    FREE,
    FREE_ROWS,
    IN_TIME,
    LATE,
    LET_GO,
    LOADING,
    NO_ROOM,
    NOT_HERE,
    OVER,
    RUNNING,
    Seat,
    SEATED,
    SERVING,
    SiteArrays,
    TOO_LATE,
    WOULD_BE_LATE,
    WOULD_HARM,
)

#: Sums of the same times differ by less, in seconds.
ROUNDING = 1e-9


class Fit(NamedTuple):
    """
    Where a request would sit and when it would end, infinity where it does not fit.

    `spot` in the queue of its place; `at`: the slot before which a new one comes, -1 for none.
    """

    end: float
    spot: int
    at: int


def take_seat(site: SiteArrays, asked: Asked, now: float) -> Seat:
    """
    Seat a request where it ends first, or say why not and when it would be taken.

    One of a higher priority displaces what it must of lower ones; these are `ended`, let go, and
    read before the new row is used, which may be one of theirs.
    """
    site.marks[ENDED] = 0
    if not asked.deadline > now:
        return Seat(-1, TOO_LATE, math.inf, -1)
    if site.marks[FREE_ROWS] == 0:
        return Seat(-1, NO_ROOM, math.inf, -1)
    for place in range(len(site.queued)):
        if site.queued[place] == 0:
            site.size[place] = site.wanted[place]
    place, fit = _first_to_end(site, asked, now, False)
    if place < 0:
        place, fit = _first_to_end(site, asked, now, True)
        if place < 0:
            return _refusal(site, asked, now)
        fit = _displace(site, place, asked, now)
    row = insert(site, place, fit.spot, fit.at, asked)
    return Seat(site.executor_of[place], fit.spot // site.size[place], fit.end, row)


def start_batch(site: SiteArrays, executor: int, now: float) -> int:
    """
    Start the next batch of a free executor with whoever is seated; return its rows.

    They are the first of `site.batch[executor]`.  Rows whose time is over are `ended`.  One that
    has nothing to do takes over the first batch of another whose services it has.
    """
    site.marks[ENDED] = 0
    if not site.alive[executor] or site.running[executor] >= 0:
        return 0
    while True:
        if site.slotted[executor] > 0:
            source = site.slots[executor, 0]
            place = source
        else:
            source, place = _backlog(site, executor, now)
            if source < 0:
                return 0
        if site.ready[place] > now:
            return 0
        count = min(site.size[place], site.queued[source])
        taken = 0
        for k in range(count):
            row = site.queue[source, k]
            if site.deadline[row] <= now:
                end_row(site, row, LATE)
                continue
            site.state[row] = RUNNING
            site.place[row] = place
            site.batch[executor, taken] = row
            taken += 1
        leave_queue(site, source, 0, count, site.executor_of[source] == executor)
        if taken > 0:
            site.batched[executor] = taken
            site.running[executor] = place
            site.began[executor] = now
            site.free_at[executor] = now + site.seconds[place, taken]
            return taken


def end_batch(site: SiteArrays, executor: int, now: float) -> int:
    """
    End the batch of an executor; return how many rows were still wanted: these are `ended`.

    Each of them is in time or late.
    """
    site.marks[ENDED] = 0
    count = site.batched[executor]
    if count == 0:
        return 0
    share = (now - site.began[executor]) / count
    for k in range(count):
        row = site.batch[executor, k]
        wanted = site.state[row] == RUNNING
        in_time = wanted and now <= site.deadline[row] + ROUNDING
        site.spent[site.service[row], 0 if in_time else 1] += share
        if wanted:
            end_row(site, row, IN_TIME if in_time else LATE)
        else:
            release(site, row)
    site.batched[executor] = 0
    site.running[executor] = -1
    site.free_at[executor] = now
    return int(site.marks[ENDED])


def withdraw(site: SiteArrays, row: int, now: float) -> bool:
    """End a request as cancelled, seated or running; False if the row holds none."""
    site.marks[ENDED] = 0
    if site.state[row] == SEATED:
        _unseat(site, row)
        end_row(site, row, CANCELLED)
        return True
    if site.state[row] == RUNNING:
        _over(site, row, CANCELLED)
        return True
    return False


def expire(site: SiteArrays, now: float) -> int:
    """End as late what is past its deadline, seated or running; return how many."""
    site.marks[ENDED] = 0
    for place in range(len(site.queued)):
        k = 0
        while k < site.queued[place]:
            row = site.queue[place, k]
            if site.deadline[row] + ROUNDING < now:
                leave_queue(site, place, k, 1, False)
                end_row(site, row, LATE)
            else:
                k += 1
    for executor in range(len(site.batched)):
        for k in range(site.batched[executor]):
            row = site.batch[executor, k]
            if site.state[row] == RUNNING and site.deadline[row] + ROUNDING < now:
                _over(site, row, LATE)
    return int(site.marks[ENDED])


def lose(site: SiteArrays, executor: int, now: float) -> int:
    """Let go all of an executor that is gone; return how many rows; nobody sits there again."""
    site.marks[ENDED] = 0
    site.alive[executor] = 0
    for place in range(len(site.queued)):
        if site.executor_of[place] == executor:
            while site.queued[place] > 0:
                row = site.queue[place, 0]
                leave_queue(site, place, 0, 1, False)
                end_row(site, row, LET_GO)
    for k in range(site.batched[executor]):
        row = site.batch[executor, k]
        site.spent[site.service[row], 1] += (now - site.began[executor]) / site.batched[executor]
        if site.state[row] == RUNNING:
            end_row(site, row, LET_GO)
        else:
            release(site, row)
    site.batched[executor] = 0
    site.running[executor] = -1
    site.free_at[executor] = now
    return int(site.marks[ENDED])


def outlook(site: SiteArrays, now: float, ends: Floats, shares: Floats, least: Floats) -> None:
    """
    Write, by service, what others need to know of a site.

    `ends`: seconds until one more request would end, infinite where the service is not ready;
    `shares`: seconds by which each request delays the next; `least`: seconds of one row alone.
    """
    ends[:] = math.inf
    shares[:] = 0.0
    least[:] = math.inf
    for place in range(len(site.queued)):
        executor, service = site.executor_of[place], site.service_of[place]
        if site.alive[executor] != SERVING or site.ready[place] > now:
            continue
        size = site.size[place]
        shares[service] += size / site.seconds[place, size]
        least[service] = min(least[service], site.seconds[place, 1])
        ends[service] = min(ends[service], _last_finish(site, place, now) - now)
    for service in range(len(ends)):
        if shares[service] > 0:
            shares[service] = 1 / shares[service]


def _start(site: SiteArrays, executor: int, now: float) -> float:
    if site.running[executor] < 0:
        return now
    return float(max(now, site.free_at[executor]))


def _idle(site: SiteArrays, executor: int) -> bool:
    return bool(site.running[executor] < 0 and site.slotted[executor] == 0)


def _first_to_end(site: SiteArrays, asked: Asked, now: float, displacing: bool,
                  ) -> tuple[int, Fit]:
    """Return the place where a request ends first, and how it fits; -1 where none takes it."""
    best, fit = -1, Fit(math.inf, 0, -1)
    for place in range(len(site.queued)):
        if site.service_of[place] != asked.service or site.ready[place] > now \
                or site.alive[site.executor_of[place]] != SERVING \
                or site.size[place] != site.wanted[place]:
            continue
        found = _fit(site, place, asked, now, displacing)
        if found.end < fit.end:
            best, fit = place, found
    return best, fit


def _fit(site: SiteArrays, place: int, asked: Asked, now: float, displacing: bool) -> Fit:
    """Return how a request fits at a place; `displacing`: those of lower priorities left out."""
    executor = site.executor_of[place]
    if _idle(site, executor):
        end = now + site.seconds[place, 1]
        return Fit(end if end <= asked.deadline + ROUNDING else math.inf, 0, 0)
    stays = _keep(site, executor, asked.priority, displacing)
    if displacing and stays or site.kept[place] == site.queue.shape[1]:
        return Fit(math.inf, 0, -1)
    index, at = _spot(site, place, asked)
    if site.kept[place] % site.size[place] != 0:
        return Fit(_checked(site, place, index, -1, asked, now), index, -1)
    if not _shared(site, executor, place):
        at = site.slotted[executor]
    for slot in range(at, site.slotted[executor] + 1):
        end = _checked(site, place, index, slot, asked, now)
        if end < math.inf:
            return Fit(end, index, slot)
    return Fit(math.inf, 0, -1)


def _shared(site: SiteArrays, executor: int, place: int) -> bool:
    """Return whether an executor has slots of another place."""
    other = False
    for k in range(site.slotted[executor]):
        other |= site.slots[executor, k] != place
    return other


def _keep(site: SiteArrays, executor: int, priority: int, displacing: bool) -> bool:
    """Say how many rows of each place stay, the first of its queue; return whether all do."""
    all_stay = True
    for place in range(len(site.queued)):
        if site.executor_of[place] != executor:
            continue
        count = site.queued[place]
        if displacing:
            while count > 0 and site.priority[site.queue[place, count - 1]] < priority:
                count -= 1
        site.kept[place] = count
        all_stay &= count == site.queued[place]
    return all_stay


def _before(site: SiteArrays, asked: Asked, row: int) -> bool:
    """Return whether a request is served before one that is seated."""
    if asked.priority != site.priority[row]:
        return bool(asked.priority > site.priority[row])
    if asked.deadline != site.deadline[row]:
        return bool(asked.deadline < site.deadline[row])
    return bool(asked.number < site.number[row])


def _spot(site: SiteArrays, place: int, asked: Asked) -> tuple[int, int]:
    """Return a request's index in a queue, and the first slot before which one of it may come."""
    index = site.queued[place]
    while index > 0 and _before(site, asked, site.queue[place, index - 1]):
        index -= 1
    executor = site.executor_of[place]
    site.turn[:] = 0
    at = 0
    for k in range(site.slotted[executor]):
        other = site.slots[executor, k]
        first = site.turn[other] * site.size[other]
        site.turn[other] += 1
        if not _before(site, asked, site.queue[other, first]):
            at = k + 1
    return index, at


def _checked(site: SiteArrays, place: int, index: int, at: int, asked: Asked, now: float) -> float:
    """
    Return when a request ends if it takes a seat; infinity if it or one that it delays is late.

    What is late already, since a batch took longer than promised, keeps nobody out.
    """
    end = _played(site, place, index, at, asked, now, False)
    if end == math.inf and _mark_doomed(site, site.executor_of[place], now):
        end = _played(site, place, index, at, asked, now, True)
    return end


def _played(site: SiteArrays, place: int, index: int, at: int, asked: Asked, now: float,
            doomed: bool) -> float:
    """Play the slots of an executor, with a new one before slot `at` (-1: none)."""
    executor = site.executor_of[place]
    time = _start(site, executor, now)
    finish = math.inf
    site.turn[:] = 0
    for k in range(site.slotted[executor] + (at >= 0)):
        here = place
        if k != at:
            here = site.slots[executor, k - (0 <= at < k)]
        size = site.size[here]
        first = site.turn[here] * size
        site.turn[here] += 1
        stay = site.kept[here] + (here == place)
        if first >= stay:
            continue
        time += site.seconds[here, size]
        for j in range(first, min(first + size, stay)):
            if here == place and j == index:
                finish = time
                if time > asked.deadline + ROUNDING:
                    return math.inf
                continue
            row = site.queue[here, j - (here == place and j > index)]
            if time > site.deadline[row] + ROUNDING and not (doomed and site.doomed[row]):
                return math.inf
    return finish


def _mark_doomed(site: SiteArrays, executor: int, now: float) -> bool:
    """Mark the seated rows of an executor that are predicted late as it is; say if any are."""
    found = False
    time = _start(site, executor, now)
    site.turn[:] = 0
    for k in range(site.slotted[executor]):
        here = site.slots[executor, k]
        size = site.size[here]
        first = site.turn[here] * size
        site.turn[here] += 1
        time += site.seconds[here, size]
        for j in range(first, min(first + size, site.queued[here])):
            row = site.queue[here, j]
            late = time > site.deadline[row] + ROUNDING
            site.doomed[row] = late
            found |= late
    return found


def _last_finish(site: SiteArrays, place: int, now: float) -> float:
    """Return when a request ends that comes after all others of an executor."""
    executor = site.executor_of[place]
    if _idle(site, executor):
        return float(now + site.seconds[place, 1])
    time = _start(site, executor, now)
    own = 0.0
    for k in range(site.slotted[executor]):
        here = site.slots[executor, k]
        time += site.seconds[here, site.size[here]]
        if here == place:
            own = time
    if site.queued[place] % site.size[place] != 0:
        return own
    return float(time + site.seconds[place, site.size[place]])


def _refusal(site: SiteArrays, asked: Asked, now: float) -> Seat:
    """Say why no place takes a request, and when one of as much remaining time would be taken."""
    why, when = NOT_HERE, math.inf
    remaining = asked.deadline - now
    for place in range(len(site.queued)):
        executor = site.executor_of[place]
        if site.service_of[place] != asked.service or site.alive[executor] != SERVING:
            continue
        if site.ready[place] > now:
            if why == NOT_HERE:
                why = LOADING
            when = min(when, site.ready[place])
            continue
        last = _last_finish(site, place, now)
        size = site.size[place]
        if site.queued[place] == site.queue.shape[1]:
            why = NO_ROOM
        elif last <= asked.deadline + ROUNDING:
            why = WOULD_HARM
        else:
            why = WOULD_BE_LATE
            if site.seconds[place, size] <= remaining + ROUNDING:
                when = min(when, last - remaining)
        if site.seconds[place, 1] <= remaining + ROUNDING:
            when = min(when, _all_done(site, executor, now))
    return Seat(-1, why, when, -1)


def _all_done(site: SiteArrays, executor: int, now: float) -> float:
    time = _start(site, executor, now)
    for k in range(site.slotted[executor]):
        here = site.slots[executor, k]
        time += site.seconds[here, site.size[here]]
    return time


def _displace(site: SiteArrays, place: int, asked: Asked, now: float) -> Fit:
    """Let go rows of lower priority, the last first, until a request fits; return how."""
    executor = site.executor_of[place]
    fit = Fit(math.inf, 0, -1)
    while fit.end == math.inf:
        worst = -1
        for other in range(len(site.queued)):
            if site.executor_of[other] != executor or site.queued[other] == 0:
                continue
            row = site.queue[other, site.queued[other] - 1]
            if site.priority[row] < asked.priority and (worst < 0 or _after(site, row, worst)):
                worst = row
        _unseat(site, worst)
        end_row(site, worst, LET_GO)
        fit = _fit(site, place, asked, now, False)
    return fit


def _after(site: SiteArrays, row: int, other: int) -> bool:
    """Return whether a row is served after another."""
    if site.priority[row] != site.priority[other]:
        return bool(site.priority[row] < site.priority[other])
    return bool(site.deadline[row] > site.deadline[other])


def _backlog(site: SiteArrays, executor: int, now: float) -> tuple[int, int]:
    """Return the place of another executor with most to do, and the own one that can do it."""
    source, own, most = -1, -1, 0
    if site.alive[executor] != SERVING:
        return source, own
    for place in range(len(site.queued)):
        if site.executor_of[place] != executor or site.ready[place] > now:
            continue
        for other in range(len(site.queued)):
            if site.service_of[other] != site.service_of[place] or other == place \
                    or site.queued[other] <= most:
                continue
            if _in_time_here(site, place, other, now):
                source, own, most = other, place, site.queued[other]
    return source, own


def _in_time_here(site: SiteArrays, place: int, source: int, now: float) -> bool:
    """Return whether the first batch of another place ends in time, started here at once."""
    count = min(site.size[place], site.queued[source])
    end = now + site.seconds[place, count]
    in_time = True
    for k in range(count):
        in_time &= end <= site.deadline[site.queue[source, k]] + ROUNDING
    return in_time


def insert(site: SiteArrays, place: int, index: int, at: int, asked: Asked) -> int:
    """Put a request into a queue, with a new slot before slot `at` where one is needed."""
    executor = site.executor_of[place]
    if at >= 0:
        for k in range(site.slotted[executor], at, -1):
            site.slots[executor, k] = site.slots[executor, k - 1]
        site.slots[executor, at] = place
        site.slotted[executor] += 1
    for k in range(site.queued[place], index, -1):
        site.queue[place, k] = site.queue[place, k - 1]
    site.marks[FREE_ROWS] -= 1
    row = site.free[site.marks[FREE_ROWS]]
    site.queue[place, index] = row
    site.queued[place] += 1
    site.number[row] = asked.number
    site.service[row] = asked.service
    site.deadline[row] = asked.deadline
    site.priority[row] = asked.priority
    site.place[row] = place
    site.state[row] = SEATED
    return int(row)


def _unseat(site: SiteArrays, row: int) -> None:
    place = site.place[row]
    for k in range(site.queued[place]):
        if site.queue[place, k] == row:
            leave_queue(site, place, k, 1, False)
            return


def leave_queue(site: SiteArrays, place: int, index: int, count: int, starts: bool) -> None:
    """
    Remove rows of a queue, and the slots that it does not need any more; their state stays.

    That is the first of its slots where it `starts`; else the last ones, so that all others move
    forward.
    """
    executor = site.executor_of[place]
    size = site.size[place]
    needless = -(-site.queued[place] // size)
    for k in range(index + count, site.queued[place]):
        site.queue[place, k - count] = site.queue[place, k]
    site.queued[place] -= count
    needless -= -(-site.queued[place] // size)
    for _ in range(needless):
        found = -1
        for k in range(site.slotted[executor]):
            if site.slots[executor, k] == place and (found < 0 or not starts):
                found = k
        for k in range(found + 1, site.slotted[executor]):
            site.slots[executor, k - 1] = site.slots[executor, k]
        site.slotted[executor] -= 1


def end_row(site: SiteArrays, row: int, fate: int) -> None:
    """List a row as ended, and free it."""
    _list_ended(site, row, fate)
    release(site, row)


def _over(site: SiteArrays, row: int, fate: int) -> None:
    """End a request whose batch runs on."""
    _list_ended(site, row, fate)
    site.state[row] = OVER


def _list_ended(site: SiteArrays, row: int, fate: int) -> None:
    site.fate[row] = fate
    site.ended[site.marks[ENDED]] = row
    site.marks[ENDED] += 1


def release(site: SiteArrays, row: int) -> None:
    """Free a row."""
    site.state[row] = FREE
    site.free[site.marks[FREE_ROWS]] = row
    site.marks[FREE_ROWS] += 1
