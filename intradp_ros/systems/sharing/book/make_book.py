# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Making a schedule book: points where schedules change, and which schedule is for which bandwidth.

The parts are functions of one point or of two neighbours, so that points may
be planned in any number of processes.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
import math

import numpy as np

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.critical_paths import anywhere
from intradp_ros.systems.sharing.book.uneven_speeds import (
    conditions,
    conditions_between,
    SpeedCondition,
    worth_keeping,
)
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.search.bounds import Relaxation
from intradp_ros.systems.sharing.search.pool import (
    Aim,
    best,
    Candidate,
    candidates,
    Evaluator,
    improved,
)
from intradp_ros.systems.sharing.strategies import SHARED, STRATEGIES, UNEVEN

Progress = Callable[[int, int], None]
PlanPoints = Callable[[Iterable[float]], Iterable['Point']]
#: Seeks a schedule for each condition, beginning from some that are known.
SearchMany = Callable[[Sequence[Partition], Sequence[SpeedCondition]], Iterable[Partition]]
#: Neighbours whose schedules lose this fraction at each other's bandwidth get a point between.
TOLERANCE = 0.03
# Points closer than this factor are not parted further.
_CLOSE = 1.1
#: A bandwidth is only guessed: factors of the guess that may really be there, and how likely they
#: are.  They stand for a standard deviation of 0.2 of its logarithm (Gauss-Hermite, three points).
GUESSES = ((math.exp(-0.2 * math.sqrt(3)), 1 / 6), (1.0, 2 / 3),
           (math.exp(0.2 * math.sqrt(3)), 1 / 6))


def bandwidth_grid(low: float = 1.0, high: float = 400.0, points: int = 20) -> tuple[float, ...]:
    """Return bandwidths in Mbit/s, evenly spaced in the logarithm."""
    return tuple(_rounded(b) for b in np.geomspace(low, high, points))


def _rounded(mbps: float) -> float:
    return float(f'{mbps:.4g}')


@dataclass(frozen=True)
class PlanningProblem:
    """What all points of a book have in common."""

    cost: CostModel
    delay: float = 0.0
    overhead: float = 0.0
    shared_air: bool = False
    aim: Aim = Aim()
    down_ratio: float = 1.0

    def link(self, mbps: float) -> LinkModel:
        """Return the link of a bandwidth (up) in Mbit/s."""
        return LinkModel.of_up(mbps, self.down_ratio, self.delay, self.overhead, self.shared_air)

    def evaluator(self, mbps: float) -> Evaluator:
        """Return what partitions take at a bandwidth."""
        return Evaluator(self.cost, self.link(mbps), self.aim)

    def evaluator_at(self, where: SpeedCondition) -> Evaluator:
        """Return what partitions take where devices have other speeds."""
        return Evaluator(where.of(self.cost), self.link(where.mbps), self.aim)


@dataclass(frozen=True)
class Point:
    """One bandwidth (Mbit/s): the schedule of every strategy, and the lower bound (s)."""

    mbps: float
    found: Mapping[str, Candidate]
    bound: float


def plan_point(setting: PlanningProblem, relaxation: Relaxation, mbps: float) -> Point:
    """Plan for one bandwidth."""
    link = setting.link(mbps)
    found = candidates(setting.cost, link, setting.aim)
    known = min(candidate.played.latency for candidate in found.values())
    return Point(mbps, found, relaxation.bound(link, known))


def search_at(setting: PlanningProblem, known: Sequence[Partition],
              where: SpeedCondition) -> Partition:
    """Return the best schedule that is found for a condition."""
    return improved(where.of(setting.cost), setting.link(where.mbps), setting.aim,
                    known).partition


def make_book(cost: CostModel, digest: str, *, grid: Sequence[float] | None = None,
              delay: float = 0.0, overhead: float = 0.0, lossy: str = '') -> ScheduleBook:
    """
    Make the book of least latencies for a grid of bandwidths, in this process.

    `lossy` is a lossy encoding that the user allows.
    """
    setting = PlanningProblem(cost, delay, overhead, aim=Aim(lossy=lossy))
    return book_of(setting, digest, grid or bandwidth_grid())


