# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Late rows in model time: the simulator says the same where none is; else little above alone."""
from __future__ import annotations

import math

import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_ros.lab.testbed.recourse_replay import Player
from intradp_ros.lab.testbed.trace_replay import Air
from intradp_ros.link.trace import constant
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.make_book import Setting
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import offload, Partition, Stage

OPERATORS, ROWS, ALONE = 4, 2000, 50e-3
BY_ROWS = Partition((Stage(2, 0.6, 2, 3), Stage(OPERATORS, 0.4, 1, 16)))


@pytest.fixture(scope='module')
def setting() -> Setting:
    split = random_split_graph(3, OPERATORS, rows=ROWS)
    return Setting(CostModel(split, {side: tuple(
        np.linspace(0, seconds, op.rows + 1) for op in split.operators)
        for side, seconds in ((ROBOT, ALONE / OPERATORS), (SERVER, ALONE / OPERATORS / 10))}),
        delay=1e-3, overhead=1e-4)


@pytest.mark.parametrize('partition', [BY_ROWS, offload(OPERATORS)])
@pytest.mark.parametrize('mbps', [0.5, 7.0, 90.0])
def test_who_is_never_late_takes_what_the_simulator_says(
        setting: Setting, partition: Partition, mbps: float) -> None:
    said = simulate(lower(setting.cost.split, partition), setting.cost, setting.link(mbps))
    assert Player(setting, partition).seconds(Air(constant(mbps)), 3.3) == pytest.approx(
        said.latency, rel=1e-6)


@pytest.mark.parametrize('partition', [BY_ROWS, offload(OPERATORS)])
def test_on_a_dead_link_it_takes_little_more_than_alone(
        setting: Setting, partition: Partition) -> None:
    player, dead = Player(setting, partition), Air(constant(1e-3))
    assert player.seconds(dead, 0.0) > 100 * ALONE
    assert player.seconds(dead, 0.0, late=0.0) < 1.2 * ALONE


def test_meeting_in_the_middle_is_faster_than_either(setting: Setting) -> None:
    """On a link that is half as fast as needed, neither waiting nor working alone is best."""
    player = Player(setting, Partition((Stage(OPERATORS, 0.4, 1, 16),)))
    ample = player.seconds(Air(constant(1e4)), 0.0)
    rates = np.geomspace(0.1, 1e3, 60)
    waits = [player.seconds(Air(constant(float(r))), 0.0) for r in rates]
    works = [player.seconds(Air(constant(float(r))), 0.0, late=1.02 * ample) for r in rates]
    alone = max(works)
    assert all(w <= 1.02 * min(a, alone) for w, a in zip(works, waits))
    assert min(w / min(a, alone) for w, a in zip(works, waits)) < 0.9
    assert player.seconds(Air(constant(1e4)), 0.0, math.inf) == ample
