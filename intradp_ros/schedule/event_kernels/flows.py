# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Media that all transfers on them share fairly (max-min), as fluids do."""
from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from intradp_ros.schedule.event_kernels.state import (
    begins,
    ends,
    Flows,
    Progress,
    Report,
    through,
)
from intradp_ros.schedule.task_arrays import TaskArrays


def enter(t: TaskArrays, s: Progress, f: Flows, report: Report, task: int, now: float) -> None:
    """Let a transfer flow."""
    route = t.route[task]
    report.start[task] = now
    if f.flowing[route] == 0:
        f.served[route] = 0.0
        f.seat[route] = f.marks[0]
        f.active[f.marks[0]] = route
        f.marks[0] += 1
    f.flowing[route] += 1
    heappush(f.goals[route], (f.served[route] + t.nbytes[task], task))
    f.marks[1] = 1
    begins(t.source[task], s.sends, s.sends_since, now)
    begins(t.target[task], s.receives, s.receives_since, now)


def next_goal(f: Flows, now: float) -> tuple[float, int]:
    """Return when the next transfer is through, and its route."""
    best, found = np.inf, -1
    for k in range(f.marks[0]):
        route = f.active[k]
        then = now + max(0.0, f.goals[route][0][0] - f.served[route]) / f.rate[route]
        if then < best:
            best, found = then, route
    return best, found


def flow(f: Flows, seconds: float) -> None:
    """Let all transfers flow for a while."""
    for k in range(f.marks[0]):
        route = f.active[k]
        f.served[route] += f.rate[route] * seconds


def leave(t: TaskArrays, s: Progress, f: Flows, report: Report, route: int, now: float) -> None:
    """Take the transfers off a route that have reached the next goal on it."""
    f.served[route] = f.goals[route][0][0]
    while f.flowing[route] > 0 and f.goals[route][0][0] <= f.served[route]:
        _, task = heappop(f.goals[route])
        f.flowing[route] -= 1
        ends(t.source[task], s.sends, s.sends_since, report.sending, now)
        ends(t.target[task], s.receives, s.receives_since, report.receiving, now)
        later = 0.0
        for k in range(t.hop_at[route], t.hop_at[route + 1]):
            later += t.delay[t.hop[k]]
        through(t, s, task, now + later)
    if f.flowing[route] == 0:
        f.marks[0] -= 1
        last = f.active[f.marks[0]]
        f.active[f.seat[route]] = last
        f.seat[last] = f.seat[route]
    f.marks[1] = 1


def share(t: TaskArrays, f: Flows) -> None:
    """
    Give every transfer its max-min fair rate.

    All rates grow together until a medium is full; those on it stay, the
    others go on.  A transfer that crosses a medium twice counts twice there.
    """
    f.marks[1] = 0
    _measure(t, f)
    level, open_routes = 0.0, f.marks[0]
    while open_routes > 0:
        fuller, tight = np.inf, -1
        for k in range(f.marks[0]):
            route = f.active[k]
            if f.rate[route] < 0:
                for h in range(t.hop_at[route], t.hop_at[route + 1]):
                    medium = t.hop[h]
                    if f.left[medium] / f.load[medium] < fuller:
                        fuller, tight = f.left[medium] / f.load[medium], medium
        level = max(level, fuller)
        open_routes -= _fill(t, f, tight, level)


def _measure(t: TaskArrays, f: Flows) -> None:
    """Note the whole rate and the transfers of every medium in use."""
    for k in range(f.marks[0]):
        route = f.active[k]
        f.rate[route] = -1.0
        for h in range(t.hop_at[route], t.hop_at[route + 1]):
            f.left[t.hop[h]], f.load[t.hop[h]] = t.rate[t.hop[h]], 0.0
    for k in range(f.marks[0]):
        route = f.active[k]
        for h in range(t.hop_at[route], t.hop_at[route + 1]):
            f.load[t.hop[h]] += f.flowing[route]


def _fill(t: TaskArrays, f: Flows, tight: int, level: float) -> int:
    """Fix the rates on the medium that is full; return of how many routes."""
    fixed = 0
    for k in range(f.marks[0]):
        route = f.active[k]
        if f.rate[route] >= 0:
            continue
        crosses = False
        for h in range(t.hop_at[route], t.hop_at[route + 1]):
            crosses = crosses or t.hop[h] == tight
        if crosses:
            f.rate[route] = level
            fixed += 1
            for h in range(t.hop_at[route], t.hop_at[route + 1]):
                f.left[t.hop[h]] -= f.flowing[route] * level
                f.load[t.hop[h]] -= f.flowing[route]
    return fixed
