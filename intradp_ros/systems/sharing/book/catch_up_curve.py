# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What a schedule takes, by the rate that comes, if the robot works on whenever it waits.

No sum of a few chains gives it, as where both sides meet depends on what each
has done by then; so it is played, once, when the book is made.
"""
from __future__ import annotations

from collections.abc import Sequence
import math

import numpy as np

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.judge.catch_up_play import CatchUpPlayer, Steady
from intradp_ros.systems.sharing.judge.lateness import AT_ONCE
from intradp_ros.systems.sharing.partition.partition import Partition

#: At how many rates curves are known, and how many times below and above a book's these go.
POINTS, BELOW, ABOVE = 18, 4.0, 2.0
#: For how many times as long the robot takes, compared with the server, they are known.
CURVE_RATIOS = (0.5, 1.0, 2.0)


def curve_rates(grid: Sequence[float]) -> tuple[float, ...]:
    """Return the rates (Mbit/s) of the curves in a book with these bandwidths, ascending."""
    return tuple(map(float, np.geomspace(grid[0] / BELOW, grid[-1] * ABOVE, POINTS)))


def at_ratio(cost: CostModel, ratio: float) -> CostModel:
    """
    Return what operators take if the robot takes `ratio` times as long, against the server.

    Half of that (in the logarithm) is the robot's doing, half the server's.
    """
    root = math.sqrt(ratio)
    return cost.scaled({ROBOT: root, SERVER: 1 / root})


def catch_up_curve(cost: CostModel, link: LinkModel, partition: Partition,
                   rates: Sequence[float]) -> tuple[float, ...]:
    """
    Return the seconds of a schedule at each of `CURVE_RATIOS`, there at each rate.

    Of `link` all counts but the rate.
    """
    return tuple(seconds for ratio in CURVE_RATIOS
                 for seconds in _curve(CatchUpPlayer(at_ratio(cost, ratio), link, partition),
                                       rates))


def _curve(player: CatchUpPlayer, rates: Sequence[float]) -> tuple[float, ...]:
    if not player.crosses:
        return (_rounded(player.seconds(Steady(1.0), 0.0)),) * len(rates)
    return tuple(_rounded(player.seconds(Steady(mbps), 0.0, AT_ONCE)) for mbps in rates)


def _rounded(seconds: float) -> float:
    return float(f'{seconds:.5g}')
