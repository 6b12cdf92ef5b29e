# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An inference that has ended, in figures, and what is learned from it of a device's speed."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import time

from intradp_ros.power.power_states import PowerStates
from intradp_ros.runtime.requests.outcome import compute_and_wait, InferenceStats
from intradp_ros.runtime.transport.timeline import Event, total
from intradp_ros.schedule.schedule import SIDES
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.device_speeds import DeviceSpeeds
from intradp_ros.systems.sharing.book.hindsight import LatencySample
from intradp_ros.systems.sharing.policy.schedule_decision import ScheduleDecision


@dataclass(frozen=True)
class InferenceRecord:
    """
    What was measured, in seconds of a steady clock.

    `crossed` are bytes up and down, None if the robot was to compute alone;
    `reason` says why it finished what was to be shared.
    """

    number: int
    selection: ScheduleDecision
    events: Sequence[Event]
    start: float
    stop: float
    crossed: tuple[int, int] | None = None
    reason: str = ''

    @property
    def latency(self) -> float:
        """Seconds from begin to end."""
        return self.stop - self.start

    @property
    def took(self) -> LatencySample:
        """What experience is made of."""
        selection = self.selection
        return LatencySample(self.start, self.latency, selection.expected_nominal_s,
                             selection.predicted, selection.mbps)

    def stats(self, power: PowerStates, down_ratio: float, *, expected: float, alone: float,
              drawn: float | None) -> InferenceStats:
        """
        Return the figures.

        `expected` and `alone` are seconds that it, and the robot by itself,
        should take; the link carries `down_ratio` times as much down as up.
        """
        latency, rate, entry = self.latency, self.selection.rate, self.selection.entry
        sent, received = self.crossed or (0, 0)
        compute, waiting = compute_and_wait(self.events)
        sending, receiving = (n / rate if rate > 0 else 0.0 for n in (sent, received / down_ratio))
        took_part = self.crossed is not None and not self.reason
        return InferenceStats(
            self.number, entry.strategy, self.selection.index, took_part,
            bool(self.reason), self.reason, latency, expected, compute, waiting, sent, received,
            power.joules(latency, compute, min(sending, latency), min(receiving, latency)),
            drawn, took_part and entry.partition.by_rows, alone)


def note_speed(speeds: DeviceSpeeds, side: str, entry: Entry, book: ScheduleBook | None,
               events: Sequence[Event]) -> None:
    """Learn how fast a device is, from what its compute took."""
    if entry.anywhere is None:
        return
    profiled = entry.anywhere.busy[SIDES.index(side)]
    measured = total(events, side, 'compute')
    whole = book.most_busy[SIDES.index(side)] if book else 0.0
    speeds.note(side, measured, profiled, whole, time.monotonic())
