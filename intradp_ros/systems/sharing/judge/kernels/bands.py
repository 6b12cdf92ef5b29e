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
        w.x[w.first_step + side * operators + i] = w.x[w.last_step + side * operators + i] = -1
    begin = 0
    for stage in range(stages):
        end, at = p.x[p.stops + stage], side * stages + stage
        for i in range(begin, end):
            w.x[w.progress + i] = w.x[w.goal + i] = 0
        first, last = p.x[p.cuts + at], p.x[p.cuts + at + 1]
        if last - first > 1 and p.x[p.by_input + at]:
            _find_edges(t, w, begin, end, side)
        for cut in range(first, last):
            if cut == last - 1:
                _finish(t, w, begin, end, side)
            elif p.x[p.by_input + at]:
                _go_forwards(t, w, begin, end, side, p.x[p.upward + at], p.y[p.cut + cut])
            else:
                _ask_backwards(t, w, begin, end, side, p.x[p.upward + at], p.y[p.cut + cut])
            _append(t, w, begin, end, side, p.x[p.upward + at])
        begin = end


def _count(t: Tables, w: Work, i: int, side: int) -> int:
    """Return how many rows a side computes of an operator."""
    at = side * t.operators + i
    return max(0, w.x[w.done_hi + at] - w.x[w.done_lo + at])  # type: ignore[no-any-return]


def _rows_lo(t: Tables, w: Work, i: int, side: int, upward: int, a: int, b: int) -> int:
    """Return where the region starts that takes the progress of an operator from `a` to `b`."""
    at = side * t.operators + i
    row = w.x[w.done_hi + at] - b if upward else w.x[w.done_lo + at] + a
    return row  # type: ignore[no-any-return]


def _finish(t: Tables, w: Work, begin: int, end: int, side: int) -> None:
    for i in range(begin, end):
        w.x[w.goal + i] = _count(t, w, i, side)


def _leaves(t: Tables, w: Work, i: int) -> bool:
    """Tell whether a later stage reads the operator's rows, on any side."""
    values = t.values
    for k in range(t.x[t.makes + i], t.x[t.makes + i + 1]):
        value = t.x[t.made + k]
        if (w.x[w.far_hi + value] > w.x[w.far_lo + value]
                or w.x[w.far_hi + values + value] > w.x[w.far_lo + values + value]):
            return True
    return False


def _folds(t: Tables, i: int) -> bool:
    """Tell whether an operator makes records."""
    for k in range(t.x[t.makes + i], t.x[t.makes + i + 1]):
        if t.x[t.record_bytes + t.x[t.made + k]]:
            return True
    return False


def _is_record(t: Tables, read: int, begin: int) -> bool:
    """Tell whether what is read are records that the stage makes."""
    value = t.x[t.read_value + read]
    return bool(t.x[t.record_bytes + value] > 0 and t.x[t.producer + value] >= begin)


def _ask_backwards(t: Tables, w: Work, begin: int, end: int, side: int, upward: int,
                   fraction: float) -> None:
    """How far each operator must be when `fraction` of what leaves is there."""
    total = False
    for i in range(end - 1, begin - 1, -1):
        count = _count(t, w, i, side)
        if count == 0:
            continue
        if total and _folds(t, i):
            w.x[w.goal + i] = count
        elif _leaves(t, w, i):
            w.x[w.goal + i] = max(w.x[w.goal + i], int(count * fraction))
        if w.x[w.goal + i] == w.x[w.progress + i]:
            continue
        lo = _rows_lo(t, w, i, side, upward, w.x[w.progress + i], w.x[w.goal + i])
        hi = lo + w.x[w.goal + i] - w.x[w.progress + i]
        for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
            source = t.x[t.producer + t.x[t.read_value + read]]
            if source < begin:
                continue
            if _is_record(t, read, begin):
                total = True
                continue
            a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
            if b > a:
                at = side * t.operators + source
                rows = w.x[w.done_hi + at] - a if upward else b - w.x[w.done_lo + at]
                w.x[w.goal + source] = max(w.x[w.goal + source], rows)


