# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Late rows in model time: the simulator says the same where none is; else little above alone.

What is played so is kept in books as curves over the rate.
"""
from __future__ import annotations

from dataclasses import replace
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_lab.emulation.trace import constant
from intradp_lab.testbed.trace_replay import Air
from intradp_ros.profiling.profile import JoinCost
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.catch_up_curve import (
    at_ratio,
    catch_up_curve,
    curve_rates,
    CURVE_RATIOS,
    POINTS,
)
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.judge.catch_up_play import CatchUpPlayer, Steady
from intradp_ros.systems.sharing.judge.lateness import AT_ONCE, LateThreshold, NEVER_LATE
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import local, offload, Partition, RowStage

OPERATORS, ROWS, ALONE = 4, 2000, 50e-3
BY_ROWS = Partition((RowStage(2, 0.6, 2, 3), RowStage(OPERATORS, 0.4, 1, 16)))


@pytest.fixture(scope='module')
def setting() -> PlanningProblem:
    return made()


def made() -> PlanningProblem:
    split = random_split_graph(3, OPERATORS, rows=ROWS)
    return PlanningProblem(CostModel(split, {side: tuple(
        np.linspace(0, seconds, op.rows + 1) for op in split.operators)
        for side, seconds in ((ROBOT, ALONE / OPERATORS), (SERVER, ALONE / OPERATORS / 10))}),
        delay=1e-3, overhead=1e-4)


def player_of(setting: PlanningProblem, partition: Partition) -> CatchUpPlayer:
    return CatchUpPlayer(setting.cost, setting.link(8.0), partition)


@pytest.mark.parametrize('partition', [BY_ROWS, offload(OPERATORS)])
@pytest.mark.parametrize('mbps', [0.5, 7.0, 90.0])
@pytest.mark.parametrize('down_ratio', [1.0, 4.0])
def test_who_is_never_late_takes_what_the_simulator_says(
        setting: PlanningProblem, partition: Partition, mbps: float, down_ratio: float) -> None:
    cost = replace(setting.cost, joining={ROBOT: JoinCost(2e-4, 1e-8), SERVER: JoinCost(1e-4)})
    setting = replace(setting, cost=cost, down_ratio=down_ratio)
    said = simulate(lower(setting.cost.split, partition), setting.cost, setting.link(mbps))
    player = player_of(setting, partition)
    for link in (Air(constant(mbps)), Steady(mbps)):
        assert player.seconds(link, 3.3) == pytest.approx(said.latency, rel=1e-6)


@pytest.mark.parametrize('partition', [BY_ROWS, offload(OPERATORS)])
def test_on_a_dead_link_it_takes_little_more_than_alone(
        setting: PlanningProblem, partition: Partition) -> None:
    player, dead = player_of(setting, partition), Air(constant(1e-3))
    assert player.seconds(dead, 0.0) > 100 * ALONE
    assert player.seconds(dead, 0.0, LateThreshold(0.0, 0.0)) < 1.2 * ALONE


def test_meeting_in_the_middle_is_faster_than_either(setting: PlanningProblem) -> None:
    """On a link that is half as fast as needed, neither waiting nor working alone is best."""
    player = player_of(setting, Partition((RowStage(OPERATORS, 0.4, 1, 16),)))
    ample = player.seconds(Air(constant(1e4)), 0.0)
    rates = np.geomspace(0.1, 1e3, 60)
    late = LateThreshold(1.02 * ample, 0.0)
    waits = [player.seconds(Air(constant(float(r))), 0.0) for r in rates]
    works = [player.seconds(Air(constant(float(r))), 0.0, late) for r in rates]
    alone = max(works)
    assert all(w <= 1.02 * min(a, alone) for w, a in zip(works, waits))
    assert min(w / min(a, alone) for w, a in zip(works, waits)) < 0.9
    assert player.seconds(Air(constant(1e4)), 0.0, NEVER_LATE) == ample


def test_a_short_wait_is_none(setting: PlanningProblem) -> None:
    """Who works after a wait of its own length is as who waits; on a dead link it adds up."""
    player = player_of(setting, offload(OPERATORS))
    ample, dead = player.seconds(Steady(100.0), 0.0), Steady(1e-3)
    assert player.seconds(Steady(100.0), 0.0, LateThreshold(0.0, ample)) == ample
    at_once = player.seconds(dead, 0.0, LateThreshold(0.0, 0.0))
    assert player.seconds(dead, 0.0, LateThreshold(0.0, 0.5)) == pytest.approx(at_once + 0.5)


@settings(max_examples=20)
@given(share=st.floats(0.0, 1.0), bands=st.integers(1, 16))
def test_curves_are_what_is_played_at_once(share: float, bands: int) -> None:
    setting, rates = made(), curve_rates((1.0, 100.0))
    partition = Partition((RowStage(OPERATORS, share, 1, bands),))
    curve = catch_up_curve(setting.cost, setting.link(8.0), partition, rates)
    assert len(rates) == POINTS and len(curve) == len(CURVE_RATIOS) * POINTS
    players = [CatchUpPlayer(at_ratio(setting.cost, ratio), setting.link(8.0), partition)
               for ratio in CURVE_RATIOS]
    played = [player.seconds(Steady(mbps), 0.0, AT_ONCE) for player in players for mbps in rates]
    assert curve == pytest.approx(played, rel=1e-4)


def test_curves_go_beyond_the_bandwidths_of_a_book() -> None:
    rates = curve_rates((3.0, 20.0, 50.0))
    assert rates[0] == pytest.approx(0.75) and rates[-1] == pytest.approx(100.0)
    assert list(rates) == sorted(rates)


def test_where_nothing_crosses_the_rate_does_not_matter(setting: PlanningProblem) -> None:
    whole = local(OPERATORS)
    curve = catch_up_curve(setting.cost, setting.link(8.0), whole, (1.0, 100.0))
    alone = simulate(lower(setting.cost.split, whole), setting.cost, setting.link(8.0)).latency
    assert curve == pytest.approx(
        [alone * math.sqrt(ratio) for ratio in CURVE_RATIOS for _ in range(2)], rel=1e-4)
