# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""No schedule is faster than the lower bound, and some are as fast."""
from __future__ import annotations

from dataclasses import replace
from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import random_split_graph
import torch
from torch import nn

from intradp_ros.graph.capture import capture
from intradp_ros.profiling.profile import TransportCost
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import Compute, ROBOT, Schedule, SERVER, SIDES
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import RowMap
from intradp_ros.split.split_graph import split_graph
from intradp_ros.systems.sharing.judge.rows_needed import (
    fewest_reads,
    lines_between,
    lines_under,
    needed_rows,
    operator_rows,
)
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.barriers import find_barriers
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import (
    local,
    offload,
    Pace,
    Partition,
    RowStage,
)
from intradp_ros.systems.sharing.partition.reach import Facts, most_rows, row_prices
from intradp_ros.systems.sharing.search.bounds import lower_bound, Relaxation


def random_cost(split: SplitGraph, seed: int, server: float) -> CostModel:
    """Tables with a fixed part, and some that are nothing but ascending."""
    random = np.random.default_rng(seed)

    def table(rows: int, scale: float) -> np.ndarray:
        if random.random() < 0.3:
            seconds = np.sort(random.random(rows + 1))
        else:
            seconds = random.random() * (random.random() / 2 + np.arange(rows + 1) / rows)
        seconds[0] = 0
        return scale * seconds
    return CostModel(split, {
        side: tuple(table(op.rows, scale) for op in split.operators)
        for side, scale in ((ROBOT, 4e-3), (SERVER, server))})


def latency(cost: CostModel, link: LinkModel, partition: Partition) -> float:
    return simulate(lower(cost.split, partition), cost, link).latency


@st.composite
def partitions(draw: st.DrawFn, count: int) -> Partition:
    stops = sorted(draw(st.sets(st.integers(1, count), max_size=4)) | {count})
    share = st.one_of(st.sampled_from([0.0, 1.0]), st.floats(0, 1))
    bands = st.sampled_from([1, 1, 2, 4])
    pace = st.builds(Pace, st.sampled_from([0.5, 1.0, 2.0]), st.booleans(), st.booleans())
    return Partition(tuple(
        RowStage(stop, draw(share), draw(bands), draw(bands), draw(pace), draw(pace))
        for stop in stops))


@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([6, 24, 40]),
       st.sampled_from([0.0, 1e-3, 4e-3]), st.floats(0.02, 20), st.floats(0.2, 1),
       st.sampled_from([0.0, 1e-3]), st.booleans(), st.data())
@settings(max_examples=120)
def test_no_schedule_is_below_the_bound(seed: int, count: int, rows: int, server: float,
                                        mbps: float, up: float, delay: float, shared: bool,
                                        data: st.DataObject) -> None:
    cost = random_cost(random_split_graph(seed, count, rows), seed, server)
    link = LinkModel(up * mbps * 125e3, mbps * 125e3, delay, delay / 10, shared)
    bound = lower_bound(cost, link)
    tried = [data.draw(partitions(count)) for _ in range(8)]
    crowded = replace(cost, moving=dict.fromkeys(SIDES, TransportCost(1e-4, 1e-6, 1e-4, 1e-6)))
    for partition in (local(count), offload(count), *tried):
        assert latency(cost, link, partition) >= bound
        assert latency(crowded, link, partition) >= bound


@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([6, 24, 40]),
       st.sampled_from([0.0, 1e-3, 4e-3]), st.floats(0.02, 200), st.floats(0.2, 1),
       st.sampled_from([0.0, 1e-4]), st.booleans(), st.data())
@settings(max_examples=80)
def test_no_schedule_does_what_is_out_of_reach_in_its_time(
        seed: int, count: int, rows: int, server: float, mbps: float, up: float, delay: float,
        shared: bool, data: st.DataObject) -> None:
    cost = random_cost(random_split_graph(seed, count, rows), seed, server)
    link = LinkModel(up * mbps * 125e3, mbps * 125e3, delay, delay / 10, shared)
    relaxation, facts = Relaxation(cost), Facts(cost)
    for _ in range(4):
        schedule = lower(cost.split, data.draw(partitions(count)))
        played = simulate(schedule, cost, link)
        if not played.bytes_down:
            continue
        within = played.latency * (1 + 1e-6)
        assert relaxation.least(link, within) <= within
        for side in SIDES:
            assert (computed(schedule, side, count) <= most_rows(facts, side, link, within)).all()


