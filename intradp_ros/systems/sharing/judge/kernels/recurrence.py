# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
T_robot and T_server of the paper's section 4.2, operator by operator over the DAG.

An operator starts when its device is free and the missing rows of its
parents have arrived; a transfer starts when its rows are computed and the
link is free.
"""
from __future__ import annotations

from intradp_ros.systems.sharing.judge.kernels.judging import charge
from intradp_ros.systems.sharing.judge.kernels.rows import assign
from intradp_ros.systems.sharing.judge.records import (
    Charges,
    Clock,
    Layout,
    LinkCost,
    Tables,
    Work,
)


def complete(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
             charges: Charges, clock: Clock) -> float:
    """Return T_robot^N in seconds of a partition without bands: done, and has all outputs."""
    assign(t, p, w)
    for side in range(2):
        clock.y[clock.now + side] = clock.y[clock.free + side] = 0.0
    for k in range(t.inputs, t.inputs_end):
        _transmit(t, w, link_cost, charges, clock, t.x[k])
    for i in range(t.operators):
        _advance(t, w, charges, clock, i, 0)
        _advance(t, w, charges, clock, i, 1)
        for k in range(t.x[t.makes + i], t.x[t.makes + i + 1]):
            _transmit(t, w, link_cost, charges, clock, t.x[t.made + k])
    end = clock.y[clock.now]
    for k in range(t.outputs, t.outputs_end):
        value = t.x[k]
        if w.x[w.lack_hi + value] > w.x[w.lack_lo + value]:
            end = max(end, clock.y[clock.arrived + value])
    return end  # type: ignore[no-any-return]


def _advance(t: Tables, w: Work, charges: Charges, clock: Clock, i: int, side: int) -> None:
    """Advance T^i: the later of T^{i-1} and the missing rows' arrival, and the compute."""
    own = side * t.operators + i
    rows = w.x[w.done_hi + own] - w.x[w.done_lo + own]
    if rows <= 0:
        return
    start = clock.y[clock.now + side]
    for read in range(t.x[t.reads + i], t.x[t.reads + i + 1]):
        at = side * t.values + t.x[t.read_value + read]
        if w.x[w.lack_hi + at] > w.x[w.lack_lo + at]:
            start = max(start, clock.y[clock.arrived + at])
    at = side * charges.total + charges.x[charges.at + i] + rows
    clock.y[clock.now + side] = start + charges.y[charges.compute + at]


def _transmit(t: Tables, w: Work, link_cost: LinkCost,
              charges: Charges, clock: Clock, value: int) -> None:
    """Queue M_i and N_i; a transfer also waits for the earlier ones."""
    for source in range(2):
        at = (1 - source) * t.values + value
        rows = w.x[w.lack_hi + at] - w.x[w.lack_lo + at]
        if rows > 0:
            charge(t, link_cost, charges, 0, value, rows, source)
            lane = charges.x[charges.lane]
            start = clock.y[clock.now + source] + charges.y[charges.encode]
            start = max(start, clock.y[clock.free + lane])
            clock.y[clock.free + lane] = start + charges.y[charges.occupy]
            clock.y[clock.arrived + at] = clock.y[clock.free + lane] + charges.y[charges.later]
