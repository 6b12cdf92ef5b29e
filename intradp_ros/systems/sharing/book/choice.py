# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Choosing the schedule of an inference: when it is kept, and when switched for another."""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass
import time

import numpy as np

from intradp_ros.link.outlook import Outlook, weighted_quantile
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.device_speeds import DeviceSpeeds
from intradp_ros.systems.sharing.book.expected_latency import LatencyCurves
from intradp_ros.systems.sharing.book.hindsight import in_hindsight, LatencySample, seconds_at
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration, WORTH
from intradp_ros.systems.sharing.book.throughput import Busy
from intradp_ros.systems.sharing.strategies import LOCAL, SHARED, UNEVEN

#: Sharing has to promise more, up to a limit, the longer the robot alone would take and the less
#: steady the link: the rate a second later has little to do with that at the begin, and where
#: sharing looks best, it is most likely to fall.
_GAIN_A_SECOND, _MOST_GAIN = 0.4, 0.25
#: The schedule in use is kept unless another is expected to take less than this part of its time.
KEEPS = 0.97
#: Of sharing that is chosen for what may come, which counts its risk already, less has to be
#: promised: at most this part of the time alone.
_PAYS_AHEAD = 0.98
#: The robot works at once while it waits where that is expected to take less than this part of the
#: time: elsewhere its rows would be computed in vain.
AT_ONCE_TAKES = 0.99
#: So many inferences may wait to be learned from, until it is known how fast the devices were.
_AWAITED = 8
#: And how many times as long the server computed for others.
_Ended = tuple[Entry, LatencySample, float]


@dataclass(frozen=True, slots=True)
class ChosenSchedule:
    """
    A schedule id, and whether the robot works on at once whenever it waits.

    `median_s` are the seconds that half of such inferences take at most, and
    `nominal_s` those at the middle of the rates that may come, both without
    experience; 0 if no outlook gave them.
    """

    index: int
    at_once: bool = False
    median_s: float = 0.0
    nominal_s: float = 0.0


@dataclass(frozen=True)
class Forecast:
    """
    What may come: `outlook` says it of the rate (bytes a second) in the next so many seconds.

    `late` says after how many seconds a robot that waits works on, if so many were predicted.
    """

    outlook: Callable[[float], Outlook | None]
    late: Callable[[float], float]


