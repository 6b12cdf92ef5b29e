# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Books: never worse than the baselines or below the bound, and one schedule for each rate."""
from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
import json
import math

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import flat_cost, random_split_graph

from intradp_ros.power.power_states import XAVIER_NX
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, HYSTERESIS, ScheduleBook
from intradp_ros.systems.sharing.book.make_book import (
    bandwidth_grid,
    book_of,
    GUESSES,
    plan_point,
    PlanningProblem,
    Point,
)
from intradp_ros.systems.sharing.judge.energy import energy, EnergyUnderDeadline, Weighted
from intradp_ros.systems.sharing.judge.simulator import simulate, Simulation
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import local, offload, Partition
from intradp_ros.systems.sharing.search.bounds import Relaxation
from intradp_ros.systems.sharing.search.pool import Aim, best, candidates, front
from intradp_ros.systems.sharing.strategies import (
    BASELINES,
    LOCAL,
    OFFLOAD,
    SHARED,
    STRATEGIES,
)

GRID = (0.05, 0.5, 5.0)


def cost_of(seed: int, count: int = 8) -> CostModel:
    return flat_cost(random_split_graph(seed, count, rows=40), server=5e-4)


def setting_of(seed: int) -> PlanningProblem:
    return PlanningProblem(cost_of(seed), delay=1e-3, overhead=1e-4)


def play(setting: PlanningProblem, partition: Partition, mbps: float) -> Simulation:
    return simulate(lower(setting.cost.split, partition), setting.cost, setting.link(mbps))


@given(st.integers(0, 10**6), st.sampled_from([1.0, 0.2, 8.0]))
@settings(max_examples=4)
def test_a_book_is_between_the_bound_and_the_baselines(seed: int, down_ratio: float) -> None:
    setting = replace(setting_of(seed), down_ratio=down_ratio)
    book = book_of(setting, 'd' * 64, GRID)
    assert book.down_ratio == down_ratio
    assert setting.link(2.0) == LinkModel(250e3, 250e3 * down_ratio, 1e-3, 1e-4)
    assert ScheduleBook.from_json(book.to_json()) == book
    for mbps in book.grid:
        found = {e.strategy: e for e in book.entries if e.mbps == mbps}
        assert set(found) == set(STRATEGIES)
        assert found[SHARED].predicted <= min(found[name].predicted for name in BASELINES)
        bound = book.bound(mbps)
        assert bound is not None and bound <= found[SHARED].predicted
        for entry in found.values():
            played = play(setting, entry.partition, mbps)
            assert played.latency == pytest.approx(entry.predicted)
            assert energy(XAVIER_NX, played, setting.link(mbps)) == pytest.approx(entry.joules)


def test_every_rate_has_one_schedule_of_each_strategy() -> None:
    book = book_of(setting_of(1), 'd' * 64, bandwidth_grid(0.05, 20, 4), extra=3)
    for strategy in STRATEGIES:
        ranges = [(e.low, e.high) for e in book.entries if e.strategy == strategy]
        assert ranges[0][0] == book.grid[0] / 2 and ranges[-1][1] == math.inf
        assert all(a[1] == b[0] for a, b in zip(ranges, ranges[1:]))
        for rate in np.geomspace(book.grid[0], 100, 40):
            entry = book.entries[book.choose(rate, strategy)]
            assert entry.strategy == strategy and entry.low <= rate < entry.high


def test_points_are_added_where_schedules_change() -> None:
    setting = setting_of(1)
    coarse = book_of(setting, 'd' * 64, (0.02, 20.0))
    fine = book_of(setting, 'd' * 64, (0.02, 20.0), extra=4)
    assert coarse.grid == (0.02, 20.0) and set(coarse.grid) < set(fine.grid)
    assert len(fine.grid) <= 6
    for mbps in (0.1, 0.5, 2.0):
        ours, rough = (play(setting, book.entries[book.choose(mbps)].partition, mbps).latency
                       for book in (fine, coarse))
        assert ours <= rough * 1.05


