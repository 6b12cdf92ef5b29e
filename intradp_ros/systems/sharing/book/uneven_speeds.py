# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Schedules for devices that became slower or faster than profiled, but not alike.

Other programs, heat and batteries change what a device takes by half within
minutes.  Where both devices change alike, all is as on a link that is so many
times as fast.  Where one of them does, a schedule that kept both at work all
the time no longer does; one that moves the border between them does again.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel
from intradp_ros.systems.sharing.book.catch_up_curve import at_ratio
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.search.pool import Evaluator

#: How many times as long the robot takes, compared with the server, as profiled.
RATIOS = (0.5, 0.7, 1.0, 1.4, 2.0, 2.8)
#: At so many bandwidths of a book schedules are sought for each ratio.
RATES = 4
#: Schedules are kept until all conditions have one that takes this much longer than the best.
TOLERANCE = 0.02
#: Schedules are sought between conditions, too, at most for so many.
MOST_BETWEEN = 30


@dataclass(frozen=True, slots=True)
class SpeedCondition:
    """The link carries `mbps` up; the robot takes `ratio` times as long, against the server."""

    ratio: float
    mbps: float

    def of(self, cost: CostModel) -> CostModel:
        """Return what operators take then."""
        return at_ratio(cost, self.ratio)


Floats = npt.NDArray[np.float64]
#: Tells what schedules take under a condition.
EvaluatorAt = Callable[[SpeedCondition], Evaluator]


def conditions(grid: Sequence[float], ratios: Sequence[float] = RATIOS) -> tuple[SpeedCondition,
                                                                                 ...]:
    """Return all ratios at some bandwidths that stand for a grid."""
    places = np.linspace(0, len(grid) - 1, RATES + 2)[1:-1].round().astype(int)
    return tuple(SpeedCondition(ratio, grid[i]) for ratio in ratios for i in dict.fromkeys(places))


def conditions_between(prices: EvaluatorAt, known: Iterable[Partition],
                       where: Sequence[SpeedCondition], ) -> tuple[SpeedCondition, ...]:
    """
    Return conditions half way between neighbours, worst first.

    They are those where the best of the `known` schedules lose more than
    `TOLERANCE` at each other's.
    """
    if not where:
        return ()
    relative = _relative(prices, list(dict.fromkeys(known)), where)
    lost: dict[SpeedCondition, float] = {}
    for a, b in _neighbours(where):
        least = min(relative[a, relative[b].argmin()], relative[b, relative[a].argmin()])
        if least > 1 + TOLERANCE:
            lost[_half_way(where[a], where[b])] = -least
    return tuple(sorted(lost, key=lambda where: lost[where])[:MOST_BETWEEN])


def _neighbours(where: Sequence[SpeedCondition]) -> Iterator[tuple[int, int]]:
    """Yield pairs that differ in one of ratio and bandwidth, with none between them."""
    for one, other in ((0, 1), (1, 0)):
        order = sorted(range(len(where)), key=lambda i: (
            astuple(where[i])[other], astuple(where[i])[one]))
        yield from ((a, b) for a, b in zip(order, order[1:])
                    if astuple(where[a])[other] == astuple(where[b])[other])


def _half_way(a: SpeedCondition, b: SpeedCondition) -> SpeedCondition:
    ratio, mbps = (math.sqrt(x * y) for x, y in zip(astuple(a), astuple(b)))
    return SpeedCondition(float(f'{ratio:.4g}'), float(f'{mbps:.4g}'))


def worth_keeping(prices: EvaluatorAt, known: Sequence[Partition], found: Iterable[Partition],
                  where: Sequence[SpeedCondition]) -> tuple[Partition, ...]:
    """
    Return the few of the schedules `found` that are needed in addition to the `known` ones.

    One after another that which wins most, until no condition loses more than
    `TOLERANCE`.
    """
    if not where:
        return ()
    known = list(dict.fromkeys(known))
    pool = list(dict.fromkeys([*known, *found]))
    relative = _relative(prices, pool, where)
    chosen = list(range(len(known)))
    while (best := relative[:, chosen].min(axis=1)).max() > 1 + TOLERANCE:
        won = np.minimum(relative, best[:, None]).sum(axis=0)
        chosen.append(int(won.argmin()))
    return tuple(pool[k] for k in chosen[len(known):])


def _relative(prices: EvaluatorAt, pool: Sequence[Partition],
              where: Sequence[SpeedCondition]) -> Floats:
    """Return by condition (rows) how many times the least price each of a pool has."""
    seconds = np.array([[price(p).price for p in pool] for price in map(prices, where)])
    found: Floats = seconds / seconds.min(axis=1, keepdims=True)
    return found
