# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Of a book's schedules that of least expected latency is taken, late rows and all."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
import math
import time

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np
import pytest

from intradp_ros.link.outlook import Outlook
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.catch_up_curve import curve_rates, CURVE_RATIOS
from intradp_ros.systems.sharing.book.choice import ChosenSchedule, Forecast, ScheduleChoice
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, Path
from intradp_ros.systems.sharing.book.expected_latency import LatencyCurves
from intradp_ros.systems.sharing.book.hindsight import LatencySample
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.partition.partition import local, Partition, RowStage
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    SHARED,
)

GRID = (1.0, 100.0)
RATES = np.array(curve_rates(GRID))
ALONE, SHARED_INDEX, AWAY = 0, 1, 2
#: What is left of a second alone where nothing comes in time, by schedule: the one that sends
#: most of the work away leaves most to do.
PATHS = (Path(1.0, 0.0, 0.0, 0.0), Path(0.4, 0.1, 1.0, 0.0), Path(0.0, 0.2, 3.0, 0.0))
LATEST = (1.0, 1.1, 1.6)
PARTITIONS = (local(4), Partition((RowStage(4, 0.5, 2, 2),)), Partition((RowStage(4, 0.1, 2, 2),)))


def entry(kind: int) -> Entry:
    path = PATHS[kind]
    played = tuple(min(path.seconds(float(mbps), root, 1 / root), LATEST[kind] * root)
                   for root in np.sqrt(CURVE_RATIOS) for mbps in RATES)
    known = LatencyModel((path,), (path.robot, path.server), played)
    return Entry(GRID[min(kind, 1)], LOCAL if kind == ALONE else SHARED, 1.0, PARTITIONS[kind],
                 low=0.0, anywhere=known)


BOOK = ScheduleBook('d' * 64, 0, 0.0, 0.0, tuple(map(entry, (ALONE, SHARED_INDEX, AWAY))))


def outlook(mbps: Sequence[float]) -> Outlook:
    """Return that these rates are equally likely."""
    return Outlook(125e3 * np.array(mbps), np.full(len(mbps), 1 / len(mbps)))


def decided(mbps: Sequence[float], choice: ScheduleChoice | None = None, *,
            book: ScheduleBook = BOOK, margin: float = 0.05) -> ChosenSchedule:
    ahead = Forecast(lambda seconds: outlook(mbps), lambda predicted: min(predicted, 1.0) + margin)
    found = (choice or ScheduleChoice()).decide(
        1, book, float(np.mean(mbps)), SHARED, lambda: 0.0, ahead)
    assert found is not None
    return found


def took(kind: int, mbps: float, seconds: float) -> LatencySample:
    """Return an inference that was expected to take what it does on devices as profiled."""
    expected = PATHS[kind].seconds(mbps, 1.0, 1.0)
    return LatencySample(time.monotonic() - seconds, seconds, expected, expected, mbps)


@pytest.mark.parametrize('mbps, best', [(0.6, ALONE), (3.0, SHARED_INDEX), (80.0, AWAY)])
def test_on_a_steady_link_the_fastest_is_taken_by_plan(mbps: float, best: int) -> None:
    found = decided([mbps])
    assert (found.index, found.at_once) == (best, False)
    assert found.median_s == pytest.approx(PATHS[best].seconds(mbps, 1.0, 1.0))


def test_of_a_link_that_breaks_in_less_is_expected() -> None:
    """At 40 Mbit/s all goes away; if it may be gone as likely, half of it stays."""
    gone = 0.05
    assert decided([40.0]).index == AWAY
    assert decided([40.0, gone]).index == SHARED_INDEX
    assert decided([40.0, gone, gone, gone, gone, gone]).index == ALONE


def test_where_rows_may_be_late_the_robot_works_at_once() -> None:
    """WaitPolicy as long as predicted costs more than nothing if nothing comes."""
    assert decided([30.0, 0.05], margin=0.2).at_once
    assert not decided([30.0, 25.0], margin=0.2).at_once


