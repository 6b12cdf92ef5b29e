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

# Bits of a transfer's `state`: what the programs do with it so far.
_SENT, _RECEIVED = 1, 2


def write_programs(t: Tables, p: Layout, w: Work) -> None:
    """Append the entries of both programs."""
    for k in range(w.count[0].inputs):
        _append(w, 0, SEND, w.input_order[k], 0, 0)
    for side in range(2):
        begin = side * w.steps
        for at in range(begin, begin + w.side[side].steps):
            step = w.step[at]
            i, lo, hi = step.operator, step.lo, step.hi
            joins = joined = 0
            for read in range(t.operator[i].reads, t.operator[i + 1].reads):
                value = t.read[read].value
                a, b = need_lo(t, read, lo, hi), need_hi(t, read, lo, hi)
                if w.lack[side * t.values + value].pieces:
                    _receive(t, w, side, value, a, b)
                if a < b and not _in_one_piece(t, w, side, value, a, b):
                    joins += 1
                    joined += (b - a) * t.value[value].row_bytes
            _append(w, side, COMPUTE, i, lo, hi)
            entry = w.entry[side * w.entries + w.side[side].entries - 1]
            entry.joins, entry.joined = joins, joined
            upward = p.part[side * p.stages + w.walk[i].stage].upward
            for k in range(t.operator[i].makes, t.operator[i + 1].makes):
                _send(t, w, side, t.made[k], upward, lo, hi)
    for value in t.outputs:
        _receive(t, w, 0, value, 0, t.value[value].rows)


def _in_one_piece(t: Tables, w: Work, side: int, value: int, lo: int, hi: int) -> bool:
    """Return whether rows lie in one piece, or were put together last; records count as one."""
    producer, lack = t.value[value].producer, w.lack[side * t.values + value]
    if t.value[value].record_bytes or (producer < 0 and side == 0) or (
            lack.join_lo == lo and lack.join_hi == hi):
        return True
    for k in range(lack.first_piece, lack.first_piece + lack.pieces):
        if w.transfer[k].lo <= lo and hi <= w.transfer[k].hi:
            return True
    at = w.computed[side * t.operators + producer].first_step if producer >= 0 else -1
    while at >= 0:
        if w.step[at].lo <= lo and hi <= w.step[at].hi:
            return True
        at = w.step[at].next
    lack.join_lo, lack.join_hi = lo, hi
    return False


def _append(w: Work, side: int, kind: int, index: int, lo: int, hi: int) -> None:
    entry = w.entry[side * w.entries + w.side[side].entries]
    entry.kind, entry.item = kind, index
    entry.lo, entry.rows = lo, hi - lo
    w.side[side].entries += 1


def _receive(t: Tables, w: Work, side: int, value: int, lo: int, hi: int) -> None:
    """Wait for the transfers that bring rows ``lo:hi``, if that was not done before."""
    lack = w.lack[side * t.values + value]
    for k in range(lack.first_piece, lack.first_piece + lack.pieces):
        piece = w.transfer[k]
        if not piece.state & _RECEIVED and piece.lo < hi and lo < piece.hi:
            _append(w, side, RECEIVE, k, 0, 0)
            piece.state += _RECEIVED


def _send(t: Tables, w: Work, side: int, value: int, upward: int, lo: int, hi: int) -> None:
    """Send what is complete now."""
    lack = w.lack[(1 - side) * t.values + value]
    for k in range(lack.first_piece, lack.first_piece + lack.pieces):
        piece = w.transfer[k]
        if not piece.state & _SENT and (piece.lo >= lo if upward else piece.hi <= hi):
            _append(w, side, SEND, k, 0, 0)
            piece.state += _SENT
