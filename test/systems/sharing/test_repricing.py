# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A book is looked at again by what its schedules take now, and what they took."""
from __future__ import annotations

from dataclasses import replace
import math

import pytest
from synthetic import flat_cost, random_split_graph

from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import book_of, PlanningProblem
from intradp_ros.systems.sharing.book.repricing import (
    moved_by,
    repriced,
    sampled_rates,
    value_lost,
)
from intradp_ros.systems.sharing.search.bounds import Relaxation
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)

SETTING = PlanningProblem(flat_cost(random_split_graph(3, 8, rows=40), server=5e-4),
                          delay=1e-3, overhead=1e-4)


@pytest.fixture(scope='module')
def book() -> ScheduleBook:
    return book_of(SETTING, 'd' * 64, (0.05, 0.2, 0.5, 1.0, 2.0, 5.0, 20.0))


def lost(book: ScheduleBook, setting: PlanningProblem) -> float:
    return value_lost(book, setting, Relaxation(setting.cost))


def slower(robot: float, server: float) -> PlanningProblem:
    return replace(SETTING, cost=SETTING.cost.scaled({ROBOT: robot, SERVER: server}))


def test_nothing_new_moves_nothing(book: ScheduleBook) -> None:
    assert moved_by(book, SETTING) == pytest.approx(0.0, abs=1e-9)
    assert lost(book, SETTING) <= 0.01
    assert repriced(book, SETTING) == replace(book, bounds=())


def test_a_little_delay_moves_little(book: ScheduleBook) -> None:
    assert 0 < moved_by(book, replace(SETTING, delay=1.02e-3)) < 0.05


def test_what_schedules_take_now_is_reported(book: ScheduleBook) -> None:
    both = slower(2.0, 2.0)
    assert moved_by(book, both) > 0.5
    alone, before = ([e.predicted for e in b.entries if e.strategy == LOCAL]
                     for b in (repriced(book, both), book))
    assert alone == pytest.approx([2 * seconds for seconds in before])


def test_a_book_for_other_devices_has_lost_something(book: ScheduleBook) -> None:
    assert lost(book, slower(0.05, 20.0)) >= 0 and lost(book, slower(30.0, 0.05)) > 0.1


def test_a_book_that_does_not_say_what_it_was_is_made_anew(book: ScheduleBook) -> None:
    assert lost(replace(book, bounds=()), SETTING) == math.inf
    assert lost(replace(book, objective='energy'), SETTING) == math.inf


def test_the_whole_grid_is_sampled(book: ScheduleBook) -> None:
    rates = sampled_rates(book)
    assert len(rates) == 5 and set(rates) <= set(book.grid)
    assert (rates[0], rates[-1]) == (book.grid[0], book.grid[-1])