def test_sharing_that_promises_little_is_left() -> None:
    for seconds, best in ((0.99, ALONE), (0.96, SHARED_INDEX)):  # of one alone
        mbps = 1.0 / (seconds - 0.5)
        assert PATHS[SHARED_INDEX].seconds(mbps, 1.0, 1.0) == pytest.approx(seconds)
        assert decided([mbps]).index == best


@pytest.mark.parametrize('robot, server, best', [
    (1.0, 1.0, SHARED_INDEX), (1.0, 8.0, ALONE), (4.0, 1.0, AWAY)])
def test_speeds_of_devices_count(robot: float, server: float, best: int) -> None:
    choice = ScheduleChoice(LatencyCalibration())
    assert decided([4.0], choice).index == SHARED_INDEX
    for side, factor in ((ROBOT, robot), (SERVER, server)):
        for _ in range(3):
            choice.speeds.note(side, factor, 1.0, 1.0, 1e9)
    assert decided([4.0], choice).index == best


def test_what_schedules_really_took_counts() -> None:
    choice = ScheduleChoice(LatencyCalibration())
    assert decided([80.0], choice).index == AWAY
    for _ in range(3):  # what crosses by rows takes five times as long as it should
        choice.note(BOOK.entries[AWAY], took(AWAY, 80.0, 1.2))
    assert decided([80.0], choice).index == ALONE


def test_what_a_device_showed_meanwhile_is_no_experience_of_schedules() -> None:
    """
    A robot that was slow for some frames takes no schedule for bad.

    Of 0.75 s by plan 0.4 are the robot's, so 4 times as slow it takes 1.95;
    what it took beyond that would be the schedule's.
    """
    for latency, best in ((1.95, SHARED_INDEX), (3.9, ALONE)):
        choice = ScheduleChoice(LatencyCalibration())
        assert decided([4.0], choice).index == SHARED_INDEX
        for _ in range(4):
            choice.speeds.note(ROBOT, 4.0, 1.0, 1.0, time.monotonic())
            choice.note(BOOK.entries[SHARED_INDEX], took(SHARED_INDEX, 4.0, latency))
        decided([4.0], choice)
        choice.speeds.reset()  # as fast as before
        assert decided([4.0], choice).index == best


def test_a_load_that_came_later_is_no_excuse() -> None:
    """Others' load counts as it was then: the server's 0.1 s would be 0.8 s with that of now."""
    choice = ScheduleChoice(LatencyCalibration())
    for _ in range(4):
        choice.note(BOOK.entries[SHARED_INDEX], took(SHARED_INDEX, 4.0, 1.45))
    choice.load = 8.0
    decided([4.0], choice)
    choice.load = 1.0
    assert decided([4.0], choice).index == ALONE


def test_a_schedule_in_which_a_device_is_always_slow_is_left() -> None:
    """What is only seen in shared inferences is a matter of sharing, not of the robot."""
    choice = ScheduleChoice(LatencyCalibration())
    for _ in range(4):
        choice.note(BOOK.entries[SHARED_INDEX], took(SHARED_INDEX, 4.0, 1.95))
        choice.speeds.note(ROBOT, 4.0, 1.0, 1.0, time.monotonic())
        choice.speeds.note(ROBOT, 1.0, 1.0, 1.0, time.monotonic())  # alone, meanwhile
        choice.speeds.note(ROBOT, 1.0, 1.0, 1.0, time.monotonic())
        decided([4.0], choice)
    assert decided([4.0], choice).index == ALONE


