# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a side computes of the rows that the other owes it: the last ones first.

The other side sends rows in the order in which its program says so.  Who
waits for them begins at the other end, so that both meet in the middle, and
nothing is computed twice before they do.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import islice, takewhile

from intradp_ros.runtime.execution.recovery import missing_steps
from intradp_ros.schedule.schedule import Compute, Schedule, Send, Transfer
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import EMPTY, Region

#: Of the transfers that are owed so many parts are computed at once: fewer operators on more rows
#: take less time, and rows of a transfer count only once all of them are there.
PARTS = 4


def owed(schedule: Schedule, source: str) -> tuple[Transfer, ...]:
    """Return what comes from a side, in the order in which it sends."""
    return tuple(schedule.transfers[step.transfer] for step in schedule.programs[source]
                 if isinstance(step, Send))


def stride(missing: Sequence[Transfer], folded: Collection[int] = ()) -> Sequence[Transfer]:
    """
    Return which of the transfers that have not come are computed next: some of the last.

    A record of a folded value is never cut nor joined, so it is one for itself.
    """
    most = max(1, len(missing) // PARTS)
    rows = takewhile(lambda transfer: transfer.value not in folded, reversed(missing))
    return missing[len(missing) - max(1, len(tuple(islice(rows, most)))):]


def steps_to(split: SplitGraph, held: Iterable[tuple[int, Region, object]],
             wanted: Iterable[Transfer]) -> list[Compute]:
    """Return the steps that lead from rows that are held to those of some transfers."""
    regions: dict[int, list[Region]] = {}
    for value, region, _ in held:
        regions.setdefault(value, []).append(region)
    demand: dict[int, Region] = {}
    for transfer in wanted:
        demand[transfer.value] = demand.get(transfer.value, EMPTY).hull(transfer.region)
    return missing_steps(split, regions, demand)
