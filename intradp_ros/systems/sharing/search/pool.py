# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""All schedules worth a look for one bandwidth: the baselines, and what the solvers find."""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
import math

import numpy as np

from intradp_ros.power.power_states import PowerStates, XAVIER_NX
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.systems.sharing.baselines.simple import best_cut
from intradp_ros.systems.sharing.judge.energy import (
    energy,
    EnergyUnderDeadline,
    latency,
    Objective,
    pareto_front,
)
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.judge.simulator import Simulation
from intradp_ros.systems.sharing.partition.encoding_choice import assuming, best_encodings, encoded
from intradp_ros.systems.sharing.partition.partition import local, offload, Partition
from intradp_ros.systems.sharing.search.annealing import search, usual_budget
from intradp_ros.systems.sharing.strategies import CUT, DEADLINE, LOCAL, OFFLOAD, SHARED

# Partitions that are judged for each point of a front.
_FRONT_BUDGET = 1000
# Known schedules from which others are sought.
_BEGIN = 4


@dataclass(frozen=True, slots=True)
class Aim:
    """What schedules are made for: less of the objective is better."""

    objective: Objective = latency
    power: PowerStates = XAVIER_NX
    deadline: float = DEADLINE
    seed: int = 0
    lossy: str = ''


@dataclass(frozen=True, slots=True)
class Candidate:
    """A partition and what it takes on one link."""

    partition: Partition
    played: Simulation
    joules: float
    price: float


class Evaluator:
    """What partitions take on one link and what that is worth."""

    def __init__(self, cost: CostModel, link: LinkModel, aim: Aim) -> None:
        self.judge, self.aim = Judge(cost, link), aim

    def __call__(self, partition: Partition) -> Candidate:
        """Return what a partition takes."""
        played, link = self.judge(partition), self.judge.link
        return Candidate(partition, played, energy(self.aim.power, played, link),
                         self.aim.objective(played, link))


def best(candidates: Iterable[Candidate]) -> Candidate:
    """Return the candidate of least price; the faster one of equals, then the first."""
    return min(candidates, key=_rank)


def _rank(candidate: Candidate) -> tuple[float, float]:
    return candidate.price, candidate.played.latency


def candidates(cost: CostModel, link: LinkModel, aim: Aim) -> dict[str, Candidate]:
    """
    Return the schedule of every strategy for one link.

    ``shared`` is the best of all others and of what the search finds, so it is
    never worse than any of them.  Each value crosses in the encoding that is
    fastest on this link.
    """
    seeker = _Seeker(cost, link, aim)
    found = {name: seeker.judged(partition)
             for name, partition in baselines(seeker.assumed, link).items()}
    return {**found, SHARED: best([*found.values(), seeker(found.values())])}


class _Seeker:
    """Seeks schedules for one link, with each value in the encoding that is fastest on it."""

    def __init__(self, cost: CostModel, link: LinkModel, aim: Aim) -> None:
        self.price = Evaluator(cost, link, aim)
        self._encodings = best_encodings(cost, link, aim.lossy)
        self.assumed = assuming(cost, self._encodings)

    def __call__(self, begin: Iterable[Candidate], objective: Objective | None = None,
                 budget: int | None = None) -> Candidate:
        """Return what the search finds from some candidates, by default for what is aimed at."""
        aim = self.price.aim
        solved = search(self.assumed, self.price.judge.link, seed=aim.seed, budget=budget,
                        objective=objective or aim.objective,
                        begin=[replace(c.partition, encodings=()) for c in begin])
        return self.judged(solved.partition)

    def judged(self, partition: Partition) -> Candidate:
        """Return what a partition takes whose values cross so."""
        return self.price(encoded(self.assumed.split, partition, self._encodings))


def improved(cost: CostModel, link: LinkModel, aim: Aim, known: Iterable[Partition]) -> Candidate:
    """
    Return the best of some schedules and of what the search finds from the best few of them.

    Beginning with good ones, it gets a quarter of the usual budget.
    """
    seeker = _Seeker(cost, link, aim)
    first = sorted(map(seeker.price, known), key=_rank)[:_BEGIN]
    budget = usual_budget(len(cost.split.operators)) // 4
    return best([*first, seeker(first, budget=budget)])


def baselines(cost: CostModel, link: LinkModel) -> dict[str, Partition]:
    """Return the simple schedules that a robot can be asked for."""
    count = len(cost.split.operators)
    return {LOCAL: local(count), OFFLOAD: offload(count), CUT: best_cut(cost, link).partition}


def front(cost: CostModel, link: LinkModel, aim: Aim, known: Mapping[str, Candidate],
          steps: int = 6) -> list[Candidate]:
    """
    Return schedules of which none is beaten in both latency and energy, by latency.

    They are the best of the `known` ones and of what the search finds for the
    least energy, at all and within `steps` deadlines up to what that takes.
    """
    seeker, found = _Seeker(cost, link, aim), list(known.values())

    def frugal(deadline: float) -> Candidate:
        return seeker(found, EnergyUnderDeadline(aim.power, deadline), _FRONT_BUDGET)

    found.append(frugal(math.inf))
    first = min(c.played.latency for c in found)
    for deadline in np.geomspace(first, found[-1].played.latency, steps + 1)[:-1]:
        found.append(frugal(float(deadline)))
    return list(pareto_front(found, lambda c: (c.played.latency, c.joules)))
