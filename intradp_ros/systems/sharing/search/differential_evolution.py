# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
LOSS, the paper's local operator scheduling strategy (section 4.2), by differential evolution.

Variables: the robot's share of rows for each candidate stage, and whether
rows are exchanged where the stage ends.  They fix X_i, Y_i, M_i and N_i of
every operator (`kernels/rows.py`); the recurrences for T_robot and T_server
(`kernels/recurrence.py`) are what is minimised.  Deviations from the paper,
with the reasons, are in doc/planning.md.
"""
from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import scipy
from scipy.optimize import differential_evolution

from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.systems.sharing.judge.energy import latency, Objective
from intradp_ros.systems.sharing.judge.judge import Judge, Judged
from intradp_ros.systems.sharing.partition.crossing import crossing_bytes
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.search.refine import refine
from intradp_ros.systems.sharing.search.solving import Stop, Trial

Floats = npt.NDArray[np.float64]

#: Parts of the robot's time that each have a place where stages may end.
_PARTS = 6
#: Generations of differential evolution, and its multiplier of the count of variables.
_GENERATIONS, _POPULATION = 60, 8
#: What differential evolution calls its generator: another name since SciPy 1.15.
_RANDOM = 'rng' if tuple(map(int, scipy.__version__.split('.')[:2])) >= (1, 15) else 'seed'


def candidate_stops(cost: CostModel) -> list[int]:
    """
    Return where stages may end: few bytes cross, and the work between is alike.

    The robot's time is cut into `_PARTS` equal parts, and in each part the
    position that the fewest bytes cross is taken; places where rows must
    meet (in front of the first global operator) are always among them.
    """
    split = cost.split
    crossing = crossing_bytes(split)
    elapsed = np.cumsum([table[-1] for table in cost.seconds[ROBOT]])
    edges = np.searchsorted(elapsed, elapsed[-1] * np.arange(_PARTS + 1) / _PARTS)
    edges[-1] = len(elapsed)
    stops = {int(a + np.argmin(crossing[a:b])) + 1 for a, b in zip(edges, edges[1:]) if b > a}
    barrier = next((op.operator.id for op in split.operators if op.rows == 1), 0)
    return sorted((stops | {barrier, len(split.operators)}) - {0})


def de_search(trial: Trial, seed: int) -> Partition:
    """Solve min T_robot^N by differential evolution; deterministic for a seed."""
    stops = candidate_stops(trial.judge.cost)
    count = len(stops)

    def objective(x: Floats) -> Floats:
        return np.array([trial.recurrence(_decode(stops, column)) for column in x.T])

    result = differential_evolution(
        objective, [(0.0, 1.0)] * (2 * count - 1), vectorized=True, updating='deferred',
        popsize=_POPULATION, maxiter=_GENERATIONS, tol=1e-3, polish=False,
        callback=lambda x, convergence: trial.over,
        **{_RANDOM: np.random.default_rng(seed)})
    return _decode(stops, result.x)


def de(cost: CostModel, link: LinkModel, *, seed: int = 0, budget: int = 8000,
       objective: Objective = latency, begin: Sequence[Partition] = (),
       stop: Stop | None = None, bands: bool = True) -> Judged:
    """
    Find a partition as `Solver` says: LOSS, refined, again and again with other seeds.

    The paper's recurrences are what differential evolution minimises,
    whatever the objective; that counts where results are refined and compared.
    Without `bands` no operator's rows are cut further than the paper does.
    """
    trial = Trial(Judge(cost, link), objective, budget, stop)
    half = Partition((RowStage(len(cost.split.operators), 0.5, 1, 4 if bands else 1),))
    for partition in (*begin, half):
        refine(trial, partition, bands=bands)
    while not trial.over:
        refine(trial, de_search(trial, seed), bands=bands)
        seed += 1
    return trial.result()


def _decode(stops: Sequence[int], x: Floats) -> Partition:
    """Return the partition in which stages without an exchange are merged into the next."""
    shares, exchange = x[:len(stops)], x[len(stops):] > 0.5
    return Partition(tuple(RowStage(stop, round(float(share), 4))
                           for stop, share, ends in zip(stops, shares, (*exchange, True)) if ends))
