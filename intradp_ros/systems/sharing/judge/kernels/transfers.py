# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What crosses the link: rows that a side lacks, cut where its peer's steps end.

An input is there from the start and is cut at what its reader's steps need,
and sent in the order in which they need it.
"""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.rows import need_hi, need_lo
from intradp_ros.systems.sharing.judge.records import Layout, Tables, Work


def write_transfers(t: Tables, p: Layout, w: Work) -> None:
    """Append the transfers to both sides; fill the `pieces` of what they `lack`."""
    values = t.values
    for target in range(2):
        for value in range(values):
            lack = w.lack[target * values + value]
            lack.first_piece = w.count[0].transfers
            if lack.hi > lack.lo:
                if t.value[value].producer < 0:
                    _cut_input(t, p, w, value)
                else:
                    _cut_produced(t, p, w, value, target)
            lack.pieces = w.count[0].transfers - lack.first_piece
    _order_inputs(t, w)


def _add(w: Work, value: int, lo: int, hi: int, source: int) -> None:
    added = w.transfer[w.count[0].transfers]
    added.value, added.source, added.state = value, source, 0
    added.lo, added.hi = lo, hi
    w.count[0].transfers += 1


def _cut_produced(t: Tables, p: Layout, w: Work, value: int, target: int) -> None:
    """Cut a value where the source's steps end, in the order of the steps."""
    lack, source, producer = w.lack[target * t.values + value], 1 - target, t.value[value].producer
    upward = p.part[source * p.stages + w.walk[producer].stage].upward
    lo, hi = lack.lo, lack.hi
    at = w.computed[source * t.operators + producer].first_step
    while at >= 0:
        step = w.step[at]
        if upward:
            if lo < step.lo < hi:
                _add(w, value, step.lo, hi, source)
                hi = step.lo
        elif lo < step.hi < hi:
            _add(w, value, lo, step.hi, source)
            lo = step.hi
        at = step.next
    _add(w, value, lo, hi, source)


def _cut_input(t: Tables, p: Layout, w: Work, value: int) -> None:
    """Cut an input at what the server's steps need."""
    lack = w.lack[t.values + value]
    lo, hi = lack.lo, lack.hi
    for row in range(lo, hi):
        w.mark[row] = 0
    for at in range(w.steps, w.steps + w.side[1].steps):
        step = w.step[at]
        i = step.operator
        for read in range(t.operator[i].reads, t.operator[i + 1].reads):
            if t.read[read].value == value:
                if p.part[p.stages + w.walk[i].stage].upward:
                    row = need_lo(t, read, step.lo, step.hi)
                else:
                    row = need_hi(t, read, step.lo, step.hi)
                if lo < row < hi:
                    w.mark[row] = 1
    start = lo
    for row in range(lo + 1, hi):
        if w.mark[row]:
            _add(w, value, start, row, 0)
            start = row
    _add(w, value, start, hi, 0)


def _order_inputs(t: Tables, w: Work) -> None:
    """Fill `input_order`: pieces of inputs in the order in which the server's steps need them."""
    for at in range(w.steps, w.steps + w.side[1].steps):
        step = w.step[at]
        i = step.operator
        for read in range(t.operator[i].reads, t.operator[i + 1].reads):
            if t.value[t.read[read].value].producer < 0:
                a = need_lo(t, read, step.lo, step.hi)
                b = need_hi(t, read, step.lo, step.hi)
                _queue(t, w, t.read[read].value, a, b)
    for value in t.inputs:
        _queue(t, w, value, 0, t.value[value].rows)


def _queue(t: Tables, w: Work, value: int, lo: int, hi: int) -> None:
    lack = w.lack[t.values + value]
    for k in range(lack.first_piece, lack.first_piece + lack.pieces):
        piece = w.transfer[k]
        if piece.state == 0 and piece.lo < hi and lo < piece.hi:
            piece.state = 1
            w.input_order[w.count[0].inputs] = k
            w.count[0].inputs += 1
