# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The solver of the book: simulated annealing over all partitions with the exact judge.

It judges a few hundred plain partitions and what differential evolution finds
in a short time, anneals for a short while from the best that differ, for
longer from the best of what that gave, and goes on from the best of all.  Why
so is argued in doc/planning.md.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
import math
from random import Random

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.baselines.minimum_cut import min_cut
from intradp_ros.systems.sharing.judge.energy import latency, Objective
from intradp_ros.systems.sharing.judge.judge import Judge, Judged
from intradp_ros.systems.sharing.partition.partition import (
    cut,
    local,
    offload,
    Pace,
    Partition,
    RowStage,
)
from intradp_ros.systems.sharing.search.differential_evolution import de
from intradp_ros.systems.sharing.search.moves import pieces, places, propose, SMALL
from intradp_ros.systems.sharing.search.solving import Stop, Trial

#: A stage or band more has to win this fraction, lest schedules become finer for nothing.
FINENESS = 2e-4
#: Worse by this fraction is taken at odds of 1/e, at the start and at the end of an annealing.
HOT, COLD = 0.02, 3e-4
#: From how many starts it anneals in each round, and for which part of the budget each.
ROUNDS = ((12, 0.03), (4, 0.08))
#: What differential evolution may judge beforehand, as a part of the budget.
EVOLVED_PART = 0.12
#: Parts of the transfers that are taken to hide behind computing when placements are sought.
HIDDEN = (0.0, 0.5, 0.8)
_SHARES = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.75, 0.9)
_COARSE = (0.0, 0.2, 0.4, 0.6, 0.7, 0.8, 0.9, 1.0)
_STAIRS = ((0.2, 0.2, 1.0), (0.3, 0.15, 1.0), (0.4, 0.2, 0.0), (0.25, 0.0, 0.9), (0.5, 0.3, 0.5))
_FED = Pace(by_input=True)
#: Where both sides exchange the rows at the border: the robot's last band waits for the server's
#: rows, and the server, whose first rows they were, ends at the border.
_BORDER_LAST, _TO_BORDER = Pace(0.2), Pace(upward=True, by_input=True)


def search(cost: CostModel, link: LinkModel, *, seed: int = 0, budget: int | None = None,
           objective: Objective = latency, begin: Sequence[Partition] = (),
           stop: Stop | None = None) -> Judged:
    """Find a partition as `Solver` says; the larger the graph, the smaller the usual budget."""
    budget = budget or usual_budget(len(cost.split.operators))
    trial = Trial(Judge(cost, link), objective, budget, stop)
    stops = places(cost)
    evolved = de(cost, link, seed=seed, budget=int(EVOLVED_PART * budget), objective=objective,
                 begin=begin, stop=stop)
    found = [trial(partition)
             for partition in (*begin, evolved.partition, *placements(cost, link),
                               *plain_partitions(stops))
             if not trial.over]
    annealing = _Annealing(trial, Random(seed), stops)
    for count, part in ROUNDS:
        found = [annealing.run(start, HOT, 3 * COLD, int(part * budget))
                 for start in _different(found, count)]
    annealing.run(min(found, key=_score), HOT / 2, COLD, budget - trial.judge.count)
    return trial.result()


def usual_budget(operators: int) -> int:
    """Return how many partitions are judged in about half a second on one core."""
    return min(7500, max(3000, 1_500_000 // operators))


def plain_partitions(stops: Sequence[int]) -> Iterator[Partition]:
    """Return partitions of one to three stages: all on a side, cut, shared, in bands or not."""
    count = stops[-1]
    yield local(count)
    yield offload(count)
    for share in _SHARES:
        yield Partition((RowStage(count, share, 1, 4),))
        yield Partition((RowStage(count, share, 1, 8, server_pace=_FED),))
    for stop in sorted({stops[k * (len(stops) - 1) // 15] for k in range(15)} - {count}):
        yield cut(count, stop)
        yield Partition((RowStage(stop, 1.0, 8), RowStage(count, 0.0, 1, 4)))
        for share in (0.5, 0.7, 0.85):
            yield Partition((RowStage(stop, share, 1, 3),
                             RowStage(count, share, 2, 3, _BORDER_LAST, _TO_BORDER)))
        for share in (0.0, 0.3, 0.5, 0.7):
            for last in sorted({0.0, share, 1.0}):
                yield Partition((RowStage(stop, share, 4, 8, server_pace=_FED),
                                 RowStage(count, last, 1, 4)))
    few = sorted({stops[k * (len(stops) - 1) // 7] for k in range(7)} - {count})
    for (first, second), (a, b, c) in product(combinations(few, 2), _STAIRS):
        yield Partition((RowStage(first, a, 4, 8, server_pace=_FED), RowStage(second, b, 2, 4),
                         RowStage(count, c, 2, 2)))
    if count <= SMALL:
        yield from _coarse_partitions(few, count)


def _coarse_partitions(stops: Sequence[int], count: int) -> Iterator[Partition]:
    """Return all pairs of shares: where few rows make a border jump, annealing passes them by."""
    for stop, first, last, bands in product(stops, _COARSE, _COARSE, (1, 2)):
        yield Partition((RowStage(stop, first, 1, bands), RowStage(count, last, bands, 1)))


def placements(cost: CostModel, link: LinkModel) -> Iterator[Partition]:
    """Return what minimum cuts find if values may go back and forth, whole and in bands."""
    for hidden in HIDDEN:
        whole = min_cut(cost, link, returns=True, hidden=hidden)
        yield whole
        for bands in (4, 8):
            yield replace(whole, stages=tuple(
                replace(s, robot_bands=bands, server_bands=bands, server_pace=_FED)
                if s.stop - start > 1 else s
                for start, s in zip((0, *(s.stop for s in whole.stages)), whole.stages)))


def _score(judged: Judged) -> float:
    return judged.price * (1 + FINENESS * pieces(judged.partition))


def _different(found: Iterable[Judged], count: int) -> list[Judged]:
    """Return the best few that have other stages, or other shares, than those before them."""
    chosen: list[Judged] = []
    for judged in sorted(found, key=_score):
        if len(chosen) < count and not any(
                _alike(judged.partition, other.partition) for other in chosen):
            chosen.append(judged)
    return chosen


def _alike(one: Partition, other: Partition) -> bool:
    return len(one.stages) == len(other.stages) and all(
        a.stop == b.stop and abs(a.share - b.share) <= 0.15
        for a, b in zip(one.stages, other.stages))


@dataclass
class _Annealing:
    """Random changes, of which worse ones are taken the less often the colder it is."""

    trial: Trial
    rng: Random
    stops: Sequence[int]

    def run(self, start: Judged, hot: float, cold: float, steps: int) -> Judged:
        """Return the best found in so many steps."""
        now = best = start
        for step in range(steps):
            if self.trial.over:
                break
            stages = propose(self.rng, now.partition.stages, self.stops)
            if stages == now.partition.stages:
                continue
            new = self.trial(replace(now.partition, stages=stages))
            heat = hot * (cold / hot) ** (step / steps)
            if self._takes(_score(new) / _score(now) - 1, heat):
                now = new
                best = min(best, now, key=_score)
        return best

    def _takes(self, loss: float, heat: float) -> bool:
        return loss < 0 or self.rng.random() < math.exp(-loss / heat)
