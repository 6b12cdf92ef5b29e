# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A book also has schedules for devices that are no longer as fast, to each other, as profiled."""
from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import flat_cost, random_split_graph

from intradp_ros.link.outlook import Outlook
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.choice import ChosenSchedule, Forecast, ScheduleChoice
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.book.make_book import book_of, PlanningProblem, search_at
from intradp_ros.systems.sharing.book.uneven_speeds import (
    conditions,
    conditions_between,
    MOST_BETWEEN,
    RATES,
    RATIOS,
    SpeedCondition,
    TOLERANCE,
    worth_keeping,
)
from intradp_ros.systems.sharing.judge.catch_up_play import CatchUpPlayer, Steady
from intradp_ros.systems.sharing.judge.lateness import AT_ONCE, NEVER_LATE
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.strategies import (
    SHARED,
    STRATEGIES,
    UNEVEN,
)

GRID = (2.0, 5.0, 20.0, 50.0)
SOUGHT: dict[tuple[int, SpeedCondition], Partition] = {}


@lru_cache
def setting_of(seed: int) -> PlanningProblem:
    cost = flat_cost(random_split_graph(seed, 8, rows=40), 8e-3, 4e-3)
    return PlanningProblem(cost, delay=1e-3, overhead=1e-4)


@lru_cache
def books(seed: int) -> tuple[ScheduleBook, ScheduleBook]:
    """Return a book without schedules for other speeds, and one with them."""
    setting = setting_of(seed)

    def look(known: Sequence[Partition], where: Sequence[SpeedCondition]) -> Iterable[Partition]:
        for condition in where:
            SOUGHT[seed, condition] = search_at(setting, known, condition)
            yield SOUGHT[seed, condition]
    return (book_of(setting, 'd' * 64, GRID),
            book_of(setting, 'd' * 64, GRID, ratios=RATIOS, search_many=look))


def least(setting: PlanningProblem, where: SpeedCondition, book: ScheduleBook) -> float:
    """Return the seconds of the best schedule that a book has for a condition."""
    return min(map(setting.evaluator_at(where), {e.partition for e in book.entries}),
               key=lambda c: c.price).price


def test_conditions_are_all_ratios_at_rates_of_the_grid() -> None:
    grid = tuple(float(mbps) for mbps in range(1, 21))
    found = conditions(grid)
    assert {c.ratio for c in found} == set(RATIOS) and len(found) == len(RATIOS) * RATES
    assert {c.mbps for c in found} < set(grid)
    assert len(conditions((3.0,))) == len(RATIOS)  # a rate is looked at once
    assert conditions(grid, ()) == ()


def test_a_ratio_is_half_the_robots_and_half_the_servers() -> None:
    cost = setting_of(0).cost
    uneven = SpeedCondition(4.0, 10.0).of(cost)
    for side, factor in ((ROBOT, 2.0), (SERVER, 0.5)):
        assert [table[-1] for table in uneven.seconds[side]] == pytest.approx(
            [factor * table[-1] for table in cost.seconds[side]])


@pytest.mark.parametrize('seed', [0, 1])
def test_no_condition_loses_more_than_the_tolerance(seed: int) -> None:
    setting, (_, book) = setting_of(seed), books(seed)
    sought = {where: found for (of, where), found in SOUGHT.items() if of == seed}
    assert len(sought) > len(conditions(GRID))  # some between them
    for where, found in sought.items():
        price = setting.evaluator_at(where)(found).price
        assert least(setting, where, book) <= (1 + TOLERANCE) * price * (1 + 1e-9)


