# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What is said of a robot follows from its messages, whatever these hold."""
from __future__ import annotations

from diagnostic_msgs.msg import DiagnosticArray, DiagnosticStatus, KeyValue
import pytest

from intradp_ros.msg import InferenceStats, InferenceTimeline, LinkState, SharingEvent
from intradp_ros.rqt.history_plot import history_figure
from intradp_ros.rqt.watched_robot import EVENTS, HISTORY, LATELY, NOTHING, WatchedRobot


def stats(**given: object) -> InferenceStats:
    return InferenceStats(**{'strategy': 'shared', 'schedule': 4, 'shared': True, 'by_rows': True,
                             'latency_ms': 50.0, 'alone_ms': 100.0, **given})


def test_nothing_is_said_of_what_was_not_heard() -> None:
    robot = WatchedRobot('/robot')
    rows = dict(robot.rows(5.0))
    assert rows.pop('robot') == '/robot, no inference seen'
    assert set(rows.values()) == {NOTHING} and robot.gain is None
    with pytest.raises(ValueError, match='at least one inference'):
        history_figure(robot.samples, 5.0)


def test_the_gain_is_that_of_the_last_inferences() -> None:
    """Those before, and those that do not know what the robot alone would take, do not count."""
    robot = WatchedRobot('/robot')
    robot.take_stats(stats(latency_ms=1000.0), 1.0)
    for number in range(LATELY):
        robot.take_stats(stats(alone_ms=150.0 if number % 2 else 0.0), 2.0)
    assert robot.gain == pytest.approx(3.0)
    rows = dict(robot.rows(3.0))
    assert rows['gain over local'] == '3.00 times as fast'
    assert rows['latency'] == '50.0 ms at the median; alone 150.0 ms expected'
    assert rows['schedule'] == 'shared 4, both by rows'


def test_it_is_said_who_computed() -> None:
    robot = WatchedRobot('/robot')
    for given in ({}, {}, {'by_rows': False}, {'by_rows': False, 'shared': False},
                  {'by_rows': False, 'shared': False, 'recovered': True}):
        robot.take_stats(stats(**given), 1.0)
    assert dict(robot.rows(2.0))['who computed'] == (
        'robot alone 1, server took part 1, both by rows 2, robot finished 1 of 5')
    labels = {line.get_label() for line in history_figure(robot.samples, 2.0).axes[0].lines}
    assert labels == {'robot alone (1)', 'server took part (1)', 'both by rows (2)',
                      'robot finished (1)', 'robot alone, expected'}


def test_what_is_old_is_not_reported_as_new() -> None:
    robot = WatchedRobot('/robot')
    robot.take_stats(stats(), 1.0)
    robot.take_link(LinkState(up_rate=2.5e6, predicted_rate=2e6, round_trip=0.004,
                              connected=True), 1.0)
    rows = dict(robot.rows(2.0))
    assert rows['link'] == 'up 20.0, expected 16.0 Mbit/s; round trip 4.0 ms'
    assert rows['server'] == 'answers' and rows['robot'] == '/robot, running'
    rows = dict(robot.rows(9.0))
    assert rows['link'] == rows['server'] == NOTHING
    assert rows['robot'] == '/robot, last inference 8 s ago'


def test_diagnostics_of_this_robot_alone() -> None:
    robot = WatchedRobot('/robot')
    values = [KeyValue(key=key, value=value) for key, value in (
        ('mode', 'shared'), ('inferences', '12'), ('outages', '1'), ('refusal', 'no such model'))]
    robot.take_diagnostics(DiagnosticArray(status=[
        DiagnosticStatus(name='/robot', message='sharing', values=values),
        DiagnosticStatus(name='/other', message='no server')]))
    robot.take_link(LinkState(), 1.0)
    rows = dict(robot.rows(1.0))
    assert rows['session'] == 'sharing' and rows['since the start'] == '12 inferences, 1 outages'
    assert rows['robot'].startswith('/robot, mode shared')
    assert rows['server'] == 'does not share now: no such model'


def test_no_message_can_break_it_or_fill_memory() -> None:
    robot = WatchedRobot('/robot')
    nan, inf = float('nan'), float('inf')
    for latency in (nan, inf, -1.0, 0.0):
        robot.take_stats(stats(latency_ms=latency), 1.0)
    assert not robot.samples
    robot.take_stats(stats(alone_ms=nan), 1.0)
    robot.take_link(LinkState(up_rate=nan, down_rate=inf, round_trip=nan), 1.0)
    robot.take_timeline(InferenceTimeline(
        lane=['robot'] * 4, kind=['compute'] * 4, name=['a'] * 4,
        start=[nan, 0.0, 2.0, 0.0], stop=[1.0, inf, 1.0, 1.0]))
    assert [(s.start, s.stop) for s in robot.spans] == [(0.0, 1.0)]
    for number in range(2 * HISTORY):
        robot.take_stats(stats(), 1.0)
        robot.take_event(SharingEvent(kind='k' * 999, text='x' * 10**5, inference=number))
    assert len(robot.samples) == HISTORY and len(robot.events) == EVENTS
    assert all(len(text) < 400 for text in robot.events)
    assert dict(robot.rows(1.0))['link'] == 'not measured'