@given(st.integers(0, 10**6), st.integers(1, 12), st.sampled_from([24, 40]),
       st.sampled_from([1e-3, 4e-3]), st.floats(0.02, 200), st.floats(0.05, 1),
       st.sampled_from([4, 10, 20]))
@settings(max_examples=50)
def test_rows_in_blocks_are_in_reach_where_they_are_one_by_one(
        seed: int, count: int, rows: int, server: float, mbps: float, part: float, reported: int,
) -> None:
    facts = Facts(random_cost(random_split_graph(seed, count, rows), seed, server))
    link = LinkModel.symmetric(mbps, 1e-4, 1e-5)
    for side in SIDES:
        exact = most_rows(facts, side, link, part * facts.alone)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr('intradp_ros.systems.sharing.partition.reach._TOLD_APART', reported)
            assert (most_rows(facts, side, link, part * facts.alone) >= exact).all()


def computed(schedule: Schedule, side: str, operators: int) -> np.ndarray:
    """Return how many rows of each operator a side computes; none twice."""
    rows = np.zeros(operators, dtype=int)
    for step in schedule.programs[side]:
        if isinstance(step, Compute):
            rows[step.operator] += step.region.rows
    return rows


def windows(layers: int, rows: int) -> SplitGraph:
    """Return windows of 3 rows, layer by layer."""
    network = nn.Sequential(*(nn.Conv2d(4, 4, 3, padding=1) for _ in range(layers)))
    return split_graph(capture(network.eval(), (torch.zeros(1, 4, rows, rows),)))


def test_halos_are_in_the_bound() -> None:
    """As a mixture of both, a third of the time would do; but rows need ever more rows."""
    cost = CostModel(windows(10, 12), {
        side: tuple(np.arange(13) / 12 * seconds for _ in range(10))
        for side, seconds in ((ROBOT, 1.0), (SERVER, 0.2))})
    relaxation, link = Relaxation(cost), LinkModel.symmetric(12 * 12 * 16 / 125e3 / 5)
    assert relaxation.least(link, 1e3) < 3.4
    assert 4.6 < relaxation.bound(link) < latency(cost, link, local(10))


def test_what_is_known_is_no_less_than_the_bound() -> None:
    cost = random_cost(random_split_graph(3, 8, 24), 3, 1e-3)
    relaxation, link = Relaxation(cost), LinkModel.symmetric(2.0, 1e-3)
    best = min(latency(cost, link, plan) for plan in (local(8), offload(8)))
    assert 0 < relaxation.bound(link, best) <= best
    assert relaxation.bound(link, best) >= relaxation.least(link, 1e3) * (1 - 1e-4)


@given(st.integers(0, 10**6))
@settings(max_examples=20)
def test_without_a_link_the_robot_alone_is_optimal(seed: int) -> None:
    split = random_split_graph(seed)
    cost = CostModel(split, {side: tuple(np.arange(op.rows + 1) * 1e-3 for op in split.operators)
                             for side in (ROBOT, SERVER)})
    link = LinkModel.symmetric(1e-6)
    needed = needed_rows(split)
    rows = sum(operator_rows(split, needed, op.operator.id).sum() for op in split.operators)
    bound = lower_bound(cost, link)
    assert bound == pytest.approx(1e-3 * rows, rel=1e-3)
    assert bound <= latency(cost, link, local(len(split.operators)))


class Sum(nn.Module):
    """A value, and what is made of it row by row or comes with it, added."""

    def __init__(self) -> None:
        super().__init__()
        self.row = nn.Conv2d(4, 4, 1)

    def forward(self, x: torch.Tensor, other: torch.Tensor | None = None) -> torch.Tensor:
        return x + (self.row(x) if other is None else other)


