# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
From a partition to the schedule: steps of both sides and the transfers between them.

The work is done by the kernels; here their tables become steps with names.
"""
from __future__ import annotations

from typing import Any

from intradp_ros.schedule.schedule import Compute, Receive, Schedule, Send, SIDES, Step, Transfer
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.judge.kernels.judging import write
from intradp_ros.systems.sharing.judge.kernels.side_programs import COMPUTE, SEND
from intradp_ros.systems.sharing.judge.records import as_plain, Work
from intradp_ros.systems.sharing.judge.tables import (
    layout_of,
    most_steps,
    plain_tables_of,
    plain_work_for,
)
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.wire.codecs.names import NONE


def lower(split: SplitGraph, partition: Partition) -> Schedule:
    """
    Write the programs of robot and server for one partition.

    :raises ValueError: if the stages do not tile the graph, or encodings are for values that it
        has not.
    """
    partition.check(len(split.operators), len(split.rows))
    tables = plain_tables_of(split)
    work = plain_work_for(tables, most_steps(partition))
    write(tables, as_plain(layout_of(partition)), work)
    return Schedule(_transfers(work, partition),
                    {side: _program(work, number) for number, side in enumerate(SIDES)})


def _transfers(w: Work, partition: Partition) -> tuple[Transfer, ...]:
    encodings = dict(partition.encodings)
    found = (w.transfer[k] for k in range(w.count[0].transfers))
    return tuple(
        Transfer(k, t.value, Region(t.lo, t.hi), SIDES[t.source], SIDES[1 - t.source],
                 encodings.get(t.value, NONE))
        for k, t in enumerate(found))


def _program(w: Work, side: int) -> tuple[Step, ...]:
    return tuple(_step(w.entry[at]) for at in range(w.side[side].start, w.side[side].stop))


def _step(entry: Any) -> Step:
    if entry.kind == COMPUTE:
        return Compute(entry.item, Region(entry.lo, entry.lo + entry.rows))
    return Send(entry.item) if entry.kind == SEND else Receive(entry.item)
