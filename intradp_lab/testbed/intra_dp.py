# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Intra-DP as published: for each bandwidth of a grid, LOSS by differential evolution.

The paper has nothing of the rest: no bands, so that a side waits for all rows
that it lacks of a value (the recurrences of section 4.2), no search of other
kinds, no points where schedules change, no caution between them.  The schedule
for the nearest bandwidth is used.
"""
from __future__ import annotations

from collections.abc import Sequence

from intradp_lab.rivals.entries import ranges
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.partition.encoding_choice import assuming, best_encodings, encoded
from intradp_ros.systems.sharing.partition.partition import local, offload, Partition
from intradp_ros.systems.sharing.search.differential_evolution import de
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    SHARED,
)

BUDGET = 3000


def intra_dp_book(setting: PlanningProblem, digest: str, grid: Sequence[float], seed: int = 0,
                  budget: int = BUDGET, bands: bool = False) -> ScheduleBook:
    """
    Return the book of Intra-DP as published; besides, everything on the robot.

    Values cross in the same encodings as those of all other systems.  With
    `bands` the same differential evolution finds our kind of schedules.
    """
    grid = sorted(grid)
    alone = local(len(setting.cost.split.operators))
    entries: list[Entry] = []
    for mbps, low, high in ranges(grid):
        price = setting.evaluator(mbps)
        solved = _solve(setting, mbps, seed, budget, bands)
        for strategy, partition in ((LOCAL, alone), (SHARED, solved)):
            found = price(partition)
            entries.append(Entry(mbps, strategy, found.played.latency, partition, found.joules,
                                 low, high))
    return ScheduleBook(digest, setting.cost.split.axis, setting.delay, setting.overhead,
                        tuple(entries))


def _solve(setting: PlanningProblem, mbps: float, seed: int, budget: int,
           bands: bool) -> Partition:
    link, cost = setting.link(mbps), setting.cost
    encodings = best_encodings(cost, link)
    count = len(cost.split.operators)
    found = de(assuming(cost, encodings), link, seed=seed, budget=budget,
               begin=(local(count), offload(count)), bands=bands)
    return encoded(cost.split, found.partition, encodings)