def test_a_faster_schedule_is_used_from_where_it_is_expected_to_win() -> None:
    setting = setting_of(2)
    book = book_of(setting, 'd' * 64, (0.1, 10.0))
    slow, fast = (e for e in book.entries if e.strategy == SHARED)
    assert slow.partition != fast.partition
    slow_wins, neither, fast_wins = (
        [sum(weight * play(setting, e.partition, factor * mbps).latency
             for factor, weight in GUESSES) for e in (slow, fast)]
        for mbps in (0.8 * fast.low, fast.low, 1.25 * fast.low))
    assert slow_wins[0] < slow_wins[1] and fast_wins[1] < fast_wins[0]
    assert neither == pytest.approx(neither[::-1], rel=0.1)
    assert slow.high == fast.low


def test_points_may_be_planned_by_others() -> None:
    setting = setting_of(3)
    asked: list[float] = []

    def plan(grid):
        for mbps in grid:
            asked.append(mbps)
            yield plan_point(setting, Relaxation(setting.cost), mbps)
    assert book_of(setting, 'd' * 64, GRID, plan=plan) == book_of(setting, 'd' * 64, GRID)
    assert asked == list(GRID)


def test_points_are_sought_again_from_the_best_of_all() -> None:
    setting = setting_of(1)

    def plan(grid: Iterable[float]) -> Iterator[Point]:
        for mbps in grid:  # searches that ended with what is simple
            point = plan_point(setting, Relaxation(setting.cost), mbps)
            simple = best([point.found[name] for name in BASELINES])
            yield replace(point, found={**point.found, SHARED: simple})
    steps: list[tuple[int, int]] = []
    book = book_of(setting, 'd' * 64, GRID, plan=plan,
                   progress=lambda done, total: steps.append((done, total)))
    usual = book_of(setting, 'd' * 64, GRID)
    taken, searched = ([e.predicted for e in made.entries if e.strategy == SHARED]
                       for made in (book, usual))
    simple = [min(e.predicted for e in book.entries if e.mbps == mbps and e.strategy in BASELINES)
              for mbps in GRID]
    assert any(a < 0.9 * b for a, b in zip(taken, simple))
    assert all(a < 1.1 * b for a, b in zip(taken, searched))
    assert steps == [(k, 2 * len(GRID)) for k in range(1, 2 * len(GRID) + 1)]


def hand_made() -> ScheduleBook:
    entries = tuple(
        Entry(mbps, strategy, 0.1, make(8), 1.0, low, high)
        for mbps, low, high in ((10.0, 5.0, 30.0), (50.0, 30.0, math.inf))
        for strategy, make in ((LOCAL, local), (OFFLOAD, offload)))
    return ScheduleBook('d' * 64, 2, 0.0, 0.0, entries)


def test_a_schedule_is_kept_until_the_rate_has_left_its_range_clearly() -> None:
    book = hand_made()
    slow, fast = (book.choose(mbps, OFFLOAD) for mbps in (10, 50))
    assert slow != fast
    assert book.choose(31, OFFLOAD) == fast and book.choose(31, OFFLOAD, slow) == slow
    assert book.choose(30 * HYSTERESIS * 1.01, OFFLOAD, slow) == fast
    assert book.choose(29, OFFLOAD) == slow and book.choose(29, OFFLOAD, fast) == fast
    assert book.choose(30 / HYSTERESIS * 0.99, OFFLOAD, fast) == slow


def test_what_to_expect_between_the_points_of_the_grid() -> None:
    part = offload(3)
    book = ScheduleBook('digest', 2, 0.0, 0.0, tuple(
        Entry(mbps, strategy, seconds, part) for strategy, mbps, seconds in (
            (OFFLOAD, 40.0, 0.1), (OFFLOAD, 10.0, 0.4), (SHARED, 10.0, 0.3), (SHARED, 40.0, 0.1))))
    assert book.expected(20.0, OFFLOAD) == pytest.approx(0.2)  # bytes over the rate
    assert book.expected(10.0) == pytest.approx(0.3)
    assert (book.expected(1.0), book.expected(900.0)) == pytest.approx((0.3, 0.1))
    with pytest.raises(ValueError, match='no strategy'):
        book.expected(20.0, LOCAL)


def test_far_below_the_grid_everything_stays_on_the_robot() -> None:
    book = hand_made()
    alone = book.choose(4.9, OFFLOAD)
    assert book.entries[alone].strategy == LOCAL
    assert book.entries[book.choose(5.1, OFFLOAD)].strategy == OFFLOAD
    assert book.entries[book.choose(5.1, OFFLOAD, alone)].strategy == LOCAL
    assert book.entries[book.choose(5 * HYSTERESIS * 1.01, OFFLOAD, alone)].strategy == OFFLOAD
    assert book.entries[book.choose(0.0, OFFLOAD)].strategy == LOCAL


