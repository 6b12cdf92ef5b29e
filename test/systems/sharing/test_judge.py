# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The fast judge says exactly what lowering and simulation say."""
from __future__ import annotations

from collections.abc import Iterator

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_ros.profiling.profile import JoinCost, TransportCost
from intradp_ros.schedule.cost import CostModel, LinkModel, WireCost
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.judge import compiled
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import local, Pace, Partition, RowStage


@st.composite
def cases(draw: st.DrawFn) -> tuple[CostModel, LinkModel, Partition]:
    """Draw any graph, costs, link and partition."""
    split = random_split_graph(draw(st.integers(0, 10**6)), draw(st.integers(1, 10)),
                               folds=draw(st.sampled_from([0.0, 0.3])))
    costs = np.random.default_rng(draw(st.integers(0, 10**6)))
    seconds = {side: tuple(np.r_[0.0, np.sort(costs.random(op.rows))] * 1e-3
                           for op in split.operators) for side in (ROBOT, SERVER)}
    wire = {(0, 'zstd'): WireCost(0.4, {ROBOT: 1e-6, SERVER: 2e-6}, {ROBOT: 3e-6, SERVER: 4e-6})}
    rate = st.sampled_from([1e3, 1e5, 1e7])
    link = LinkModel(draw(rate), draw(rate), draw(st.sampled_from([0.0, 1e-3])), 1e-5,
                     draw(st.booleans()))
    count = len(split.operators)
    bands, share = st.integers(1, 6), st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    pace = st.builds(Pace, st.sampled_from([1.0, 0.5, 3.0]), st.booleans(), st.booleans())
    stops = sorted(draw(st.sets(st.integers(1, count), max_size=4)) | {count})
    stages = tuple(RowStage(stop, draw(share), draw(bands), draw(bands), draw(pace), draw(pace))
                   for stop in stops)
    encodings = draw(st.sampled_from([(), ((0, 'zstd'),)]))
    moving = draw(st.dictionaries(st.sampled_from([ROBOT, SERVER]), st.just(
        TransportCost(1e-4, 2e-8, 3e-4, 4e-8))))
    joining = draw(st.dictionaries(st.sampled_from([ROBOT, SERVER]), st.just(
        JoinCost(1e-4, 1e-6))))
    return CostModel(split, seconds, wire, moving, joining), link, Partition(stages, encodings)


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let numba not be installed."""
    monkeypatch.setitem(__import__('sys').modules, 'numba', None)
    compiled.kernels.cache_clear()
    yield
    compiled.kernels.cache_clear()


@given(cases())
@settings(max_examples=150)
def test_judges_like_the_simulator(case: tuple[CostModel, LinkModel, Partition]) -> None:
    cost, link, partition = case
    assert Judge(cost, link)(partition) == simulate(lower(cost.split, partition), cost, link)


@pytest.mark.usefixtures('plain')
def test_works_without_numba(caplog: pytest.LogCaptureFixture) -> None:
    split = random_split_graph(4)
    cost = CostModel(split, {side: tuple(np.arange(op.rows + 1.0) for op in split.operators)
                             for side in (ROBOT, SERVER)})
    partition = Partition((RowStage(4, 0.7, 2, 3), RowStage(8, 0.3, 3, 2)))
    link = LinkModel.symmetric(1.0)
    judge = Judge(cost, link)
    assert 'pip install numba' in caplog.text
    assert judge(partition) == simulate(lower(split, partition), cost, link)


def test_one_judge_takes_partitions_of_any_size() -> None:
    split = random_split_graph(4)
    cost = CostModel(split, {side: tuple(np.arange(op.rows + 1.0) for op in split.operators)
                             for side in (ROBOT, SERVER)})
    judge = Judge(cost, LinkModel.symmetric(1.0))
    fine = Partition((RowStage(4, 0.7, 64, 64), RowStage(8, 0.3, 64, 64)))
    first = judge(local(8))
    assert judge(fine) == simulate(lower(split, fine), cost, judge.link)
    assert judge(local(8)) == first
    assert judge.count == 3
