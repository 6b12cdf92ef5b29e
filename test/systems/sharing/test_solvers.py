# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import random_split_graph
import torch
from torch import nn

from intradp_lab.testbed.solvers import Solver, SOLVERS
from intradp_ros.graph.capture import capture
from intradp_ros.power.power_states import XAVIER_NX
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.sharing.baselines.simple import best_cut, best_local, best_offload
from intradp_ros.systems.sharing.judge.energy import EnergyUnderDeadline
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage
from intradp_ros.systems.sharing.search.bounds import lower_bound
from intradp_ros.systems.sharing.search.moves import places


def cost_of(seed: int, operators: int = 8, rows: int = 24) -> CostModel:
    """Each operator costs a fixed part and a part by rows, as drawn."""
    split = random_split_graph(seed, operators, rows)
    drawn = np.random.default_rng(seed)
    return CostModel(split, {side: tuple(
        np.where(np.arange(op.rows + 1) > 0,
                 drawn.uniform(0.2, 2) * seconds * (0.1 + np.arange(op.rows + 1) / op.rows), 0)
        for op in split.operators) for side, seconds in ((ROBOT, 4e-3), (SERVER, 1e-3))})


LINK = LinkModel(up=5e4, down=1e5, delay=1e-3, overhead=1e-4)


@given(st.integers(0, 10**6), st.sampled_from([3e3, 5e4, 1e6]))
@settings(max_examples=10)
@pytest.mark.parametrize('solver', SOLVERS.values(), ids=SOLVERS)
def test_never_worse_than_what_it_begins_from(solver: Solver, seed: int, rate: float) -> None:
    cost, link = cost_of(seed), LinkModel(rate, rate, 1e-3, 1e-4)
    others = [best(cost, link) for best in (best_local, best_offload, best_cut)]
    found = solver(cost, link, budget=600, begin=[j.partition for j in others])
    assert found.latency <= min(j.latency for j in others)
    assert Judge(cost, link)(found.partition).latency == found.latency


@pytest.mark.parametrize('solver', SOLVERS.values(), ids=SOLVERS)
def test_the_same_seed_finds_the_same(solver: Solver) -> None:
    cost = cost_of(11)
    first, again = (solver(cost, LINK, seed=3, budget=700) for _ in range(2))
    assert first == again


@given(st.integers(0, 10**6))
@settings(max_examples=6)
def test_the_search_is_as_good_as_brute_force(seed: int) -> None:
    """All partitions of one or two stages with any share of ten, in one or two bands."""
    cost = cost_of(seed, operators=3, rows=10)
    judge = Judge(cost, LINK)
    parts = list(product([k / 10 for k in range(11)], (1, 2), (1, 2)))
    count = len(cost.split.operators)
    best = min(judge(Partition((RowStage(count, *part),))).latency for part in parts)
    for stop, first, last in product(range(1, count), parts, parts):
        stages = (RowStage(stop, *first), RowStage(count, *last))
        best = min(best, judge(Partition(stages)).latency)
    assert lower_bound(cost, LINK) <= best
    assert SOLVERS['search'](cost, LINK).latency <= best * 1.005


@pytest.mark.parametrize('solver', SOLVERS.values(), ids=SOLVERS)
def test_stops_when_asked(solver: Solver) -> None:
    found = solver(cost_of(2), LINK, budget=500)
    early = solver(cost_of(2), LINK, budget=10**9, stop=lambda: True)
    assert found.latency <= early.latency < 1.0


class TwoHeads(nn.Module):
    """Small maps that are made large for the output, as in segmentation."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Conv2d(3, 24, 3, padding=1)
        self.heads = nn.ModuleList(nn.Conv2d(24, 2, 1) for _ in range(2))

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        """Take ``1x3x48x48``, return twice ``1x2x192x192``."""
        found = self.trunk(x)
        return [nn.functional.interpolate(head(found), scale_factor=4.0) for head in self.heads]


def test_the_robot_enlarges_what_the_server_finds() -> None:
    split = split_graph(capture(TwoHeads().eval(), (torch.zeros(1, 3, 48, 48),)))
    cost = CostModel(split, {side: tuple(
        np.arange(op.rows + 1) / op.rows * (seconds if 'conv' in op.operator.name else 1e-3)
        for op in split.operators) for side, seconds in ((ROBOT, 1.0), (SERVER, 0.02))})
    link = LinkModel.symmetric(4.0)
    made = {op.operator.name: op.operator.id + 1 for op in split.operators}
    heads = [stop for name, stop in made.items() if name in ('conv2d_1', 'conv2d_2')]
    assert set(heads) <= set(places(cost))
    whole = sum(split.graph.values[v].nbytes for v in (split.graph.inputs[0], *(
        v for stop in heads for v in split.operators[stop - 1].operator.outputs if v is not None)))
    found = SOLVERS['search'](cost, link)
    assert found.latency < whole / link.up + 0.1
    assert found.latency < 0.6 * min(best(cost, link).latency for best in (
        best_local, best_offload, best_cut))


def test_the_search_saves_energy_if_that_is_asked_for() -> None:
    cost, aim = cost_of(5), EnergyUnderDeadline(XAVIER_NX, deadline=1.0)
    fast, frugal = (SOLVERS['search'](cost, LINK, **given) for given in ({}, {'objective': aim}))
    assert frugal.price == aim(Judge(cost, LINK)(frugal.partition), LINK)
    assert frugal.price <= aim(Judge(cost, LINK)(fast.partition), LINK)
