# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The order in which a side computes its rows: stage by stage, band by band.

A band either asks backwards for what is needed to have so many of the rows
that leave the stage, or goes forwards as far as so many of the rows that
enter it allow.  Either way it takes only rows that the bands before it have
not computed, so that no row is computed twice.  No band makes a total of
records before the side has folded all its rows of this and of all earlier
reductions of the stage: both sides then meet at the totals in the same order,
and cannot wait for each other for ever.  Rows are counted from the
end at which a stage begins: from the first one, or, upward, from the last.
"""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.rows import need_hi, need_lo
from intradp_ros.systems.sharing.judge.records import Layout, Tables, Work


def write_steps(t: Tables, p: Layout, w: Work, side: int) -> None:
    """Append the compute steps of a side; fill `first_step` and `last_step`."""
    stages, operators = p.stages, t.operators
    for i in range(operators):
        done = w.computed[side * operators + i]
        done.first_step = done.last_step = -1
    begin = 0
    for stage in range(stages):
        end, at = p.stage[stage].stop, side * stages + stage
        for i in range(begin, end):
            w.walk[i].progress = w.walk[i].goal = 0
        first, last = p.part[at].cuts, p.part[at + 1].cuts
        if last - first > 1 and p.part[at].by_input:
            _find_edges(t, w, begin, end, side)
        for cut in range(first, last):
            if cut == last - 1:
                _finish(t, w, begin, end, side)
            elif p.part[at].by_input:
                _go_forwards(t, w, begin, end, side, p.part[at].upward, p.cut[cut])
            else:
                _ask_backwards(t, w, begin, end, side, p.part[at].upward, p.cut[cut])
            _append(t, w, begin, end, side, p.part[at].upward)
        begin = end


def _count(t: Tables, w: Work, i: int, side: int) -> int:
    """Return how many rows a side computes of an operator."""
    done = w.computed[side * t.operators + i]
    return max(0, done.hi - done.lo)  # type: ignore[no-any-return]


def _rows_lo(t: Tables, w: Work, i: int, side: int, upward: int, a: int, b: int) -> int:
    """Return where the region starts that takes the progress of an operator from `a` to `b`."""
    done = w.computed[side * t.operators + i]
    row = done.hi - b if upward else done.lo + a
    return row  # type: ignore[no-any-return]


def _finish(t: Tables, w: Work, begin: int, end: int, side: int) -> None:
    for i in range(begin, end):
        w.walk[i].goal = _count(t, w, i, side)


def _leaves(t: Tables, w: Work, i: int) -> bool:
    """Return whether a later stage reads the operator's rows, on any side."""
    values = t.values
    for k in range(t.operator[i].makes, t.operator[i + 1].makes):
        value = t.made[k]
        if (w.wanted[value].far_hi > w.wanted[value].far_lo
                or w.wanted[values + value].far_hi > w.wanted[values + value].far_lo):
            return True
    return False


def _folds(t: Tables, i: int) -> bool:
    """Return whether an operator makes records."""
    for k in range(t.operator[i].makes, t.operator[i + 1].makes):
        if t.value[t.made[k]].record_bytes:
            return True
    return False


def _is_record(t: Tables, read: int, begin: int) -> bool:
    """Return whether what is read are records that the stage makes."""
    value = t.read[read].value
    return bool(t.value[value].record_bytes > 0 and t.value[value].producer >= begin)


def _ask_backwards(t: Tables, w: Work, begin: int, end: int, side: int, upward: int,
                   fraction: float) -> None:
    """How far each operator must be when `fraction` of what leaves is there."""
    total = False
    for i in range(end - 1, begin - 1, -1):
        count = _count(t, w, i, side)
        if count == 0:
            continue
        walk = w.walk[i]
        if total and _folds(t, i):
            walk.goal = count
        elif _leaves(t, w, i):
            walk.goal = max(walk.goal, int(count * fraction))
        if walk.goal == walk.progress:
            continue
        lo = _rows_lo(t, w, i, side, upward, walk.progress, walk.goal)
        hi = lo + walk.goal - walk.progress
        for read in range(t.operator[i].reads, t.operator[i + 1].reads):
            source = t.value[t.read[read].value].producer
            if source < begin:
                continue
            if _is_record(t, read, begin):
                total = True
                continue
            a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
            if b > a:
                done = w.computed[side * t.operators + source]
                rows = done.hi - a if upward else b - done.lo
                w.walk[source].goal = max(w.walk[source].goal, rows)