def book_of(setting: PlanningProblem, digest: str, grid: Sequence[float], *, extra: int = 0,
            ratios: Sequence[float] = (), objective: str = 'latency',
            plan: PlanPoints | None = None, search_many: SearchMany | None = None,
            progress: Progress | None = None) -> ScheduleBook:
    """
    Make the book for a grid of bandwidths, with at most `extra` points where schedules change.

    With schedules for devices whose speeds have these `ratios` (robot's
    seconds over the server's, as profiled 1).  `plan` plans several points
    (by default one after another), `search_many` searches for
    several conditions, at last for each point from the best that all of them
    have; `objective` is the name of what the setting aims at.
    """
    plan = plan or partial(map, partial(plan_point, setting, Relaxation(setting.cost)))
    search_many = search_many or (
        lambda known, where: map(partial(search_at, setting, known), where))
    grid = sorted(set(grid))
    where = conditions(grid, ratios)
    report = progress or (lambda done, total: None)
    points = _planned(setting, grid, extra, plan,
                      lambda done, total: report(done, 2 * total + len(where)))
    found, where = _sought(
        setting, _partitions(points), where, search_many,
        lambda done, total: report(len(points) + done, 2 * len(points) + total))
    before = len(points) + len(found)
    final = _improved(setting, points, found, search_many, lambda done, total: report(
        before + done, before + total))
    uneven = worth_keeping(setting.evaluator_at, _partitions(final), found, where)
    return ScheduleBook(
        digest, setting.cost.split.axis, setting.delay, setting.overhead,
        tuple(entries(setting, final, uneven)), setting.aim.lossy,
        bounds=tuple((p.mbps, p.bound) for p in final), objective=objective,
        shared_air=setting.shared_air, down_ratio=setting.down_ratio)


def _planned(setting: PlanningProblem, grid: Sequence[float], extra: int, plan: PlanPoints,
             progress: Progress) -> list[Point]:
    """Return the points of a grid, and at most `extra` where schedules change, ascending."""
    points: dict[float, Point] = {}
    wanted = list(grid)
    while wanted:
        for point in plan(wanted):
            points[point.mbps] = point
            progress(len(points), max(len(points), len(grid)))
        left = len(grid) + extra - len(points)
        wanted = where_to_look(setting, _ascending(points))[:left] if left > 0 else []
    return _ascending(points)


def _sought(setting: PlanningProblem, known: Sequence[Partition], where: Sequence[SpeedCondition],
            search_many: SearchMany, progress: Progress,
            ) -> tuple[list[Partition], tuple[SpeedCondition, ...]]:
    """Return what is found for some conditions and then between them, and all of these."""
    found: list[Partition] = []
    asked: list[SpeedCondition] = []

    def find(places: Sequence[SpeedCondition]) -> None:
        asked.extend(places)
        for partition in search_many([*known, *found], places):
            found.append(partition)
            progress(len(found), len(asked))
    find(where)
    find(conditions_between(setting.evaluator_at, [*known, *found], where))
    return found, tuple(asked)


def _improved(setting: PlanningProblem, points: Sequence[Point], found: Sequence[Partition],
              search_many: SearchMany, progress: Progress) -> list[Point]:
    """
    Return the points with what is found for them from the best schedules of all points.

    A search by itself now and then ends at another kind of schedule than the best one.
    """
    better: list[Partition] = []
    where = [SpeedCondition(1.0, point.mbps) for point in points]
    for partition in search_many([*_partitions(points), *found], where):
        better.append(partition)
        progress(len(better), len(points))
    return shared_with_neighbours(setting, points, [*found, *better])


def _partitions(points: Iterable[Point]) -> list[Partition]:
    return list(dict.fromkeys(p.found[s].partition for p in points for s in STRATEGIES))


def _ascending(points: Mapping[float, Point]) -> list[Point]:
    return [points[mbps] for mbps in sorted(points)]