@pytest.mark.parametrize('previous', [-1, 99, None])
def test_an_unknown_schedule_does_not_matter(previous: int | None) -> None:
    assert hand_made().choose(31, OFFLOAD, previous) == hand_made().choose(31, OFFLOAD)


@pytest.mark.parametrize(('change', 'cause'), [
    ({'format': 'intradp-schedule-book/1'}, 'plan again'), ({'down_ratio': 0}, 'ratio'),
    ({'bounds': [[0, 1]]}, 'bounds'), ({'bounds': [[1, -1]]}, 'bounds'),
    ({'bounds': [[1.1e6, 1]]}, 'bounds'), ({'bounds': [[1, 1.1e6]]}, 'bounds'),
    ({'bounds': 3}, ''),
    ({'low': 60.0}, 'impossible'), ({'high': 5.0}, 'impossible'), ({'joules': -1}, 'impossible'),
    ({'predicted': math.nan}, 'impossible'), ({'mbps': None}, '')])
def test_damaged_and_old_books_are_refused(change: dict[str, object], cause: str) -> None:
    data = json.loads(hand_made().to_json())
    target = data if set(change) <= set(data) else data['entries'][2]
    target.update(change)
    with pytest.raises(ValueError, match=f'not a schedule table: .*{cause}'):
        ScheduleBook.from_json(json.dumps(data))


def test_books_that_call_the_shared_schedules_loss_are_read() -> None:
    book = hand_made()
    book = replace(book, entries=tuple(
        replace(e, strategy=SHARED) if e.strategy == OFFLOAD else e for e in book.entries))
    of_before = book.to_json().replace('"shared"', '"loss"')
    assert of_before != book.to_json() and ScheduleBook.from_json(of_before) == book


@given(st.integers(0, 10**6), st.floats(0.05, 20))
@settings(max_examples=4)
def test_for_energy_no_baseline_in_time_is_more_frugal(seed: int, mbps: float) -> None:
    cost, link = cost_of(seed), LinkModel.symmetric(mbps, 1e-3, 1e-4)
    alone = play(setting_of(seed), local(8), mbps).latency
    found = candidates(cost, link, Aim(EnergyUnderDeadline(XAVIER_NX, alone), deadline=alone))
    ours = found[SHARED]
    assert ours.played.latency <= alone
    assert all(ours.joules <= found[name].joules for name in BASELINES
               if found[name].played.latency <= alone)


def test_a_weight_trades_seconds_for_joules() -> None:
    cost, link = cost_of(4), LinkModel.symmetric(0.3, 1e-3, 1e-4)
    plain, frugal = (candidates(cost, link, aim)[SHARED] for aim in (
        Aim(), Aim(Weighted(XAVIER_NX, 10.0))))
    assert plain.played.latency <= frugal.played.latency
    assert frugal.joules <= plain.joules


def test_the_front_has_nothing_that_is_beaten_in_both() -> None:
    cost, link = cost_of(4), LinkModel.symmetric(0.3, 1e-3, 1e-4)
    known = candidates(cost, link, Aim())
    found = front(cost, link, Aim(), known)
    prices = [(c.played.latency, c.joules) for c in found]
    assert prices == sorted(prices) and len(prices) > 1
    assert [j for _, j in prices] == sorted((j for _, j in prices), reverse=True)
    for candidate in known.values():
        assert any(latency <= candidate.played.latency and joules <= candidate.joules
                   for latency, joules in prices)


def test_the_radio_costs_what_the_profile_says() -> None:
    played = Simulation(1.0, {ROBOT: 0.5, SERVER: 0.0}, 1000, 4000)
    link = LinkModel(1e4, 1e4)
    assert energy(XAVIER_NX, played, link) == pytest.approx(
        4.04 + 0.5 * (13.35 - 4.04) + 0.5 * 0.21)
    silent = replace(XAVIER_NX, receive=4.04)
    assert energy(silent, played, link) == pytest.approx(4.04 + 0.5 * 9.31 + 0.1 * 0.21)
    late = EnergyUnderDeadline(XAVIER_NX, 0.9)
    assert late(played, link) > 1e5 > EnergyUnderDeadline(XAVIER_NX, 1.0)(played, link)