@pytest.mark.parametrize('seed', [0, 1])
def test_schedules_are_sought_between_neighbours_that_cannot_stand_in_for_each_other(
        seed: int) -> None:
    setting, (even, _) = setting_of(seed), books(seed)
    where = conditions(GRID)
    known = [*(SOUGHT[seed, w] for w in where), *(e.partition for e in even.entries)]
    halves = conditions_between(setting.evaluator_at, known, where)
    ratios = sorted({w.ratio for w in where})
    rates = sorted({w.mbps for w in where})
    possible = {SpeedCondition(*(float(f'{x:.4g}') for x in pair)) for pair in (
        *((r, (a * b) ** 0.5) for r in ratios for a, b in zip(rates, rates[1:])),
        *(((a * b) ** 0.5, m) for m in rates for a, b in zip(ratios, ratios[1:])))}
    assert 0 < len(halves) <= MOST_BETWEEN and set(halves) <= possible
    assert len(set(halves)) == len(halves)
    shuffled = np.random.default_rng(seed).permutation(len(where))
    assert set(conditions_between(setting.evaluator_at, known, [where[i] for i in shuffled])) \
        == set(halves)
    assert conditions_between(setting.evaluator_at, known[:1], where) == ()  # it stands for all
    assert conditions_between(setting.evaluator_at, known, ()) == ()


def test_an_uneven_pair_gains_much() -> None:
    gains = [least(setting_of(seed), where, books(seed)[0])
             / least(setting_of(seed), where, books(seed)[1])
             for seed in (0, 1) for where in conditions(GRID, (0.5, 2.0))]
    assert max(gains) > 1.1


@pytest.mark.parametrize('seed', [0, 1])
def test_at_even_speeds_the_usual_schedule_stays_the_best(seed: int) -> None:
    setting, (_, book) = setting_of(seed), books(seed)
    assert set(book.strategies) <= {*STRATEGIES, UNEVEN}
    assert ScheduleBook.from_json(book.to_json()) == book
    for mbps in book.grid:
        price = setting.evaluator(mbps)
        best = min(price(e.partition).price for e in book.entries)
        usual = book.entries[book.choose(mbps)]
        assert usual.strategy == SHARED
        assert usual.predicted <= best * (1 + 1e-9)


def test_it_does_not_matter_who_seeks() -> None:
    assert book_of(setting_of(1), 'd' * 64, GRID, ratios=RATIOS) == books(1)[1]


def chosen(book: ScheduleBook, robot: float) -> ChosenSchedule:
    """Return what is taken at 20 Mbit/s by a robot that was seen to be so slow."""
    choice = ScheduleChoice(LatencyCalibration())
    ahead = Forecast(lambda seconds: Outlook(np.array([20 * 125e3]), np.array([1.0])),
                     lambda predicted: predicted * 1.05)
    choice.decide(1, book, 20.0, SHARED, lambda: 0.0, ahead)  # begins with the book
    for _ in range(3):
        choice.speeds.note(ROBOT, robot, 1.0, 1.0, 1e9)
    found = choice.decide(1, book, 20.0, SHARED, lambda: 0.0, ahead)
    assert found is not None
    return found


@pytest.mark.parametrize('ratio', [0.5, 1.0, 2.0])
def test_what_is_chosen_is_good_for_the_speeds_that_were_seen(ratio: float) -> None:
    setting, (_, book) = setting_of(0), books(0)
    cost, link, air = setting.cost.scaled({ROBOT: ratio}), setting.link(20.0), Steady(20.0)

    def played(index: int, at_once: bool) -> float:
        player = CatchUpPlayer(cost, link, book.entries[index].partition)
        return player.seconds(air, 0.0, AT_ONCE if at_once and player.crosses else NEVER_LATE)
    found = chosen(book, ratio)
    best = min(played(i, at_once) for i in book.different() for at_once in (False, True))
    assert played(found.index, found.at_once) <= 1.05 * best


@settings(max_examples=50)
@given(st.integers(0, 10**6))
def test_few_schedules_are_kept_and_only_what_was_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    setting, where = setting_of(0), conditions(GRID, (0.5, 2.0))
    pool = list(dict.fromkeys(e.partition for e in books(0)[1].entries))
    marked = rng.random(len(pool)) < 0.4
    known = [p for p, mark in zip(pool, marked) if mark] or pool[:1]
    found = [p for p in pool if p not in known]
    kept = worth_keeping(setting.evaluator_at, known, found, where)
    assert set(kept) <= set(found) and len(set(kept)) == len(kept)
    for condition in where:
        price = setting.evaluator_at(condition)
        assert min(price(p).price for p in (*known, *kept)) <= (1 + TOLERANCE) * min(
            price(p).price for p in pool) * (1 + 1e-9)
    assert worth_keeping(setting.evaluator_at, pool, pool, where) == ()
