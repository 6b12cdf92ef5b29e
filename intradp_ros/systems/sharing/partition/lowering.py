# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
From a partition to the schedule: steps of both sides and the transfers between them.

The work is done by the kernels; here their tables become steps with names.
"""
from __future__ import annotations

from intradp_ros.schedule.schedule import (
    Compute,
    Receive,
    Schedule,
    Send,
    SIDES,
    Step,
    Transfer,
)
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.judge.kernels.judging import write
from intradp_ros.systems.sharing.judge.kernels.side_programs import COMPUTE, SEND
from intradp_ros.systems.sharing.judge.records import as_lists, Work
from intradp_ros.systems.sharing.judge.tables import (
    layout_of,
    listed_tables_of,
    most_steps,
    work_for,
)
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.wire.codecs.names import NONE


def lower(split: SplitGraph, partition: Partition) -> Schedule:
    """
    Write the programs of robot and server for one partition.

    Raises
    ------
    ValueError
        If the stages do not tile the graph, or encodings are for values that
        it has not.

    """
    partition.check(len(split.operators), len(split.rows))
    tables = listed_tables_of(split)
    work = as_lists(work_for(tables, most_steps(partition)))
    write(tables, as_lists(layout_of(partition)), work)
    return Schedule(_transfers(work, partition),
                    {side: _program(work, number) for number, side in enumerate(SIDES)})


def _transfers(w: Work, partition: Partition) -> tuple[Transfer, ...]:
    encodings = dict(partition.encodings)
    count = w.x[w.counts + 2]
    value, lo, hi, source = (w.x[at:at + count] for at in (
        w.transfer_value, w.transfer_lo, w.transfer_hi, w.transfer_source))
    return tuple(
        Transfer(k, v, Region(a, b), SIDES[s], SIDES[1 - s], encodings.get(v, NONE))
        for k, (v, a, b, s) in enumerate(zip(value, lo, hi, source)))


def _program(w: Work, side: int) -> tuple[Step, ...]:
    first, count = side * w.entries, w.x[w.counts + 4 + side]
    kind, index, lo, rows = (w.x[at + first:at + first + count]
                             for at in (w.kind, w.item, w.lo, w.rows))
    return tuple(map(_step, kind, index, lo, rows))


def _step(kind: int, index: int, lo: int, rows: int) -> Step:
    if kind == COMPUTE:
        return Compute(index, Region(lo, lo + rows))
    return Send(index) if kind == SEND else Receive(index)
