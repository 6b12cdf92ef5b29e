# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What devices take is learned of the devices, and counts for all schedules at once."""
from __future__ import annotations

import math

import pytest

from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.choice import ScheduleChoice
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, Path
from intradp_ros.systems.sharing.book.device_speeds import DeviceSpeeds, MOST
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.partition.partition import local, offload, Partition, RowStage
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    OFFLOAD,
    SHARED,
)


def test_a_device_that_changes_is_followed_within_three() -> None:
    speeds = DeviceSpeeds()
    for measured, factor in ((1.0, 1.0),) * 5 + ((3.0, 1.0), (3.0, 1.0), (3.0, 3.0), (1.0, 3.0)):
        speeds.note(SERVER, measured, 1.0, 1.0, 0.0)
        assert speeds.factor(SERVER, 0.0) == pytest.approx(factor)
    assert speeds.factor(ROBOT, 0.0) == 1.0


def test_what_is_not_seen_is_forgotten() -> None:
    speeds = DeviceSpeeds(forget=10.0)
    speeds.note(ROBOT, 4.0, 1.0, 1.0, 100.0)
    assert [speeds.factor(ROBOT, now) for now in (100.0, 110.0, 120.0)] == pytest.approx(
        [4.0, 2.0, math.sqrt(2.0)])
    speeds.reset()
    assert speeds.factor(ROBOT, 100.0) == 1.0


def test_one_mishap_does_not_make_a_device_slow() -> None:
    """Else a server that stumbled once is given up, and nobody sees that it no longer does."""
    speeds = DeviceSpeeds()
    for measured in (1.0, 1.0, MOST, 1.0, 1.0):
        speeds.note(SERVER, measured, 1.0, 1.0, 0.0)
    assert speeds.factor(SERVER, 0.0) == 1.0


@pytest.mark.parametrize(('measured', 'profiled'), [
    (0.0, 1.0), (math.nan, 1.0), (math.inf, 1.0), (1.0, 0.05), (1.0, 0.0)])
def test_what_says_nothing_teaches_nothing(measured: float, profiled: float) -> None:
    speeds = DeviceSpeeds()
    speeds.note(ROBOT, measured, profiled, 1.0, 0.0)
    assert speeds.factor(ROBOT, 0.0) == 1.0


def test_one_measurement_cannot_be_beyond_reason() -> None:
    speeds = DeviceSpeeds()
    speeds.note(ROBOT, 1e9, 1.0, 1.0, 0.0)
    assert speeds.factor(ROBOT, 0.0) == pytest.approx(MOST)


HALVES, MOSTLY_HERE = (Partition((RowStage(4, share, 2, 2),)) for share in (0.5, 0.8))


def entry(mbps: float, strategy: str, partition: Partition, robot: float, server: float,
          link: float) -> Entry:
    """Return an entry of which either the robot or link and server take longest."""
    known = LatencyModel((Path(robot, 0.0, 0.0, 0.0), Path(0.0, server, link, 0.0)),
                         (robot, server))
    return Entry(mbps, strategy, known.seconds(mbps), partition, low=mbps / 2, high=2 * mbps,
                 anywhere=known)


#: A second on the robot, half of one on the server; at 10 Mbit/s halves are best.
BOOK = ScheduleBook('d' * 64, 0, 0.0, 0.0, tuple(
    e for mbps, shared in ((2.0, entry(2.0, SHARED, MOSTLY_HERE, 0.8, 0.1, 0.5)),
                           (10.0, entry(10.0, SHARED, HALVES, 0.5, 0.25, 2.0)))
    for e in (shared, entry(mbps, LOCAL, local(4), 1.0, 0.0, 0.0),
              entry(mbps, OFFLOAD, offload(4), 0.0, 0.5, 4.0))))


def chosen(choice: ScheduleChoice, mbps: float, strategy: str = SHARED) -> Partition:
    index = choice.choose(1, BOOK, mbps, strategy, lambda: 0.0)
    assert index is not None
    return BOOK.entries[index].partition


@pytest.mark.parametrize(('robot', 'server', 'best'), [
    (1.0, 1.0, HALVES), (1.0, 4.0, MOSTLY_HERE), (1.0, 16.0, local(4)), (4.0, 1.0, offload(4))])
def test_what_is_best_at_these_speeds_is_taken(robot: float, server: float, best: Partition,
                                               ) -> None:
    """Schedules that never ran are corrected too, and no other book is needed."""
    choice = ScheduleChoice(LatencyCalibration())
    assert chosen(choice, 10.0) == HALVES
    for side, factor in zip((ROBOT, SERVER), (robot, server)):
        for _ in range(3):
            choice.speeds.note(side, factor, 1.0, 1.0, 1e9)
    assert chosen(choice, 10.0) == best
    assert chosen(choice, 10.0, LOCAL) == local(4)
    assert chosen(choice, 10.0, OFFLOAD) == offload(4)


def test_without_experience_books_are_taken_at_their_word() -> None:
    choice = ScheduleChoice()
    choice.speeds.note(SERVER, 16.0, 1.0, 1.0, 1e9)
    assert chosen(choice, 10.0) == HALVES and chosen(choice, 0.3) == local(4)


def test_another_book_means_other_profiles() -> None:
    choice = ScheduleChoice(LatencyCalibration())
    assert chosen(choice, 10.0) == HALVES
    choice.speeds.note(SERVER, 16.0, 1.0, 1.0, 1e9)
    assert chosen(choice, 10.0) == local(4)
    index = choice.choose(2, BOOK, 10.0, SHARED, lambda: 0.0)
    assert index is not None and BOOK.entries[index].partition == HALVES


@pytest.mark.parametrize(('before', 'meanwhile', 'after', 'about'), [
    (1.0, 1.0, 1.0, 1.0), (1.0, 3.0, 3.0, 3.0), (3.0, 3.0, 1.0, 3.0),  # it became slow, or fast
    (1.0, 3.0, 1.0, 1.0)])  # in this inference alone it seemed slow
def test_what_a_device_shows_in_one_inference_alone_is_no_speed(
        before: float, meanwhile: float, after: float, about: float) -> None:
    speeds = DeviceSpeeds()
    speeds.note(ROBOT, before, 1.0, 1.0, 1.0)
    assert speeds.about(ROBOT, 2.0, 2.0) == pytest.approx(
        before, rel=0.05)  # nothing was measured in it
    speeds.note(ROBOT, meanwhile, 1.0, 1.0, 3.0)
    assert speeds.about(ROBOT, 2.0, 3.0) is None
    speeds.note(ROBOT, after, 1.0, 1.0, 4.0)
    assert speeds.about(ROBOT, 2.0, 4.0) == pytest.approx(about)
