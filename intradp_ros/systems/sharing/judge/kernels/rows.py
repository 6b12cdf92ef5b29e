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
    at = t.read[read].map
    found = t.window[at + lo].first
    if not t.read[read].ascending:
        for row in range(at + lo + 1, at + hi):
            found = min(found, t.window[row].first)
    return found  # type: ignore[no-any-return]


def need_hi(t: Tables, read: int, lo: int, hi: int) -> int:
    """Return where they stop; there are none if that is not behind their start."""
    at = t.read[read].map
    found = t.window[at + hi - 1].last
    if not t.read[read].ascending:
        for row in range(at + lo, at + hi - 1):
            found = max(found, t.window[row].last)
    return found  # type: ignore[no-any-return]


def assign(t: Tables, p: Layout, w: Work) -> None:
    """Fill `computed`, `wanted`, `lack` and the stages of `walk`."""
    operators, values, stages = t.operators, t.values, p.stages
    for value in range(values):
        rows = t.value[value].rows
        for at in (value, values + value):
            wanted = w.wanted[at]
            wanted.near_lo, wanted.near_hi = rows, 0
            wanted.far_lo, wanted.far_hi = rows, 0
    for value in t.outputs:
        w.wanted[value].far_lo, w.wanted[value].far_hi = 0, t.value[value].rows
    stage = stages - 1
    for i in range(operators - 1, -1, -1):
        if stage and i < p.stage[stage - 1].stop:
            stage -= 1
        w.walk[i].stage = stage
        border = round(p.stage[stage].share * t.operator[i].rows)
        _compute(t, w, i, 0, 0, border)
        _compute(t, w, i, 1, border, t.operator[i].rows)
        begin = p.stage[stage - 1].stop if stage else 0
        _ask(t, w, i, 0, begin)
        _ask(t, w, i, 1, begin)
    for value in range(values):
        _lack(t, w, value, 0)
        _lack(t, w, value, 1)


def _compute(t: Tables, w: Work, i: int, side: int, own_lo: int, own_hi: int) -> None:
    """Rows a side computes: what its stage needs, and what it owns of what leaves the stage."""
    values = t.values
    lo, hi = t.operator[i].rows, 0
    for k in range(t.operator[i].makes, t.operator[i + 1].makes):
        here = w.wanted[side * values + t.made[k]]
        there = w.wanted[(1 - side) * values + t.made[k]]
        out_lo, out_hi = here.far_lo, here.far_hi
        # Rows for the other side, unless it computes all of them anyway.
        if there.far_lo < there.near_lo or there.far_hi > there.near_hi:
            out_lo, out_hi = min(out_lo, there.far_lo), max(out_hi, there.far_hi)
        out_lo, out_hi = max(out_lo, own_lo), min(out_hi, own_hi)
        if out_hi > out_lo:
            lo, hi = min(lo, out_lo), max(hi, out_hi)
        lo, hi = min(lo, here.near_lo), max(hi, here.near_hi)
    done = w.computed[side * t.operators + i]
    done.lo, done.hi = lo, hi


def _ask(t: Tables, w: Work, i: int, side: int, begin: int) -> None:
    """
    Add what an operator's rows read, of its own stage (from `begin`) and of earlier ones.

    Records cross also inside a stage: each side folds the rows that it owns.
    """
    done = w.computed[side * t.operators + i]
    lo, hi = done.lo, done.hi
    if hi <= lo:
        return
    for read in range(t.operator[i].reads, t.operator[i + 1].reads):
        a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
        if b <= a:
            continue
        value = t.read[read].value
        wanted = w.wanted[side * t.values + value]
        if t.value[value].producer >= begin and not t.value[value].record_bytes:
            wanted.near_lo, wanted.near_hi = min(wanted.near_lo, a), max(wanted.near_hi, b)
        else:
            wanted.far_lo, wanted.far_hi = min(wanted.far_lo, a), max(wanted.far_hi, b)


def _lack(t: Tables, w: Work, value: int, side: int) -> None:
    """
    Rows that a side reads from an earlier stage, or as records, and did not compute.

    They are the paper's M_i and N_i.

    What a side computed lies at one end of the value or covers what it
    reads, so the rest is one region.  The robot has the inputs.
    """
    at, producer = side * t.values + value, t.value[value].producer
    lo, hi = w.wanted[at].far_lo, w.wanted[at].far_hi
    if producer < 0:
        if side == 0:
            hi = lo
    elif hi > lo:
        done = w.computed[side * t.operators + producer]
        if done.lo < done.hi and done.lo < hi and lo < done.hi:
            if done.lo <= lo:
                lo = max(lo, done.hi)
            elif done.hi >= hi:
                hi = min(hi, done.lo)
    w.lack[at].lo, w.lack[at].hi = lo, hi
    w.lack[at].join_lo = w.lack[at].join_hi = 0
