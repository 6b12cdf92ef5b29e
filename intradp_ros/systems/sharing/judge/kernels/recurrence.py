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
    Clock,
    Layout,
    LinkCost,
    StepCosts,
    Tables,
    Work,
)


def complete(t: Tables, p: Layout, w: Work, link_cost: LinkCost,
             costs: StepCosts, clock: Clock) -> float:
    """Return T_robot^N in seconds of a partition without bands: done, and has all outputs."""
    assign(t, p, w)
    for side in range(2):
        clock.device[side].now = clock.free[side] = 0.0
    for value in t.inputs:
        _transmit(t, w, link_cost, costs, clock, value)
    for i in range(t.operators):
        _advance(t, w, costs, clock, i, 0)
        _advance(t, w, costs, clock, i, 1)
        for k in range(t.operator[i].makes, t.operator[i + 1].makes):
            _transmit(t, w, link_cost, costs, clock, t.made[k])
    end = clock.device[0].now
    for value in t.outputs:
        if w.lack[value].hi > w.lack[value].lo:
            end = max(end, clock.transfer[value].arrived)
    return end  # type: ignore[no-any-return]


def _advance(t: Tables, w: Work, costs: StepCosts, clock: Clock, i: int, side: int) -> None:
    """Advance T^i: the later of T^{i-1} and the missing rows' arrival, and the compute."""
    own = side * t.operators + i
    rows = w.computed[own].hi - w.computed[own].lo
    if rows <= 0:
        return
    start = clock.device[side].now
    for read in range(t.operator[i].reads, t.operator[i + 1].reads):
        at = side * t.values + t.read[read].value
        if w.lack[at].hi > w.lack[at].lo:
            start = max(start, clock.transfer[at].arrived)
    at = side * costs.total + costs.first[i] + rows
    clock.device[side].now = start + costs.compute[at]


def _transmit(t: Tables, w: Work, link_cost: LinkCost,
              costs: StepCosts, clock: Clock, value: int) -> None:
    """Queue M_i and N_i; a transfer also waits for the earlier ones."""
    for source in range(2):
        at = (1 - source) * t.values + value
        rows = w.lack[at].hi - w.lack[at].lo
        if rows > 0:
            charge(t, link_cost, costs, 0, value, rows, source)
            lane = costs.transfer[0].lane
            start = clock.device[source].now + costs.transfer[0].encode
            start = max(start, clock.free[lane])
            clock.free[lane] = start + costs.transfer[0].occupy
            clock.transfer[at].arrived = clock.free[lane] + costs.transfer[0].later