def where_to_look(setting: PlanningProblem, points: Sequence[Point]) -> list[float]:
    """Return bandwidths between neighbours that cannot stand in for each other; worst first."""
    found = []
    for a, b in zip(points, points[1:]):
        middle = _rounded(math.sqrt(a.mbps * b.mbps))
        loss = _loss_between(setting, a, b)
        if loss > TOLERANCE and b.mbps > _CLOSE * a.mbps and a.mbps < middle < b.mbps:
            found.append((-loss, middle))
    return [middle for _, middle in sorted(found)]


def _loss_between(setting: PlanningProblem, a: Point, b: Point) -> float:
    """Return what is lost, as a fraction, by the better of using either schedule for both."""
    first, second = a.found[SHARED], b.found[SHARED]
    if first.partition == second.partition:
        return 0.0
    losses = (_ratio(setting.evaluator(b.mbps)(first.partition), second),
              _ratio(setting.evaluator(a.mbps)(second.partition), first))
    return min(losses) - 1


def _ratio(one: Candidate, other: Candidate) -> float:
    return one.price / other.price if other.price > 0 else 1.0


def shared_with_neighbours(setting: PlanningProblem, points: Sequence[Point],
                           others: Sequence[Partition] = ()) -> list[Point]:
    """Take over a neighbour's schedule, or one of `others`, where it is better than a point's."""
    final = []
    for index, point in enumerate(points):
        price = setting.evaluator(point.mbps)
        near = [points[i].found[SHARED].partition for i in (index - 1, index + 1)
                if 0 <= i < len(points)]
        winner = best([point.found[SHARED], *map(price, (*near, *others))])
        final.append(replace(point, found={**point.found, SHARED: winner}))
    return final


def entries(setting: PlanningProblem, points: Sequence[Point], uneven: Sequence[Partition] = (),
            ) -> list[Entry]:
    """Return the entries of all points and strategies with their ranges, and of uneven speeds."""
    found, middle = [], points[len(points) // 2].mbps
    partitions = [*_partitions(points), *uneven]
    known = anywhere(setting.cost, setting.link, partitions, [p.mbps for p in points])
    for candidate in map(setting.evaluator(middle), uneven):
        found.append(Entry(middle, UNEVEN, candidate.played.latency, candidate.partition,
                           candidate.joules, anywhere=known[candidate.partition]))
    for strategy in STRATEGIES:
        ends = [points[0].mbps / 2]
        for a, b in zip(points, points[1:]):
            ends.append(_switch(setting, a, b) if strategy == SHARED
                        else math.sqrt(a.mbps * b.mbps))
        ends.append(math.inf)
        for point, low, high in zip(points, ends, ends[1:]):
            candidate = point.found[strategy]  # its range holds it, whatever the logarithm lost
            found.append(Entry(point.mbps, strategy, candidate.played.latency,
                               candidate.partition, candidate.joules,
                               min(low, point.mbps), max(high, point.mbps),
                               known[candidate.partition]))
    return sorted(found, key=lambda e: (e.mbps, (*STRATEGIES, UNEVEN).index(e.strategy)))


def _switch(setting: PlanningProblem, a: Point, b: Point) -> float:
    """
    Return from which guessed bandwidth on the schedule for the faster of two links is used.

    From where it is expected to win: a link that is overrated costs more
    than one that is underrated gains.
    """
    first, second = a.found[SHARED].partition, b.found[SHARED].partition
    low, high = math.log(a.mbps), math.log(b.mbps)
    if first == second:
        return math.exp((low + high) / 2)
    for _ in range(5):
        middle = (low + high) / 2
        if _wins(setting, math.exp(middle), second, first):
            high = middle
        else:
            low = middle
    return math.exp(high)


def _wins(setting: PlanningProblem, guess: float, one: Partition, other: Partition) -> bool:
    """Return whether a schedule is expected to beat another if a bandwidth is guessed."""
    lead = 0.0
    for factor, weight in GUESSES:
        price = setting.evaluator(guess * factor)
        lead += weight * (price(other).price - price(one).price)
    return lead > 0