def test_without_curves_or_measurements_it_is_as_before() -> None:
    bare = replace(BOOK, entries=tuple(
        replace(e, anywhere=replace(e.anywhere, catch_up=())) for e in BOOK.entries if e.anywhere))
    assert BOOK.knows_catch_up and not bare.knows_catch_up
    assert decided([40.0, 0.05], book=bare) == ChosenSchedule(AWAY)
    blind = Forecast(lambda seconds: None, lambda predicted: predicted)
    assert ScheduleChoice().decide(1, BOOK, 40.0, SHARED, lambda: 0.0,
                                   blind) == ChosenSchedule(AWAY)


def test_another_book_has_other_curves() -> None:
    choice = ScheduleChoice()
    assert decided([80.0], choice).index == AWAY
    slower = replace(BOOK.entries[AWAY], anywhere=LatencyModel(
        (Path(9.0, 0.0, 0.0, 0.0),), (9.0, 0.0), (9.0,) * len(CURVE_RATIOS) * len(RATES)))
    other = replace(BOOK, entries=(*BOOK.entries[:AWAY], slower))
    ahead = Forecast(lambda seconds: outlook([80.0]), lambda predicted: predicted)
    found = choice.decide(2, other, 80.0, SHARED, lambda: 0.0, ahead)
    assert found is not None and found.index == SHARED_INDEX


rates = st.floats(0.01, 1e4).map(lambda mbps: np.array([mbps]))
factors = st.floats(0.25, 8.0)


@settings(max_examples=200)
@given(mbps=rates, robot=factors, server=factors, late=st.floats(0.0, 5.0))
def test_catch_up_never_costs_more_than_waiting(mbps: np.ndarray, robot: float, server: float,
                                                late: float) -> None:
    curves = LatencyCurves(BOOK, (ALONE, SHARED_INDEX, AWAY))
    waits = curves.plain(mbps, robot, server)
    at_once, by_plan = curves.with_catch_up(mbps, np.full(3, late), robot, server)
    assert np.isfinite(by_plan).all() and (at_once > 0).all()
    assert (at_once <= by_plan * (1 + 1e-9)).all() or robot != 1 or server != 1
    assert (by_plan <= waits * (1 + 1e-9)).all()
    assert (at_once[:, 0] <= robot * np.array(LATEST) * (1 + 1e-9)).all()


@settings(max_examples=100)
@given(mbps=st.floats(2.0, 50.0), factor=st.floats(0.5, 4.0))
def test_a_slower_pair_is_a_faster_link_with_a_slower_clock(mbps: float, factor: float) -> None:
    curves, slow = LatencyCurves(BOOK, (SHARED_INDEX, AWAY)), np.array([mbps / factor])
    assert curves.at_once(slow, factor, factor) == pytest.approx(
        factor * curves.at_once(np.array([mbps])), rel=1e-9)


def test_at_the_rates_of_the_curves_they_tell_what_was_played() -> None:
    curves = LatencyCurves(BOOK, (SHARED_INDEX, AWAY))
    played = np.array([e.anywhere.catch_up for e in BOOK.entries[SHARED_INDEX:] if e.anywhere])
    for k, root in enumerate(np.sqrt(CURVE_RATIOS)):
        assert curves.at_once(RATES, root, 1 / root) == pytest.approx(
            played[:, k * len(RATES):(k + 1) * len(RATES)])


def test_a_book_without_curves_has_none() -> None:
    bare = replace(BOOK, entries=(replace(BOOK.entries[0], anywhere=None),))
    with pytest.raises(ValueError, match='does not say'):
        LatencyCurves(bare, (0,))


def test_the_next_outlook_is_over_as_long_as_the_last_choice_takes() -> None:
    asked: list[float] = []

    def look(seconds: float) -> Outlook:
        asked.append(seconds)
        return outlook([80.0])
    choice, ahead = ScheduleChoice(), Forecast(look, lambda predicted: math.inf)
    for _ in range(2):
        choice.decide(1, BOOK, 80.0, SHARED, lambda: 0.0, ahead)
    assert asked == pytest.approx([1.0, PATHS[AWAY].seconds(80.0, 1.0, 1.0)])