def _find_edges(t: Tables, w: Work, begin: int, end: int, side: int) -> None:
    """Fill `edge` (start and stop by value) with what the stage reads of earlier ones."""
    for i in range(begin, end):
        for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
            value = t.x[t.read_value + read]
            w.x[w.edge + 2 * value], w.x[w.edge + 2 * value + 1] = t.x[t.value_rows + value], 0
    for i in range(begin, end):
        lo, hi = w.x[w.done_lo + side * t.operators + i], w.x[w.done_hi + side * t.operators + i]
        if hi <= lo:
            continue
        for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
            a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
            value = t.x[t.read_value + read]
            if b > a and t.x[t.producer + value] < begin:
                w.x[w.edge + 2 * value] = min(w.x[w.edge + 2 * value], a)
                w.x[w.edge + 2 * value + 1] = max(w.x[w.edge + 2 * value + 1], b)


def _go_forwards(t: Tables, w: Work, begin: int, end: int, side: int, upward: int,
                 fraction: float) -> None:
    """How far each operator gets when `fraction` of what enters is there."""
    unfolded = False
    for i in range(begin, end):
        goal = _count(t, w, i, side)
        for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
            if _is_record(t, read, begin):
                goal = w.x[w.progress + i] if unfolded else goal
            elif goal > w.x[w.progress + i]:
                limit = _limit(t, w, t.x[t.read_value + read], begin, side, upward, fraction)
                goal = _reach(t, w, i, read, side, upward, goal, limit)
        w.x[w.goal + i] = goal
        unfolded = unfolded or (goal < _count(t, w, i, side) and _folds(t, i))


def _limit(t: Tables, w: Work, value: int, begin: int, side: int, upward: int,
           fraction: float) -> int:
    """Return up to where the rows of a value are there (upward: from where on)."""
    source = t.x[t.producer + value]
    if source >= begin:
        at = side * t.operators + source
        if upward:
            return w.x[w.done_hi + at] - w.x[w.goal + source]  # type: ignore[no-any-return]
        return w.x[w.done_lo + at] + w.x[w.goal + source]  # type: ignore[no-any-return]
    lo, hi = w.x[w.edge + 2 * value], w.x[w.edge + 2 * value + 1]
    rows = max(1, int(max(0, hi - lo) * fraction))
    return hi - rows if upward else lo + rows  # type: ignore[no-any-return]


def _reach(t: Tables, w: Work, i: int, read: int, side: int, upward: int, goal: int,
           limit: int) -> int:
    """Return how far an operator gets, at most to `goal`, with a value there up to `limit`."""
    at = t.x[t.read_map + read]
    reached = w.x[w.progress + i]
    while reached < goal:
        row = at + _rows_lo(t, w, i, side, upward, reached, reached + 1)
        first, last = t.x[t.first + row], t.x[t.last + row]
        if first < last and (first < limit if upward else last > limit):
            break
        reached += 1
    return reached  # type: ignore[no-any-return]


def _append(t: Tables, w: Work, begin: int, end: int, side: int, upward: int) -> None:
    """Append a step for each operator that has not reached its goal."""
    for i in range(begin, end):
        rows = w.x[w.goal + i] - w.x[w.progress + i]
        if rows <= 0:
            continue
        step, at = w.x[w.counts + side], side * t.operators + i
        k = side * w.steps + step
        w.x[w.step_op + k] = i
        w.x[w.step_lo + k] = _rows_lo(t, w, i, side, upward, w.x[w.progress + i], w.x[w.goal + i])
        w.x[w.step_hi + k] = w.x[w.step_lo + k] + rows
        w.x[w.step_next + k] = -1
        if w.x[w.first_step + at] < 0:
            w.x[w.first_step + at] = k
        else:
            w.x[w.step_next + w.x[w.last_step + at]] = k
        w.x[w.last_step + at] = k
        w.x[w.progress + i] = w.x[w.goal + i]
        w.x[w.counts + side] = step + 1
