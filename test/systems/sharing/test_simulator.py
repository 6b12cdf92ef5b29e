# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The simulator against hand-computed cases, and as judge of every strategy."""
from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st
import pytest
from synthetic import flat_cost, random_split_graph
import torch

from intradp_ros.link.chunk_size import chunk_bytes_at
from intradp_ros.profiling.profile import TransportCost
from intradp_ros.schedule.cost import LinkModel, WireCost
from intradp_ros.schedule.schedule import Receive, ROBOT, Schedule, SERVER, SIDES
from intradp_ros.split.regions.region import Region
from intradp_ros.systems.sharing.baselines.simple import best_cut, best_local, best_offload
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import make_book
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.judge.simulator import DeadlockError, simulate
from intradp_ros.systems.sharing.judge.tables import link_cost_of
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import (
    cut,
    local,
    offload,
    Partition,
    RowStage,
)
from intradp_ros.systems.sharing.strategies import (
    SHARED,
    STRATEGIES,
)
from intradp_ros.wire.codecs.names import DELTA, ENCODINGS, NONE
from intradp_ros.wire.cutting import chunk_count, cut_into_chunks


def test_local_takes_the_time_of_the_operators() -> None:
    split = random_split_graph(5, operators=1)
    result = simulate(lower(split, local(1)), flat_cost(split), LinkModel.symmetric(10))
    assert result.latency == pytest.approx(4e-3 * 1.1)
    assert result.bytes_up == result.bytes_down == 0


def test_offload_takes_input_compute_and_output_one_after_another() -> None:
    split = random_split_graph(5, operators=1)
    link = LinkModel(up=1e4, down=2e4, delay=2e-3, overhead=1e-3)
    result = simulate(lower(split, offload(1)), flat_cost(split), link)
    up, down = (split.graph.values[v].nbytes for v in (0, 1))
    assert (result.bytes_up, result.bytes_down) == (up, down)
    assert result.latency == pytest.approx(up / 1e4 + 1e-3 * 1.1 + down / 2e4 + 2 * 3e-3)


def test_moving_bytes_takes_from_operators_unless_the_device_waits_anyway() -> None:
    split = random_split_graph(5, operators=1)
    free, moving = flat_cost(split), TransportCost(1e-4, 1e-6, 2e-4, 2e-6)
    slow = LinkModel(up=1e4, down=2e4, delay=2e-3, overhead=1e-3)
    waiting = simulate(lower(split, offload(1)), free, slow)
    for side in (ROBOT, SERVER):
        crowded = replace(free, moving={side: moving})
        assert simulate(lower(split, offload(1)), crowded, slow) == waiting
    fast, halves = LinkModel(1e12, 1e12), lower(split, Partition((RowStage(1, 0.5),)))
    computing = simulate(halves, free, fast)
    slower = simulate(halves, replace(free, moving={ROBOT: moving}), fast)
    assert slower.busy == computing.busy
    assert slower.latency == pytest.approx(
        computing.latency + 3e-4 + 1e-6 * slower.bytes_up + 2e-6 * slower.bytes_down)
    assert slower.slowed[ROBOT] == pytest.approx(slower.latency - computing.latency)
    assert slower.slowed[SERVER] == 0.0


def test_encoding_takes_from_operators_where_no_core_is_free() -> None:
    split = random_split_graph(5, operators=1)
    free = replace(flat_cost(split), wire={
        (v, NONE): WireCost(0.5, dict.fromkeys(SIDES, 1e-6), dict.fromkeys(SIDES, 2e-6))
        for v in range(2)})
    halves, fast = lower(split, Partition((RowStage(1, 0.5),))), LinkModel(1e12, 1e12)
    computing = simulate(halves, free, fast)
    slower = simulate(halves, replace(free, moving={ROBOT: TransportCost()}), fast)
    assert slower.latency == pytest.approx(
        computing.latency + 2 * (1e-6 * slower.bytes_up + 2e-6 * slower.bytes_down))


@pytest.mark.parametrize('mbps', [1, 10, 50])
@pytest.mark.parametrize('encoding', ENCODINGS)
@given(st.floats(0.01, 1), st.integers(1, 100_000))
@settings(max_examples=20)
def test_transfers_are_charged_for_the_chunks_that_they_are_cut_into(
        encoding: str, mbps: float, ratio: float, elements: int) -> None:
    dtype, drawn = torch.int32 if encoding == DELTA else torch.float32, random_split_graph(5)
    graph = replace(drawn, graph=replace(drawn.graph, values=tuple(
        replace(value, dtype=dtype) for value in drawn.graph.values)))
    cost = replace(flat_cost(graph), wire={(0, encoding): WireCost(ratio)})
    link = LinkModel.symmetric(mbps)
    charged = link_cost_of(cost, link, ((0, encoding),)).chunk[0]
    cut = list(cut_into_chunks(torch.arange(elements).remainder(2).to(dtype), session=1, epoch=1,
                               inference=1, schedule=0, transfer=0, value=0, region=Region(0, 1),
                               chunk_bytes=chunk_bytes_at(link.up), encoding=encoding,
                               ratio=ratio))
    assert len(cut) == chunk_count(elements * dtype.itemsize, int(charged))