@pytest.mark.parametrize(('inputs', 'rows'), [(1, 4), (2, 8)])
def test_both_terms_of_a_sum_cross_where_the_server_is_slow_to_make_one(
        inputs: int, rows: int) -> None:
    """In eight seconds, at one for each row; of two inputs, the bound is that of the dearest."""
    split = split_graph(capture(Sum().eval(), (torch.zeros(1, 4, 8, 8),) * inputs))
    adding, slow = len(split.operators) - 1, np.arange(9) * 1e3
    cost = CostModel(split, {side: tuple(
        slow if side == SERVER and index != adding else 0 * slow for index in range(adding + 1))
        for side in SIDES})
    link = LinkModel.symmetric(4 * 8 * 4 / 125e3)
    assert most_rows(Facts(cost), SERVER, link, 8.0)[adding] == rows


def chain(rows: int = 16) -> SplitGraph:
    """One input, one operator, one output."""
    return random_split_graph(5, operators=1, rows=rows)


def test_with_a_free_server_and_link_two_hops_are_left() -> None:
    split = chain()
    cost = CostModel(split, {side: tuple(np.arange(op.rows + 1) * seconds
                                         for op in split.operators)
                             for side, seconds in ((ROBOT, 1.0), (SERVER, 0.0))})
    link = LinkModel.symmetric(1e9, delay=2e-3, overhead=1e-3)
    assert latency(cost, link, offload(1)) == pytest.approx(6e-3, rel=1e-4)
    assert lower_bound(cost, link) == pytest.approx(6e-3, rel=1e-4)


def test_both_ways_share_the_air() -> None:
    split = random_split_graph(8, operators=6)
    cost = CostModel(split, {side: tuple(np.arange(op.rows + 1) * seconds
                                         for op in split.operators)
                             for side, seconds in ((ROBOT, 1.0), (SERVER, 0.0))})
    apart, shared = (Relaxation(cost).bound(LinkModel.symmetric(1e-3, shared=s))
                     for s in (False, True))
    assert shared > apart * 1.2


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=6),
       st.booleans())
@settings(max_examples=150)
def test_lines_are_below_every_choice_of_rows(rows: list[tuple[int, int]], ascending: bool,
                                              ) -> None:
    first = [a for a, _ in (sorted(rows) if ascending else rows)]
    last = [a + n for a, n in (sorted(rows) if ascending else rows)]
    rowmap = RowMap(first, np.maximum.accumulate(last) if ascending else last)
    reads = [set(range(a, b)) for a, b in zip(rowmap.first, rowmap.last)]
    for count in range(len(reads) + 1):
        fewest = min(len(set().union(*chosen)) for chosen in combinations(reads, count))
        for line in lines_under(rowmap):
            assert fewest >= line.slope * count + line.offset - 1e-9


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4)), min_size=1, max_size=6),
       st.booleans())
@settings(max_examples=150)
def test_no_choice_of_rows_reads_fewer(rows: list[tuple[int, int]], ascending: bool) -> None:
    first = [a for a, _ in (sorted(rows) if ascending else rows)]
    last = [a + n for a, n in (sorted(rows) if ascending else rows)]
    rowmap = RowMap(first, np.maximum.accumulate(last) if ascending else last)
    reads = [set(range(a, b)) for a, b in zip(rowmap.first, rowmap.last)]
    found = fewest_reads(rowmap)
    exact = [min(len(set().union(*chosen)) for chosen in combinations(reads, count))
             for count in range(len(reads) + 1)]
    assert (found <= exact).all()
    for low, high in combinations(range(len(exact)), 2):
        for line in lines_between(found, low, high):
            assert all(exact[k] >= line.slope * k + line.offset - 1e-9
                       for k in range(low, high + 1))


def test_fewest_rows_of_windows_count_the_halo() -> None:
    rows = np.arange(8)
    windows = RowMap(np.maximum(rows - 1, 0), np.minimum(rows + 2, 8))
    assert fewest_reads(windows).tolist() == [0, 2, 3, 4, 5, 6, 7, 8, 8]
    assert fewest_reads(RowMap(2 * rows, 2 * rows + 2)).tolist() == list(range(0, 17, 2))


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.booleans())
@settings(max_examples=50)
def test_fewest_rows_are_known_where_windows_are_plain(numbers: list[int], apart: bool) -> None:
    """Windows that share nothing, of some lengths, and rows that so many windows read alone."""
    stops = np.cumsum(numbers)
    row = np.repeat(np.arange(len(numbers)), numbers)[:9]
    rowmap = RowMap(stops - numbers, stops) if apart else RowMap(row, row + 1)
    reads = [set(range(a, b)) for a, b in zip(rowmap.first, rowmap.last)]
    assert fewest_reads(rowmap).tolist() == [
        min(len(set().union(*chosen)) for chosen in combinations(reads, count))
        for count in range(len(reads) + 1)]


