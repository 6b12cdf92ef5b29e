# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Media that carry one chunk at a time, in order of priority.

A chunk goes through the media of its path one after another, as packets do;
the chunks of a transfer follow each other.
"""
from __future__ import annotations

from heapq import heappop, heappush

from intradp_ros.schedule.event_kernels.state import (
    begins,
    CHUNK,
    ends,
    FORWARD,
    Lines,
    Progress,
    Report,
    through,
    WAKE,
)
from intradp_ros.schedule.task_arrays import TaskArrays


def queue(t: TaskArrays, q: Lines, task: int, now: float) -> None:
    """Put a transfer in the line of its first medium; it keeps its place through its lead."""
    q.joined[task] = now
    arrive(t, q, q.slot_at[task], q.chunks[task])


def arrive(t: TaskArrays, q: Lines, slot: int, chunks: int) -> None:
    """Let chunks come to a hop."""
    if q.arrived[slot] == q.sent[slot]:
        _line_up(t, q, slot)
    q.arrived[slot] += chunks


def _line_up(t: TaskArrays, q: Lines, slot: int) -> None:
    task = q.task[slot]
    heappush(q.queues[medium_of(t, q, slot)], (t.priority[task], q.joined[task], slot))


def medium_of(t: TaskArrays, q: Lines, slot: int) -> int:
    """Return the medium of a hop."""
    task = q.task[slot]
    return t.hop[t.hop_at[t.route[task]] + slot - q.slot_at[task]]  # type: ignore[no-any-return]


def choose(t: TaskArrays, s: Progress, q: Lines, report: Report, now: float) -> None:
    """Let every medium that is free take the first chunk in its line."""
    for medium in range(len(t.rate)):
        if q.serves[medium] < 0 and len(q.queues[medium]) > 0:
            slot = q.queues[medium][0][2]
            task = q.task[slot]
            begin = q.joined[task] + t.lead[task]
            if begin > now:  # only on its first hop
                heappush(s.events, (begin, WAKE, medium))
            else:
                heappop(q.queues[medium])
                _serve(t, s, q, report, medium, slot, now)


def _serve(t: TaskArrays, s: Progress, q: Lines, report: Report, medium: int, slot: int,
           now: float) -> None:
    task = q.task[slot]
    size = q.size[task]
    if q.sent[slot] + 1 == q.chunks[task]:
        size = t.nbytes[task] - (q.chunks[task] - 1) * size
    if slot == q.slot_at[task]:
        begins(t.source[task], s.sends, s.sends_since, now)
        if q.sent[slot] == 0:
            report.start[task] = now
    if slot + 1 == q.slot_at[task + 1]:
        begins(t.target[task], s.receives, s.receives_since, now)
    q.sent[slot] += 1
    q.serves[medium] = slot
    heappush(s.events, (_carried(t, medium, size, now), CHUNK, medium))
    if q.arrived[slot] > q.sent[slot]:
        _line_up(t, q, slot)


def _carried(t: TaskArrays, medium: int, size: float, now: float) -> float:
    """Return when a medium has carried so many bytes, at rates that may change meanwhile."""
    first, last = t.change_at[medium], t.change_at[medium + 1]
    rate = t.rate[medium]
    if first == last:
        return now + size / rate  # type: ignore[no-any-return]
    low, high = first, last  # the first change after now
    while low < high:
        middle = (low + high) // 2
        if t.change[middle] <= now:
            low = middle + 1
        else:
            high = middle
    if low > first:
        rate = t.changed[low - 1]
    while low < last and now + size / rate > t.change[low]:
        size -= rate * (t.change[low] - now)
        now, rate = t.change[low], t.changed[low]
        low += 1
    return now + max(0.0, size) / rate  # type: ignore[no-any-return]


def pass_on(t: TaskArrays, s: Progress, q: Lines, report: Report, medium: int, now: float,
            ) -> None:
    """Hand the chunk that a medium has carried to the next hop, or to the target."""
    slot = q.serves[medium]
    task = q.task[slot]
    q.serves[medium] = -1
    if slot == q.slot_at[task]:
        ends(t.source[task], s.sends, s.sends_since, report.sending, now)
    then = now + t.delay[medium]
    if slot + 1 < q.slot_at[task + 1]:
        if then > now:
            heappush(s.events, (then, FORWARD, slot + 1))
        else:
            arrive(t, q, slot + 1, 1)
        return
    ends(t.target[task], s.receives, s.receives_since, report.receiving, now)
    if q.sent[slot] == q.chunks[task]:
        through(t, s, task, then)