def test_programs_that_wait_for_each_other_are_reported() -> None:
    split = random_split_graph(5)
    schedule = lower(split, offload(8))
    broken = Schedule(schedule.transfers, {ROBOT: (Receive(0),), SERVER: ()})
    with pytest.raises(DeadlockError):
        simulate(broken, flat_cost(split), LinkModel.symmetric(10))


@given(st.integers(0, 10**6), st.lists(st.floats(0, 1), min_size=1, max_size=3))
@settings(max_examples=80)
def test_the_recurrences_bound_the_simulation(seed: int, shares: list[float]) -> None:
    """Without bands both see the same programs, but the recurrences send inputs in one piece."""
    split = random_split_graph(seed)
    stops = sorted({max(1, round(8 * (i + 1) / len(shares))) for i in range(len(shares))} | {8})
    judge = Judge(flat_cost(split), LinkModel.symmetric(0.5, 1e-3))
    partition = Partition(tuple(RowStage(s, x) for s, x in zip(stops, shares * 3)))
    assert judge(partition).latency <= judge.recurrence(partition) * (1 + 1e-9)


def test_the_recurrences_are_those_of_the_paper() -> None:
    """Two stages: the robot sends the server's rows, then rows of the value between them."""
    split = random_split_graph(5, operators=1)
    cost, link = flat_cost(split), LinkModel(up=1e4, down=2e4, delay=2e-3, overhead=1e-3)
    up, down = (split.graph.values[v].nbytes for v in (0, 1))
    judge = Judge(cost, link)
    server = up / 1e4 + 3e-3 + 1.1e-3
    assert judge.recurrence(offload(1)) == pytest.approx(server + down / 2e4 + 3e-3)
    assert judge.recurrence(local(1)) == pytest.approx(4.4e-3)


@given(st.integers(0, 10**6))
@settings(max_examples=8)
def test_a_book_is_never_worse_than_the_baselines(seed: int) -> None:
    split = random_split_graph(seed, rows=40)
    cost = flat_cost(split)
    book = make_book(cost, 'd' * 64, grid=(0.05, 0.5, 5.0), delay=1e-3, overhead=1e-4)
    for mbps in book.grid:
        entries = {e.strategy: e for e in book.entries if e.mbps == mbps}
        assert set(entries) == set(STRATEGIES)
        assert entries[SHARED].predicted <= min(e.predicted for e in entries.values())
        link = LinkModel.symmetric(mbps, 1e-3, 1e-4)
        for entry in entries.values():
            again = simulate(lower(split, entry.partition), cost, link).latency
            assert again == pytest.approx(entry.predicted)
    assert ScheduleBook.from_json(book.to_json()) == book


@given(st.integers(0, 10**6), st.floats(0.01, 50))
@settings(max_examples=20)
def test_the_best_cut_is_the_best_of_all_cuts(seed: int, mbps: float) -> None:
    split = random_split_graph(seed)
    cost, link = flat_cost(split), LinkModel.symmetric(mbps, 1e-3, 1e-4)
    every = min(simulate(lower(split, cut(8, k)), cost, link).latency for k in range(1, 8))
    assert best_cut(cost, link, checked=7).latency == pytest.approx(every)
    assert best_cut(cost, link).latency <= every * 1.1
    assert best_local(cost, link).latency > 0
    assert best_offload(cost, link).latency > 0


@pytest.mark.parametrize('text', ['', '[]', '{}', '{"format": "other"}', 'null', '3', '\x00'])
def test_what_is_no_book_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match='not a schedule table'):
        ScheduleBook.from_json(text)


@pytest.mark.parametrize('stages', [
    (), (RowStage(8, 1.5),), (RowStage(8, float('nan')),), (RowStage(3, 0.5),),
    (RowStage(9, 0.5),),
    (RowStage(4, 0.5), RowStage(4, 0.5), RowStage(8, 0.5)), (RowStage(8, 0.5, 0, 1),),
    (RowStage(8, 0.5, 1, 10**9),)])
def test_impossible_partitions_are_refused(stages: tuple[RowStage, ...]) -> None:
    with pytest.raises(ValueError):
        lower(random_split_graph(0), Partition(stages))
