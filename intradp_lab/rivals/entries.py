# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Entries of the rivals in a schedule table, so that a robot can run them to be compared."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
import math

from intradp_lab.rivals.spso_ga import spso_ga
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.baselines.minimum_cut import min_cut
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.critical_paths import anywhere
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.partition.encoding_choice import assuming, best_encodings, encoded
from intradp_ros.systems.sharing.search.pool import Aim, Candidate, Evaluator

DSCCS, SPSO_GA = 'dsccs', 'spso-ga'
RIVALS = (DSCCS, SPSO_GA)


def rival_candidates(cost: CostModel, link: LinkModel, aim: Aim) -> dict[str, Candidate]:
    """Return what the rivals would do; values cross in the encodings that ours have, too."""
    encodings = best_encodings(cost, link, aim.lossy)
    assumed, price = assuming(cost, encodings), Evaluator(cost, link, aim)
    found = {DSCCS: min_cut(assumed, link),
             SPSO_GA: spso_ga(assumed, link, power=aim.power, deadline=aim.deadline,
                              seed=aim.seed)}
    return {name: price(encoded(cost.split, partition, encodings))
            for name, partition in found.items()}


def with_rivals(book: ScheduleBook, setting: PlanningProblem) -> ScheduleBook:
    """Return a table with schedules of the rivals behind its own, whose ids stay."""
    entries = [Entry(mbps, name, found.played.latency, found.partition, found.joules, low, high)
               for mbps, low, high in ranges(book.grid)
               for name, found in rival_candidates(setting.cost, setting.link(mbps),
                                                   setting.aim).items()]
    known = anywhere(setting.cost, setting.link, [e.partition for e in entries], book.grid)
    return replace(book, entries=(*book.entries, *(
        replace(entry, anywhere=known[entry.partition]) for entry in entries)))


def ranges(grid: Sequence[float]) -> Iterator[tuple[float, float, float]]:
    """Yield each bandwidth of a grid, with those between which it is the nearest one."""
    middles = [math.sqrt(a * b) for a, b in zip(grid, grid[1:])]
    for mbps, low, high in zip(grid, (grid[0] / 2, *middles), (*middles, math.inf)):
        yield mbps, min(low, mbps), max(high, mbps)