class ScheduleChoice:
    """
    Chooses by the predicted rate, and by what schedules really took.

    Remembers the schedule in use, for the hysteresis of the book.  Without
    `experience` predictions are taken at their word; but sharing that promises
    little is left alone, as the link's rate does not stay what it was.  `load`
    is how many times as long the server computes because of others.
    """

    def __init__(self, experience: LatencyCalibration | None = None) -> None:
        self.experience = experience
        self.speeds = DeviceSpeeds()
        self.load = 1.0
        self._epoch = 0
        self._used: dict[str, int] = {}  # schedule in use, by strategy
        self._speeds = 1.0, 1.0  # factors of robot and server when it chose
        self._curves: LatencyCurves | None = None
        self._expected = 0.0  # seconds of the last choice by an outlook
        self._ended = deque[_Ended](maxlen=_AWAITED)  # not learned from yet

    def decide(self, epoch: int, book: ScheduleBook, mbps: float, strategy: str,
               spread: Callable[[], float], ahead: Forecast) -> ChosenSchedule | None:
        """
        Return the schedule of least expected latency over the rates that may come.

        For the usual strategy, where the book says what schedules take if the robot
        catches up; else, and as long as nothing was measured, as `choose`.
        """
        self._learn()
        by_forecast = strategy == SHARED and book.knows_catch_up and book.objective == 'latency'
        if by_forecast and strategy in book.strategies:
            if epoch != self._epoch or self._curves is None:
                self._begin(epoch)
                self._curves = LatencyCurves(book, self._candidates(book))
            outlook = ahead.outlook(self._expected or book.entries[0].predicted)
            if outlook is not None:
                return self._by_forecast(book, self._curves, mbps, outlook, ahead)
        index = self.choose(epoch, book, mbps, strategy, spread)
        return None if index is None else ChosenSchedule(index)

    def _candidates(self, book: ScheduleBook) -> tuple[int, ...]:
        """Return the ids of what the usual strategy may take: with experience, anything."""
        if self.experience:
            return book.different()
        usual = (*book.different(SHARED), *book.different(UNEVEN))
        known = {book.entries[i].partition for i in usual}
        return (*usual, *(i for i in book.different(LOCAL)
                          if book.entries[i].partition not in known))

    def _by_forecast(self, book: ScheduleBook, curves: LatencyCurves, mbps: float,
                     outlook: Outlook,
                     ahead: Forecast) -> ChosenSchedule:
        """Return the schedule of least expected seconds; nothing crosses unless that pays."""
        speeds = self._factors()
        late = np.array([ahead.late(seconds) for seconds in curves.plain(
            np.array([max(mbps, 1e-9)]), *speeds)[:, 0]])
        rates, weights = np.append(outlook.rates, outlook.quantile(0.5)) / 125e3, outlook.weights
        at_once, by_plan = curves.with_catch_up(rates, late, *speeds)
        factors = np.array([self.corrected(book.entries[i], 1.0) for i in curves.ids])
        once, plan = (factors * (kind[:, :-1] @ weights) for kind in (at_once, by_plan))
        expected = np.minimum(once, plan)
        best = int(expected.argmin())
        alone = [row for row, i in enumerate(curves.ids) if not _crosses(book.entries[i])]
        if alone and expected[best] > _PAYS_AHEAD * expected[alone[0]]:
            best = alone[0]
        self._expected = float(expected[best])
        early = bool(once[best] < AT_ONCE_TAKES * plan[best])
        seconds = (at_once if early else by_plan)[best]
        likely = weighted_quantile(seconds[:-1], weights, 0.5)
        return ChosenSchedule(curves.ids[best], early, likely, float(seconds[-1]))

    def _begin(self, epoch: int) -> None:
        """Forget what was learned with another book."""
        if epoch != self._epoch:
            self._epoch, self._used, self._curves = epoch, {}, None
            self._expected = 0.0
            self._ended.clear()
            self.speeds.reset()  # they were against the profiles of another book

    def choose(self, epoch: int, book: ScheduleBook, mbps: float, strategy: str,
               spread: Callable[[], float]) -> int | None:
        """
        Return the schedule id for a predicted rate, None if the book lacks the strategy.

        For the usual strategy, all on the robot if sharing does not promise
        enough for a link whose rate has that `spread` (standard deviation of
        its logarithm; asked for where it decides); with experience, that of
        another strategy which is expected to be clearly faster.
        """
        if strategy not in book.strategies:
            return None
        self._begin(epoch)
        if book.knows_speeds and book.objective == 'latency':
            return self._fastest(book, mbps, strategy, spread)
        index = book.choose(mbps, strategy, self._used.get(strategy))
        self._used[strategy] = index
        if strategy != SHARED or book.objective != 'latency':
            return index
        others = {name: book.choose(mbps, name) for name in book.strategies
                  if name == LOCAL or name != SHARED and self.experience}
        expected = {i: self.expected(book, i, mbps) for i in (index, *others.values())}
        best = min(expected, key=lambda i: expected[i])
        if expected[best] < WORTH * expected[index]:
            return best
        alone = others.get(LOCAL, index)
        return index if pays(expected[index], expected[alone], spread) else alone

    def _fastest(self, book: ScheduleBook, mbps: float, strategy: str,
                 spread: Callable[[], float]) -> int:
        """Return the schedule of least expected seconds, at the speeds that devices have now."""
        previous, usual = self._used.get(strategy, -1), strategy == SHARED
        ids = book.different('' if usual and self.experience else strategy)
        self._speeds = self._factors()
        expected = {i: self._now(book.entries[i], mbps) for i in ids}
        best = min(expected, key=lambda i: expected[i])
        if previous in expected and expected[best] > KEEPS * expected[previous]:
            best = previous
        self._used[strategy] = best
        alone = next(iter(book.different(LOCAL)), best) if usual else best
        seconds = self._now(book.entries[alone], mbps)
        return best if alone == best or pays(expected[best], seconds, spread) else alone

    def _now(self, entry: Entry, mbps: float) -> float:
        """Return the expected seconds at a rate."""
        return self.corrected(entry, seconds_at(entry, mbps, self._speeds))

    def seconds(self, entry: Entry, mbps: float) -> float:
        """Return what an entry takes at a rate, at the speeds that devices have now."""
        return seconds_at(entry, mbps, self._factors())

    def busy(self, book: ScheduleBook, index: int, mbps: float) -> Busy:
        """Return for how many seconds a schedule keeps each busy at a rate, at their speeds."""
        entry = book.entries[index]
        if entry.anywhere is None:
            return Busy(entry.predicted, 0.0, 0.0)
        (robot, server), (up, down) = entry.anywhere.busy, entry.anywhere.crossing
        speeds = self._factors()
        return Busy(speeds[0] * robot, (up + down if book.shared_air else max(up, down)) / mbps,
                    speeds[1] * server)

    def _factors(self) -> tuple[float, float]:
        if self.experience is None:
            return 1.0, self.load
        now = time.monotonic()
        return self.speeds.factor(ROBOT, now), self.load * self.speeds.factor(SERVER, now)

    def predicted(self, book: ScheduleBook, index: int, mbps: float) -> float:
        """Return what a schedule takes by the book at a rate and the devices' speeds."""
        entry = book.entries[index]
        return self.seconds(entry, mbps) if entry.anywhere else book.expected(
            mbps, entry.strategy)

    def expected(self, book: ScheduleBook, index: int, mbps: float) -> float:
        """Return the seconds by the book at a rate, corrected by what the schedule took lately."""
        entry = book.entries[index]
        return self.corrected(entry, book.expected(mbps, entry.strategy))

    def corrected(self, entry: Entry, seconds: float) -> float:
        """Return a prediction, corrected by what the schedule took lately."""
        if self.experience is None:
            return seconds
        now, factor = time.monotonic(), 1.0
        for key in _keys(entry):
            factor = self.experience.factor(key, now, factor)
        return seconds * factor

    def note(self, entry: Entry, took: LatencySample) -> None:
        """Learn from an inference, as soon as it is known how fast the devices were then."""
        if self.experience:
            self._ended.append((entry, took, self.load))

    def _learn(self) -> None:
        """Make experience of what inferences took, but for devices that were slow or fast."""
        for _ in range(len(self._ended)):
            entry, took, load = ended = self._ended.popleft()
            expected = in_hindsight(entry, took, self.speeds, load)
            if expected is None:
                self._ended.append(ended)
            elif self.experience:
                for key in _keys(entry):
                    self.experience.note(key, took.latency, expected, took.start)


def pays(shared: float, alone: float, spread: Callable[[], float]) -> bool:
    """Return whether sharing is worth its risk, by the seconds expected with it and without."""
    return shared <= alone * (1 - _MOST_GAIN) or shared <= alone * WORTH and (
        shared <= alone * (WORTH - _GAIN_A_SECOND * spread() * min(alone, 1.0)))


def _keys(entry: Entry) -> tuple[Hashable, ...]:
    """
    Return under what experience with an entry is kept, from the general to the particular.

    Where devices and link are corrected for by themselves, what remains is
    mostly a matter of the kind: nothing crosses, or whole layers do, or rows.
    But a schedule may be mistaken where others of its kind are not: its values
    cross larger than those of the example, say.
    """
    if entry.anywhere is None:
        return (entry.partition, entry.predicted),
    return (_crosses(entry), entry.partition.by_rows), entry.partition


def _crosses(entry: Entry) -> bool:
    """Return whether anything crosses the link."""
    return entry.anywhere is not None and any(path.link > 0 for path in entry.anywhere.paths)
