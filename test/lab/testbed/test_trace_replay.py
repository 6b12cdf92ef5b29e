# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Replays in model time: rates over time, what robots may know of them, and the oracle."""
from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_lab.emulation.trace import constant, LinkTrace
from intradp_lab.testbed.trace_replay import Air, Curves, Oracle, Predicting, replay, run_of
from intradp_ros.link.predictor import LastValue, make_predictor, PREDICTORS
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import local, offload
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.session.probe import PROBE_AFTER
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)

OPERATORS, ROWS = 4, 2000
ON_ROBOT, ON_SERVER = 2, 3
LONG = PROBE_AFTER * 4


def setting_of(robot: float) -> PlanningProblem:
    """Return costs of a graph that takes so many seconds on the robot, a tenth on the server."""
    split = random_split_graph(3, OPERATORS, rows=ROWS)
    return PlanningProblem(CostModel(split, {side: tuple(
        np.linspace(0, seconds, op.rows + 1) for op in split.operators)
        for side, seconds in ((ROBOT, robot / OPERATORS), (SERVER, robot / OPERATORS / 10))}),
        delay=1e-3, overhead=1e-4)


@pytest.fixture(scope='module')
def setting() -> PlanningProblem:
    return setting_of(robot=50e-3)


@pytest.fixture(scope='module')
def book() -> ScheduleBook:
    """Up to 10 Mbit/s everything stays on the robot, above it goes to the server."""
    alone, away = local(OPERATORS), offload(OPERATORS)
    return ScheduleBook('d' * 64, 2, 1e-3, 1e-4, (
        Entry(1.0, LOCAL, 0.1, alone), Entry(1.0, OFFLOAD, 0.1, away),
        Entry(1.0, SHARED, 0.1, alone, low=0.5, high=10.0),
        Entry(100.0, SHARED, 0.01, away, low=10.0)))


@pytest.fixture(scope='module')
def curves(setting: PlanningProblem, book: ScheduleBook) -> Curves:
    return Curves(setting, book)


@settings(max_examples=8)
@given(start=st.floats(0, 50), seconds=st.floats(1e-3, 50))
def test_mean_rates_are_those_of_a_fine_sum(start: float, seconds: float) -> None:
    trace = LinkTrace((0.0, 1.0, 4.0), (10.0, 40.0, 20.0))
    moments = start + seconds * (np.arange(2000) + 0.5) / 2000
    expected = np.mean([trace.rate_at(float(t)) for t in moments])
    assert float(Air(trace).mean(start, np.array(seconds))) == pytest.approx(expected, rel=5e-3)


@pytest.mark.parametrize('mbps', [1.7, 30.0, 333.0])
def test_on_a_steady_link_inferences_take_what_the_simulator_says(
        setting: PlanningProblem, book: ScheduleBook, curves: Curves, mbps: float) -> None:
    seconds, rates = run_of(curves, Air(constant(mbps)), 0.3, [ON_ROBOT, ON_SERVER])
    expected = [simulate(lower(setting.cost.split, book.entries[k].partition), setting.cost,
                         setting.link(mbps)).latency for k in (ON_ROBOT, ON_SERVER)]
    assert seconds == pytest.approx(expected, rel=5e-3)
    assert rates == pytest.approx([mbps] * 2)


def test_a_link_that_gets_slower_in_flight_delays(curves: Curves) -> None:
    falling = Air(LinkTrace((0.0, 0.002), (100.0, 1.0)))
    taken = [float(run_of(curves, Air(trace), 0.0, [ON_SERVER])[0][0])
             for trace in (constant(100.0), constant(1.0))]
    between = float(run_of(curves, falling, 0.0, [ON_SERVER])[0][0])
    assert taken[0] < between < taken[1]


class Listening(LastValue):
    """The last value; keeps all that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[float, float]] = []

    def update(self, rate: float, now: float) -> None:
        self.given.append((rate / 125e3, now))
        super().update(rate, now)


def test_robots_learn_of_what_they_sent_once_it_is_over(
        book: ScheduleBook, curves: Curves) -> None:
    air, predictor = Air(LinkTrace((0.0, 0.5), (100.0, 50.0))), Listening()
    runs = replay(curves, air, Predicting(curves, air, book, predictor, OFFLOAD), until=0.7)
    first, *later = predictor.given  # before the first inference the robot has probed
    assert first[1] == 0.0
    assert later == [(pytest.approx(r.mbps), pytest.approx(r.start + r.seconds)) for r in runs]


def test_robots_that_send_nothing_probe(book: ScheduleBook, curves: Curves) -> None:
    air, predictor = Air(constant(5.0)), Listening()
    replay(curves, air, Predicting(curves, air, book, predictor, LOCAL), until=LONG)
    assert [now for _, now in predictor.given] == pytest.approx(
        list(np.arange(0, LONG, PROBE_AFTER)))


def test_a_slow_link_is_left_and_found_again(book: ScheduleBook, curves: Curves) -> None:
    air = Air(LinkTrace((0.0, LONG, 2 * LONG), (100.0, 2.0, 100.0)))
    runs = replay(curves, air, Predicting(curves, air, book, LastValue()))
    chosen = [{book.entries[r.schedule].partition for r in runs
               if k * LONG + 2 * PROBE_AFTER < r.start < (k + 1) * LONG} for k in range(3)]
    assert chosen == [{offload(OPERATORS)}, {local(OPERATORS)}, {offload(OPERATORS)}]


@pytest.mark.parametrize('name', PREDICTORS)
@settings(max_examples=5)
@given(rates=st.lists(st.floats(1.0, 200.0), min_size=4, max_size=8))
def test_nobody_beats_the_oracle(book: ScheduleBook, curves: Curves, name: str,
                                 rates: list[float]) -> None:
    """At regular times both see the same rates."""
    air = Air(LinkTrace(tuple(map(float, range(len(rates)))), tuple(rates)))
    best = replay(curves, air, Oracle(curves, air, book), period=0.5)
    found = replay(curves, air, Predicting(curves, air, book, make_predictor(name)), period=0.5)
    assert [r.start for r in best] == [r.start for r in found]
    assert all(a.seconds <= b.seconds * (1 + 1e-3) for a, b in zip(best, found))


def test_a_link_that_breaks_in_costs_no_more_than_working_on(
        curves: Curves, book: ScheduleBook) -> None:
    """Of 200 Mbit/s next to nothing is left in mid-inference, time and again."""
    steps = 400
    trace = LinkTrace(tuple(0.05 * k for k in range(steps)),
                      tuple(200.0 if k % 20 < 13 else 0.01 for k in range(steps)))
    air, patience = Air(trace), PatiencePolicy()
    took = {}
    for name, policy in (('waits', None), ('works', patience)):
        runs = replay(curves, air, Predicting(curves, air, book, LastValue(), patience=policy))
        took[name] = max(run.seconds for run in runs)
    margin = patience.margin(curves.alone, curves.alone)
    assert took['works'] <= 2 * curves.alone + margin < took['waits']
