# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a book is still worth when devices or link are no longer what it was made for."""
from __future__ import annotations

from dataclasses import replace
import math

import numpy as np

from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.critical_paths import anywhere
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.search.bounds import Relaxation
from intradp_ros.systems.sharing.search.pool import Evaluator
from intradp_ros.systems.sharing.strategies import SHARED, UNEVEN

#: Bandwidths at which a book is looked at.
SAMPLES = 5


def sampled_rates(book: ScheduleBook) -> tuple[float, ...]:
    """Return at most `SAMPLES` bandwidths of a book's grid, from the lowest to the highest."""
    places = np.linspace(0, len(book.grid) - 1, min(SAMPLES, len(book.grid)))
    return tuple(book.grid[round(place)] for place in places)


def moved_by(book: ScheduleBook, setting: PlanningProblem) -> float:
    """
    Return the largest part by which a prediction of the book moves.

    All strategies at the sampled bandwidths are played again by the exact
    simulator, some twenty schedules in a few milliseconds each.
    """
    rates = sampled_rates(book)
    return max(abs(simulate(lower(setting.cost.split, entry.partition), setting.cost,
                            setting.link(entry.mbps)).latency / entry.predicted - 1)
               for entry in book.entries if entry.mbps in rates and entry.predicted > 0)


def value_lost(book: ScheduleBook, setting: PlanningProblem, relaxation: Relaxation) -> float:
    """
    Return about which part of its time a book that is made anew would win.

    No schedule is faster than the lower bound.  How far the best of the
    book's schedules is above it now, against how far they were when the book
    was made, is what no longer fits; the largest such ratio of the sampled
    bandwidths counts.  Infinite where the book does not say what it was.
    """
    partitions = list(dict.fromkeys(e.partition for e in book.entries
                                    if e.strategy in (SHARED, UNEVEN)))
    ratios = []
    for mbps in sampled_rates(book):
        bound = book.bound(mbps)
        if not bound or book.objective != 'latency':
            return math.inf
        then = min(e.predicted for e in book.entries if e.mbps == mbps) / bound
        price = setting.evaluator(mbps)
        now = min(price(partition).played.latency for partition in partitions)
        ratios.append(now / relaxation.bound(setting.link(mbps), now) / then)
    return 1 - 1 / max(ratios)


def repriced(book: ScheduleBook, setting: PlanningProblem) -> ScheduleBook:
    """Return the same schedules with what they take now; it has no lower bounds."""
    prices = {mbps: setting.evaluator(mbps) for mbps in book.grid}
    partitions = list(dict.fromkeys(entry.partition for entry in book.entries))
    known = anywhere(setting.cost, setting.link, partitions, book.grid)
    entries = tuple(replace(_repriced(entry, prices[entry.mbps]), anywhere=known[entry.partition])
                    for entry in book.entries)
    return replace(book, entries=entries, bounds=(), delay=setting.delay,
                   overhead=setting.overhead, down_ratio=setting.down_ratio)


def _repriced(entry: Entry, price: Evaluator) -> Entry:
    found = price(entry.partition)
    return replace(entry, predicted=found.played.latency, joules=found.joules)
