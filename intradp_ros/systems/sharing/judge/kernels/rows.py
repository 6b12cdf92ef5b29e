# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Which rows of which operator each side computes, and which it lacks.

One pass over the graph, backwards, turns stages and shares into the sets X_i
(robot) and Y_i (server) of the paper's section 4.2, and the rows that must
cross the link into M_i and N_i.
"""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.records import Layout, Tables, Work


def need_lo(t: Tables, read: int, lo: int, hi: int) -> int:
    """Return where the input rows start that rows ``lo:hi`` need by one of the reads."""
    at = t.x[t.read_map + read]
    found = t.x[t.first + at + lo]
    if not t.x[t.ascending + read]:
        for row in range(at + lo + 1, at + hi):
            found = min(found, t.x[t.first + row])
    return found  # type: ignore[no-any-return]


def need_hi(t: Tables, read: int, lo: int, hi: int) -> int:
    """Return where they stop; there are none if that is not behind their start."""
    at = t.x[t.read_map + read]
    found = t.x[t.last + at + hi - 1]
    if not t.x[t.ascending + read]:
        for row in range(at + lo, at + hi - 1):
            found = max(found, t.x[t.last + row])
    return found  # type: ignore[no-any-return]


def assign(t: Tables, p: Layout, w: Work) -> None:
    """Fill `done_...`, `near_...`, `far_...`, `lack_...` and `stage`."""
    operators, values, stages = t.operators, t.values, p.stages
    for value in range(values):
        rows = t.x[t.value_rows + value]
        for at in (value, values + value):
            w.x[w.near_lo + at], w.x[w.near_hi + at] = rows, 0
            w.x[w.far_lo + at], w.x[w.far_hi + at] = rows, 0
    for k in range(t.outputs, t.outputs_end):
        value = t.x[k]
        w.x[w.far_lo + value], w.x[w.far_hi + value] = 0, t.x[t.value_rows + value]
    stage = stages - 1
    for i in range(operators - 1, -1, -1):
        if stage and i < p.x[p.stops + stage - 1]:
            stage -= 1
        w.x[w.stage + i] = stage
        border = round(p.y[p.share + stage] * t.x[t.rows + i])
        _compute(t, w, i, 0, 0, border)
        _compute(t, w, i, 1, border, t.x[t.rows + i])
        begin = p.x[p.stops + stage - 1] if stage else 0
        _ask(t, w, i, 0, begin)
        _ask(t, w, i, 1, begin)
    for value in range(values):
        _lack(t, w, value, 0)
        _lack(t, w, value, 1)


def _compute(t: Tables, w: Work, i: int, side: int, own_lo: int, own_hi: int) -> None:
    """Rows a side computes: what its stage needs, and what it owns of what leaves the stage."""
    values = t.values
    lo, hi = t.x[t.rows + i], 0
    for k in range(t.x[t.makes + i], t.x[t.makes + i + 1]):
        here, there = side * values + t.x[t.made + k], (1 - side) * values + t.x[t.made + k]
        out_lo, out_hi = w.x[w.far_lo + here], w.x[w.far_hi + here]
        # Rows for the other side, unless it computes all of them anyway.
        far_lo, far_hi = w.x[w.far_lo + there], w.x[w.far_hi + there]
        if far_lo < w.x[w.near_lo + there] or far_hi > w.x[w.near_hi + there]:
            out_lo, out_hi = min(out_lo, far_lo), max(out_hi, far_hi)
        out_lo, out_hi = max(out_lo, own_lo), min(out_hi, own_hi)
        if out_hi > out_lo:
            lo, hi = min(lo, out_lo), max(hi, out_hi)
        lo, hi = min(lo, w.x[w.near_lo + here]), max(hi, w.x[w.near_hi + here])
    at = side * t.operators + i
    w.x[w.done_lo + at], w.x[w.done_hi + at] = lo, hi


def _ask(t: Tables, w: Work, i: int, side: int, begin: int) -> None:
    """
    Add what an operator's rows read, of its own stage (from `begin`) and of earlier ones.

    Records cross also inside a stage: each side folds the rows that it owns.
    """
    lo, hi = w.x[w.done_lo + side * t.operators + i], w.x[w.done_hi + side * t.operators + i]
    if hi <= lo:
        return
    for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
        a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
        if b <= a:
            continue
        value = t.x[t.read_value + read]
        at = side * t.values + value
        if t.x[t.producer + value] >= begin and not t.x[t.record_bytes + value]:
            w.x[w.near_lo + at] = min(w.x[w.near_lo + at], a)
            w.x[w.near_hi + at] = max(w.x[w.near_hi + at], b)
        else:
            w.x[w.far_lo + at] = min(w.x[w.far_lo + at], a)
            w.x[w.far_hi + at] = max(w.x[w.far_hi + at], b)


def _lack(t: Tables, w: Work, value: int, side: int) -> None:
    """
    Rows that a side reads from an earlier stage, or as records, and did not compute.

    They are the paper's M_i and N_i.

    What a side computed lies at one end of the value or covers what it
    reads, so the rest is one region.  The robot has the inputs.
    """
    at, producer = side * t.values + value, t.x[t.producer + value]
    lo, hi = w.x[w.far_lo + at], w.x[w.far_hi + at]
    if producer < 0:
        if side == 0:
            hi = lo
    elif hi > lo:
        own = side * t.operators + producer
        done_lo, done_hi = w.x[w.done_lo + own], w.x[w.done_hi + own]
        if done_lo < done_hi and done_lo < hi and lo < done_hi:
            if done_lo <= lo:
                lo = max(lo, done_hi)
            elif done_hi >= hi:
                hi = min(hi, done_lo)
    w.x[w.lack_lo + at], w.x[w.lack_hi + at] = lo, hi