def test_lines_are_tight_for_plain_maps() -> None:
    (line,) = lines_under(RowMap.identity(8))
    assert (line.slope, line.offset) == (1.0, 0.0)
    (line,) = lines_under(RowMap(2 * np.arange(8), 2 * np.arange(8) + 2))
    assert (line.slope, line.offset) == (2.0, 0.0)
    joined = RowMap.copies(np.arange(10) - 4, 6)  # the second of two values, one under the other
    assert max(line.slope * 10 + line.offset for line in lines_under(joined)) == 6


def test_one_line_rises_from_no_rows_and_one_to_all_rows() -> None:
    lines = lines_under(RowMap(np.array([0, 1, 2]), np.array([1, 2, 5])))
    assert [max(line.slope * k + line.offset for line in lines) for k in range(4)] == [0, 1, 2, 5]


def test_the_price_of_rows_is_the_least_over_all_bands() -> None:
    assert row_prices(np.array([0.0, 3.0, 4.0, 9.0])) == pytest.approx([0.0, 3.0, 2.0, 2.0])


@given(st.integers(0, 10**6), st.integers(1, 12))
@settings(max_examples=60)
def test_barriers_divide_the_operators(seed: int, count: int) -> None:
    split = random_split_graph(seed, count)
    needed = needed_rows(split)
    found = find_barriers(split, needed, np.ones(count))
    assert list(found.operators) == sorted(found.operators)
    assert (found.after < found.before).all()
    for moment, index in enumerate(found.operators, 1):
        assert found.after[index] == moment
        assert all(found.before[split.graph.producer[v]] <= moment
                   for v in found.whole[moment - 1] if v in split.graph.producer)


class Squeezing(nn.Module):
    """Two means over all rows: one that the rows are scaled by, one of the result."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = (nn.Conv2d(4, 4, 3, padding=1) for _ in range(2))
        self.gate, self.head = nn.Conv2d(4, 4, 1), nn.Linear(4, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = self.before(x)
        rows = rows * self.gate(rows.mean((2, 3), keepdim=True)).sigmoid()
        return self.head(self.after(rows).mean((2, 3)))


@pytest.mark.parametrize(('most', 'light', 'operators', 'after', 'before'), [
    (12, (), (2, 3, 4, 5, 8, 9), [0, 0, 1, 2, 3, 4, 4, 4, 5, 6], [1, 1, 2, 3, 4, 5, 5, 5, 6, 7]),
    (12, (9,), (2, 3, 4, 5, 8), [0, 0, 1, 2, 3, 4, 4, 4, 5, 5], [1, 1, 2, 3, 4, 5, 5, 5, 6, 6]),
    (2, (), (2, 8), [0, 0, 1, 1, 1, 1, 1, 1, 2, 2], [1, 1, 2, 2, 2, 2, 2, 2, 3, 3]),
    (1, (2,), (8,), [0, 0, 0, 0, 0, 0, 0, 0, 1, 1], [1, 1, 1, 1, 1, 1, 1, 1, 2, 2])])
def test_barriers_are_what_needs_all_rows_then_what_is_heavy(
        most: int, light: tuple[int, ...], operators: tuple[int, ...], after: list[int],
        before: list[int]) -> None:
    """Of window, sum, mean, gate, sigmoid, product, window, sum, mean and head."""
    split = split_graph(capture(Squeezing().eval(), (torch.zeros(1, 4, 8, 8),)))
    weight = np.ones(len(split.operators))
    weight[list(light)] = 1e-5
    found = find_barriers(split, needed_rows(split), weight, most)
    assert (found.operators, found.after.tolist(), found.before.tolist()) == (
        operators, after, before)
