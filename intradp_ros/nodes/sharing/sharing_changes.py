# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What changes in how inferences run: sessions, books, schedules, outages; and counts of it."""
from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from intradp_ros.runtime.requests.outcome import InferenceStats

SESSION, BOOK, SCHEDULE, OUTAGE, RETURN, MISMATCH = KINDS = (
    'session', 'book', 'schedule', 'outage', 'return', 'mismatch')
#: What is counted; all are there from the start, so that tools find them.
COUNTED = ('inferences', 'inferences_shared', 'inferences_by_rows', 'inferences_recovered',
           'schedule_switches', 'outages')


@dataclass(frozen=True, slots=True)
class Change:
    """
    One change, in words; `inference` is the newest one at that time.

    `seconds` says on a return how long inferences were not shared.
    """

    kind: str
    inference: int
    text: str
    seconds: float = 0.0


class SharingChanges:
    """
    Finds what changes; a state machine over (inference or session, time).

    An outage begins with an inference that the robot had to finish by itself,
    and ends with the next one that the server took part in; what the robot
    chooses to do alone begins none.
    """

    def __init__(self) -> None:
        self._schedule: tuple[str, int] | None = None
        self._session: str | None = None
        self._epoch: int | None = None
        self._newest = 0
        self._away: float | None = None  # since when
        self._counts = Counter(dict.fromkeys(COUNTED, 0))

    @property
    def counts(self) -> Mapping[str, int]:
        """Return how often what happened since the start, by the names of `COUNTED`."""
        return dict(self._counts)

    def inferred(self, stats: InferenceStats, now: float) -> list[Change]:
        """Return what an inference that ended at `now` (seconds) shows to have changed."""
        self._newest = stats.inference
        self._counts['inferences'] += 1
        self._counts['inferences_shared'] += stats.shared
        self._counts['inferences_by_rows'] += stats.by_rows
        self._counts['inferences_recovered'] += stats.recovered
        return [*self._switched(stats), *self._outage(stats, now)]

    def session(self, state: str, epoch: int | None) -> list[Change]:
        """Return what changed in a session; `epoch` is that of the book in use, None if none."""
        found = []
        if state != self._session:
            was, self._session = self._session, state
            if was is not None:
                found.append(Change(SESSION, self._newest, f'{state}; before: {was}'))
        if epoch not in (None, self._epoch):
            self._epoch = epoch
            found.append(Change(BOOK, self._newest, f'schedule table {epoch} is in use'))
        return found

    def mismatched(self, text: str) -> Change:
        """Return that another node's quality of service does not fit."""
        return Change(MISMATCH, self._newest, text)

    def _switched(self, stats: InferenceStats) -> list[Change]:
        schedule = stats.strategy, stats.schedule
        was, self._schedule = self._schedule, schedule
        if was in (None, schedule):
            return []
        self._counts['schedule_switches'] += 1
        return [Change(SCHEDULE, stats.inference,
                       f'{_named(*schedule)}{", by rows" if stats.by_rows else ""}; '
                       f'before: {_named(*was)}')]

    def _outage(self, stats: InferenceStats, now: float) -> list[Change]:
        if stats.recovered and self._away is None:
            self._away = now
            self._counts['outages'] += 1
            return [Change(OUTAGE, stats.inference,
                           f'the robot finished what the server owed: {stats.reason}')]
        if stats.shared and self._away is not None:
            away, self._away = now - self._away, None
            return [Change(RETURN, stats.inference,
                           f'shared again after {away:.1f} s', away)]
        return []


def _named(strategy: str, index: int) -> str:
    return f'{strategy} {index}'