def _find_edges(t: Tables, w: Work, begin: int, end: int, side: int) -> None:
    """Fill `edge` (start and stop by value) with what the stage reads of earlier ones."""
    for i in range(begin, end):
        for read in range(t.operator[i].reads, t.operator[i + 1].reads):
            value = t.read[read].value
            w.edge[value].lo, w.edge[value].hi = t.value[value].rows, 0
    for i in range(begin, end):
        done = w.computed[side * t.operators + i]
        lo, hi = done.lo, done.hi
        if hi <= lo:
            continue
        for read in range(t.operator[i].reads, t.operator[i + 1].reads):
            a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
            value = t.read[read].value
            if b > a and t.value[value].producer < begin:
                edge = w.edge[value]
                edge.lo, edge.hi = min(edge.lo, a), max(edge.hi, b)


def _go_forwards(t: Tables, w: Work, begin: int, end: int, side: int, upward: int,
                 fraction: float) -> None:
    """How far each operator gets when `fraction` of what enters is there."""
    unfolded = False
    for i in range(begin, end):
        goal = _count(t, w, i, side)
        for read in range(t.operator[i].reads, t.operator[i + 1].reads):
            if _is_record(t, read, begin):
                goal = w.walk[i].progress if unfolded else goal
            elif goal > w.walk[i].progress:
                limit = _limit(t, w, t.read[read].value, begin, side, upward, fraction)
                goal = _reach(t, w, i, read, side, upward, goal, limit)
        w.walk[i].goal = goal
        unfolded = unfolded or (goal < _count(t, w, i, side) and _folds(t, i))


def _limit(t: Tables, w: Work, value: int, begin: int, side: int, upward: int,
           fraction: float) -> int:
    """Return up to where the rows of a value are there (upward: from where on)."""
    source = t.value[value].producer
    if source >= begin:
        done = w.computed[side * t.operators + source]
        goal = w.walk[source].goal
        return done.hi - goal if upward else done.lo + goal  # type: ignore[no-any-return]
    lo, hi = w.edge[value].lo, w.edge[value].hi
    rows = max(1, int(max(0, hi - lo) * fraction))
    return hi - rows if upward else lo + rows  # type: ignore[no-any-return]


def _reach(t: Tables, w: Work, i: int, read: int, side: int, upward: int, goal: int,
           limit: int) -> int:
    """Return how far an operator gets, at most to `goal`, with a value there up to `limit`."""
    at = t.read[read].map
    reached = w.walk[i].progress
    while reached < goal:
        row = at + _rows_lo(t, w, i, side, upward, reached, reached + 1)
        first, last = t.window[row].first, t.window[row].last
        if first < last and (first < limit if upward else last > limit):
            break
        reached += 1
    return reached  # type: ignore[no-any-return]


def _append(t: Tables, w: Work, begin: int, end: int, side: int, upward: int) -> None:
    """Append a step for each operator that has not reached its goal."""
    for i in range(begin, end):
        walk, done = w.walk[i], w.computed[side * t.operators + i]
        rows = walk.goal - walk.progress
        if rows <= 0:
            continue
        at = side * w.steps + w.side[side].steps
        step = w.step[at]
        step.operator, step.next = i, -1
        step.lo = _rows_lo(t, w, i, side, upward, walk.progress, walk.goal)
        step.hi = step.lo + rows
        if done.first_step < 0:
            done.first_step = at
        else:
            w.step[done.last_step].next = at
        done.last_step = at
        walk.progress = walk.goal
        w.side[side].steps += 1
