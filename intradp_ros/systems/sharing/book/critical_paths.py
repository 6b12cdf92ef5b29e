# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What schedules take on devices of other speeds and at other rates, without playing them again.

A schedule ends when the longest chain of steps that wait for each other has
ended.  What such a chain takes is a sum: seconds of the robot's compute, of
the server's, of bytes on the link, and what none of these changes.  So the
latency is the largest of a few sums, each linear in the speeds and in the
inverse of the rate (a convex function: the paths of a graph whose order does
not change).  A few paths give it everywhere.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.systems.sharing.book.catch_up_curve import catch_up_curve, curve_rates
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.judge.simulator import Simulation
from intradp_ros.systems.sharing.partition.partition import Partition

Floats = npt.NDArray[np.float64]


class Path(NamedTuple):
    """Seconds of one chain: of both devices' compute, of a link of 1 Mbit/s, and fixed ones."""

    robot: float
    server: float
    link: float
    fixed: float

    def seconds(self, mbps: float, robot: float, server: float) -> float:
        """Return what it takes if devices take `robot` and `server` times as long."""
        return robot * self.robot + server * self.server + self.link / mbps + self.fixed


@dataclass(frozen=True, slots=True)
class LatencyModel:
    """
    What a schedule takes at any rate, on devices that take any times as long as profiled.

    `paths` are chains of which the longest counts; `busy` the seconds in
    which robot and server compute, as profiled, and by which that is slowed
    for bytes that are moved meanwhile.  `catch_up` are its seconds
    if the robot works on whenever it waits, for each of the `CURVE_RATIOS` at
    each of the rates of the book's curves; empty if that is not known.
    `crossing` are the seconds in which a link of 1 Mbit/s up is busy, up and
    down, with values as encoded.
    """

    paths: tuple[Path, ...]
    busy: tuple[float, float]
    catch_up: tuple[float, ...] = ()
    crossing: tuple[float, float] = (0.0, 0.0)

    def seconds(self, mbps: float, robot: float = 1.0, server: float = 1.0) -> float:
        """Return seconds at a rate up, on devices that take so many times as long."""
        return max(path.seconds(mbps, robot, server) for path in self.paths)


#: How many times as long devices take where paths are looked for (robot, server).
FACTORS = ((1.0, 1.0), (1.0, 2.0), (1.0, 4.0), (0.5, 4.0), (2.0, 1.0), (4.0, 1.0), (4.0, 0.5))
#: Rates at which they are looked for, and how far beyond the grid these go.
_RATES, _BEYOND = 8, 2.0
_STEP = 1e-4  # of a factor, by which slopes are measured
_CLOSE = 0.003  # paths that describe everything this well are enough
_ABOVE = 1.01  # a slope from a place where paths change may be above the truth: it is none
MAX_PATHS = 8


def anywhere(cost: CostModel, link: Callable[[float], LinkModel],
             partitions: Sequence[Partition],
             grid: Sequence[float]) -> dict[Partition, LatencyModel]:
    """
    Return what some partitions take anywhere, by slopes of what the exact judge says.

    `link` makes the link of a rate in Mbit/s; `grid` are the rates of the book.
    """
    def judged(place: Floats) -> Floats:
        robot, server, inverse = map(float, place)
        judge = Judge(cost.scaled({ROBOT: robot, SERVER: server}), link(1 / inverse))
        return np.array([judge(partition).latency for partition in partitions])

    rates = np.geomspace(grid[0] / _BEYOND, grid[-1] * _BEYOND, _RATES)
    places = [(robot, server, 1 / mbps) for robot, server in FACTORS for mbps in rates]
    tangents = np.array([_tangents(judged, np.array(place)) for place in places])
    known, crossing = np.array([(*p, 1.0) for p in places]), Judge(cost, link(1.0))
    curves, middle = curve_rates(grid), link(float(np.sqrt(grid[0] * grid[-1])))
    computing = Judge(cost, middle)
    return {partition: LatencyModel(
        _chosen(known, tangents[:, k]), _computing(computing(partition)),
        catch_up_curve(cost, middle, partition, curves), _of_both(crossing(partition).sending))
            for k, partition in enumerate(partitions)}


def _computing(played: Simulation) -> tuple[float, float]:
    return _of_both({side: played.busy[side] + played.slowed[side] for side in SIDES})


def _of_both(seconds: Mapping[str, float]) -> tuple[float, float]:
    return seconds[ROBOT], seconds[SERVER]


def _tangents(judged: Callable[[Floats], Floats], place: Floats) -> Floats:
    """Return by partition the slopes in robot's and server's factor and inverse rate, and rest."""
    here = judged(place)
    slopes = np.array([(judged(moved) - here) / (_STEP * place[k])
                       for k, moved in enumerate(_moved(place))])
    found: Floats = np.vstack([slopes, here - place @ slopes]).T
    return found


def _moved(place: Floats) -> Iterable[Floats]:
    """Return a place with one of its coordinates a bit larger, for each of them."""
    return place * (1 + _STEP * np.eye(len(place)))


def _chosen(places: Floats, tangents: Floats) -> tuple[Path, ...]:
    """Return the fewest of the tangents that cover all places, greedily."""
    estimated = places @ tangents.T  # what each tangent says, by place
    true = np.maximum(np.diagonal(estimated), 1e-12)
    usable = np.flatnonzero((estimated <= _ABOVE * true[:, None]).all(0))
    best, chosen = np.zeros(len(true)), list[int]()
    while len(usable) and len(chosen) < MAX_PATHS and (1 - best / true).max() > _CLOSE:
        worst = int((1 - best / true).argmax())
        chosen.append(int(usable[estimated[worst, usable].argmax()]))
        best = np.maximum(best, estimated[:, chosen[-1]])
        usable = usable[usable != chosen[-1]]
    return tuple(Path(*(float(f'{number:.6g}') for number in tangents[k])) for k in chosen)
