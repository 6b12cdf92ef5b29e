# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The loop of the event simulator: from one time at which something happens to the next.

Media choose, or share, when all of one time has happened, so that nothing
depends on the order in which it was looked at.
"""
from __future__ import annotations

from heapq import heappop, heappush

import numpy as np

from intradp_ros.schedule.event_kernels.flows import enter, flow, leave, next_goal, share
from intradp_ros.schedule.event_kernels.lines import arrive, choose, pass_on, queue
from intradp_ros.schedule.event_kernels.state import (
    CHUNK,
    END,
    ENTER,
    Flows,
    FORWARD,
    JOIN,
    Lines,
    new_flows,
    new_lines,
    new_progress,
    new_report,
    Progress,
    Report,
    through,
)
from intradp_ros.schedule.task_arrays import TaskArrays


def play(t: TaskArrays, chunk: float) -> Report:
    """Play all tasks; media serve chunks of so many bytes in line, or share fairly if 0."""
    report, s = new_report(t), new_progress(t)
    f, q = new_flows(t), new_lines(t, chunk if chunk > 0 else np.inf)
    now, in_line = 0.0, chunk > 0
    for task in range(len(t.device)):
        if t.waits[task] == 0:
            _arm(t, s, f, q, report, in_line, task, now)
    while True:
        while len(s.events) > 0 and s.events[0][0] <= now:
            _, kind, item = heappop(s.events)
            _happen(t, s, f, q, report, in_line, kind, item, now)
        if in_line:
            choose(t, s, q, report, now)
        elif f.marks[1] != 0:
            share(t, f)
        goal, route = next_goal(f, now)
        then = min(goal, s.events[0][0] if len(s.events) > 0 else np.inf)
        if then == np.inf:
            return report
        flow(f, then - now)
        now = then
        if goal <= then:
            leave(t, s, f, report, route, now)


def _happen(t: TaskArrays, s: Progress, f: Flows, q: Lines, report: Report, in_line: bool,
            kind: int, item: int, now: float) -> None:
    if kind == END:
        _end(t, s, f, q, report, in_line, item, now)
    elif kind == JOIN:
        _join(t, s, q, f, report, in_line, item, now)
    elif kind == ENTER:
        enter(t, s, f, report, item, now)
    elif kind == CHUNK:
        pass_on(t, s, q, report, item, now)
    elif kind == FORWARD:
        arrive(t, q, item, 1)


def _arm(t: TaskArrays, s: Progress, f: Flows, q: Lines, report: Report, in_line: bool,
         task: int, now: float) -> None:
    """Let a task join that waits for nothing more, but for its release."""
    if t.release[task] > now:
        heappush(s.events, (t.release[task], JOIN, task))
    else:
        _join(t, s, q, f, report, in_line, task, now)


def _join(t: TaskArrays, s: Progress, q: Lines, f: Flows, report: Report, in_line: bool,
          task: int, now: float) -> None:
    if t.device[task] >= 0:
        s.ready[task] = 1
        _run(t, s, report, t.device[task], now)
    elif t.nbytes[task] == 0 or t.hop_at[t.route[task]] == t.hop_at[t.route[task] + 1]:
        _skip(t, s, report, task, now)
    elif in_line:
        queue(t, q, task, now)
    elif t.lead[task] > 0:
        heappush(s.events, (now + t.lead[task], ENTER, task))
    else:
        enter(t, s, f, report, task, now)


def _skip(t: TaskArrays, s: Progress, report: Report, task: int, now: float) -> None:
    """Let a transfer go that no medium carries, or that carries nothing."""
    report.start[task] = now + t.lead[task]
    later, route = report.start[task], t.route[task]
    for k in range(t.hop_at[route], t.hop_at[route + 1]):
        later += t.delay[t.hop[k]]
    through(t, s, task, later)


def _run(t: TaskArrays, s: Progress, report: Report, device: int, now: float) -> None:
    """Start the next task of a device, if both are ready."""
    place = s.place[device]
    if s.taken[device] != 0 or place == t.turn_at[device + 1]:
        return
    task = t.turn[place]
    if s.ready[task] != 0:
        s.taken[device] = 1
        s.place[device] = place + 1
        report.start[task] = now
        report.busy[device] += t.seconds[task]
        heappush(s.events, (now + t.seconds[task], END, task))


def _end(t: TaskArrays, s: Progress, f: Flows, q: Lines, report: Report, in_line: bool,
         task: int, now: float) -> None:
    report.finish[task] = now
    for k in range(t.after_at[task], t.after_at[task + 1]):
        other = t.after[k]
        s.waits[other] -= 1
        if s.waits[other] == 0:
            _arm(t, s, f, q, report, in_line, other, now)
    device = t.device[task]
    if device >= 0:
        s.taken[device] = 0
        _run(t, s, report, device, now)
