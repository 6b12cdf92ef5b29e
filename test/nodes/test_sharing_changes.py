# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What changes in how inferences run is reported once, and counted."""
from __future__ import annotations

from intradp_ros.nodes.sharing.sharing_changes import Change, COUNTED, SharingChanges
from intradp_ros.runtime.requests.outcome import InferenceStats


def stats(number: int, strategy: str = 'shared', schedule: int = 3, *, shared: bool = True,
          by_rows: bool = False, reason: str = '') -> InferenceStats:
    return InferenceStats(number, strategy, schedule, shared, bool(reason), reason, 0.1, 0.1, 0.1,
                          0.0, 0, 0, 0.0, by_rows=by_rows)


def test_an_outage_lasts_until_the_server_takes_part_again() -> None:
    """What the robot does alone meanwhile is neither another outage nor the end of this one."""
    changes = SharingChanges()
    assert changes.inferred(stats(1), 10.0) == []
    (began,) = changes.inferred(stats(2, shared=False, reason='silent'), 11.0)
    assert (began.kind, began.inference) == ('outage', 2) and 'silent' in began.text
    assert [c.kind for c in changes.inferred(stats(3, 'local', 0, shared=False), 12.0)] == [
        'schedule']
    assert changes.inferred(stats(4, 'local', 0, shared=False, reason='late'), 13.0) == []
    switched, ended = changes.inferred(stats(5), 14.5)
    assert switched.kind == 'schedule'
    assert (ended.kind, ended.inference, ended.seconds) == ('return', 5, 3.5)
    assert changes.counts == {
        'inferences': 5, 'inferences_shared': 2, 'inferences_by_rows': 0,
        'inferences_recovered': 2, 'schedule_switches': 2, 'outages': 1}


def test_a_robot_that_stays_alone_has_no_outage() -> None:
    changes = SharingChanges()
    for number in range(3):
        assert changes.inferred(stats(number, 'local', 0, shared=False), float(number)) == []
    assert changes.counts['outages'] == changes.counts['schedule_switches'] == 0


def test_switches_name_both_schedules() -> None:
    changes = SharingChanges()
    changes.inferred(stats(1, 'local', 0, shared=False), 1.0)
    (switch,) = changes.inferred(stats(2, 'shared', 4, by_rows=True), 2.0)
    assert switch == Change('schedule', 2, 'shared 4, by rows; before: local 0')
    assert changes.inferred(stats(3, 'shared', 4, by_rows=True), 3.0) == []
    assert changes.counts['inferences_by_rows'] == 2


def test_sessions_and_books_are_reported_when_they_change() -> None:
    changes = SharingChanges()
    assert changes.session('no server', None) == []
    assert changes.session('no server', None) == []
    changes.inferred(stats(7), 1.0)
    first, book = changes.session('sharing', 1)
    assert first == Change('session', 7, 'sharing; before: no server')
    assert book == Change('book', 7, 'schedule table 1 is in use')
    assert [c.kind for c in changes.session('no server', None)] == ['session']
    assert [c.kind for c in changes.session('sharing', 1)] == ['session']
    assert [c.kind for c in changes.session('sharing', 2)] == ['book']


def test_all_counts_are_there_from_the_start() -> None:
    assert tuple(SharingChanges().counts) == COUNTED
