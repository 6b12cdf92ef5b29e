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
    """Append the transfers to both sides; fill `piece_first` and `piece_count`."""
    values = t.values
    for target in range(2):
        for value in range(values):
            at = target * values + value
            w.x[w.piece_first + at] = w.x[w.counts + 2]
            if w.x[w.lack_hi + at] > w.x[w.lack_lo + at]:
                if t.x[t.producer + value] < 0:
                    _cut_input(t, p, w, value)
                else:
                    _cut_produced(t, p, w, value, target)
            w.x[w.piece_count + at] = w.x[w.counts + 2] - w.x[w.piece_first + at]
    _order_inputs(t, w)


def _add(w: Work, value: int, lo: int, hi: int, source: int) -> None:
    at = w.x[w.counts + 2]
    w.x[w.transfer_value + at], w.x[w.transfer_source + at] = value, source
    w.x[w.transfer_lo + at], w.x[w.transfer_hi + at] = lo, hi
    w.x[w.transfer_state + at] = 0
    w.x[w.counts + 2] = at + 1


def _cut_produced(t: Tables, p: Layout, w: Work, value: int, target: int) -> None:
    """Cut a value where the source's steps end, in the order of the steps."""
    at, source, producer = target * t.values + value, 1 - target, t.x[t.producer + value]
    upward = p.x[p.upward + source * p.stages + w.x[w.stage + producer]]
    lo, hi = w.x[w.lack_lo + at], w.x[w.lack_hi + at]
    step = w.x[w.first_step + source * t.operators + producer]
    while step >= 0:
        if upward:
            if lo < w.x[w.step_lo + step] < hi:
                _add(w, value, w.x[w.step_lo + step], hi, source)
                hi = w.x[w.step_lo + step]
        elif lo < w.x[w.step_hi + step] < hi:
            _add(w, value, lo, w.x[w.step_hi + step], source)
            lo = w.x[w.step_hi + step]
        step = w.x[w.step_next + step]
    _add(w, value, lo, hi, source)


def _cut_input(t: Tables, p: Layout, w: Work, value: int) -> None:
    """Cut an input at what the server's steps need."""
    at = t.values + value
    lo, hi = w.x[w.lack_lo + at], w.x[w.lack_hi + at]
    for row in range(lo, hi):
        w.x[w.mark + row] = 0
    begin = w.steps
    for step in range(begin, begin + w.x[w.counts + 1]):
        i = w.x[w.step_op + step]
        for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
            if t.x[t.read_value + read] == value:
                if p.x[p.upward + p.stages + w.x[w.stage + i]]:
                    row = need_lo(t, read, w.x[w.step_lo + step], w.x[w.step_hi + step])
                else:
                    row = need_hi(t, read, w.x[w.step_lo + step], w.x[w.step_hi + step])
                if lo < row < hi:
                    w.x[w.mark + row] = 1
    start = lo
    for row in range(lo + 1, hi):
        if w.x[w.mark + row]:
            _add(w, value, start, row, 0)
            start = row
    _add(w, value, start, hi, 0)


def _order_inputs(t: Tables, w: Work) -> None:
    """Fill `input_order`: pieces of inputs in the order in which the server's steps need them."""
    begin = w.steps
    for step in range(begin, begin + w.x[w.counts + 1]):
        i = w.x[w.step_op + step]
        for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
            if t.x[t.producer + t.x[t.read_value + read]] < 0:
                a = need_lo(t, read, w.x[w.step_lo + step], w.x[w.step_hi + step])
                b = need_hi(t, read, w.x[w.step_lo + step], w.x[w.step_hi + step])
                _queue(t, w, t.x[t.read_value + read], a, b)
    for k in range(t.inputs, t.inputs_end):
        value = t.x[k]
        _queue(t, w, value, 0, t.x[t.value_rows + value])


def _queue(t: Tables, w: Work, value: int, lo: int, hi: int) -> None:
    first = w.x[w.piece_first + t.values + value]
    for k in range(first, first + w.x[w.piece_count + t.values + value]):
        open_ = w.x[w.transfer_state + k] == 0
        if open_ and w.x[w.transfer_lo + k] < hi and lo < w.x[w.transfer_hi + k]:
            w.x[w.transfer_state + k] = 1
            w.x[w.input_order + w.x[w.counts + 3]] = k
            w.x[w.counts + 3] += 1
