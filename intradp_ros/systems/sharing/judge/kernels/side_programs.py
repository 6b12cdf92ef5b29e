# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The programs of both sides: compute steps with sends and receives between them.

A receive stands right before the first step that reads its rows, a send
right after the step that completes them; inputs are sent at the start, and
the robot receives what is missing of the outputs in the end.
"""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.rows import need_hi, need_lo
from intradp_ros.systems.sharing.judge.records import Layout, Tables, Work

COMPUTE, SEND, RECEIVE = 0, 1, 2

# Bits of `transfer_state`: what the programs do with it so far.
_SENT, _RECEIVED = 1, 2


def write_programs(t: Tables, p: Layout, w: Work) -> None:
    """Append both programs to `kind`, `item`, `lo` and `rows`."""
    for k in range(w.x[w.counts + 3]):
        _append(w, 0, SEND, w.x[w.input_order + k], 0, 0)
    for side in range(2):
        begin = side * w.steps
        for step in range(begin, begin + w.x[w.counts + side]):
            i, lo, hi = w.x[w.step_op + step], w.x[w.step_lo + step], w.x[w.step_hi + step]
            for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
                value = t.x[t.read_value + read]
                if w.x[w.piece_count + side * t.values + value]:
                    a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
                    _receive(t, w, side, value, a, b)
            _append(w, side, COMPUTE, i, lo, hi)
            upward = p.x[p.upward + side * p.stages + w.x[w.stage + i]]
            for k in range(t.x[t.makes + i], t.x[t.makes + i + 1]):
                _send(t, w, side, t.x[t.made + k], upward, lo, hi)
    for k in range(t.outputs, t.outputs_end):
        value = t.x[k]
        _receive(t, w, 0, value, 0, t.x[t.value_rows + value])


def _append(w: Work, side: int, kind: int, index: int, lo: int, hi: int) -> None:
    at = side * w.entries + w.x[w.counts + 4 + side]
    w.x[w.kind + at], w.x[w.item + at] = kind, index
    w.x[w.lo + at], w.x[w.rows + at] = lo, hi - lo
    w.x[w.counts + 4 + side] += 1


def _receive(t: Tables, w: Work, side: int, value: int, lo: int, hi: int) -> None:
    """Wait for the transfers that bring rows ``lo:hi``, if that was not done before."""
    at = side * t.values + value
    first = w.x[w.piece_first + at]
    for k in range(first, first + w.x[w.piece_count + at]):
        open_ = not w.x[w.transfer_state + k] & _RECEIVED
        if open_ and w.x[w.transfer_lo + k] < hi and lo < w.x[w.transfer_hi + k]:
            _append(w, side, RECEIVE, k, 0, 0)
            w.x[w.transfer_state + k] += _RECEIVED


def _send(t: Tables, w: Work, side: int, value: int, upward: int, lo: int, hi: int) -> None:
    """Send what is complete now."""
    at = (1 - side) * t.values + value
    first = w.x[w.piece_first + at]
    for k in range(first, first + w.x[w.piece_count + at]):
        open_ = not w.x[w.transfer_state + k] & _SENT
        if open_ and (w.x[w.transfer_lo + k] >= lo if upward else w.x[w.transfer_hi + k] <= hi):
            _append(w, side, SEND, k, 0, 0)
            w.x[w.transfer_state + k] += _SENT
