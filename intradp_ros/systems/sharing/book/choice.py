# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which schedule of a book an inference takes."""
from __future__ import annotations

from collections.abc import Callable, Hashable
import time

from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.baselines import LOCAL, LOSS
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.device_speeds import DeviceSpeeds
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration, WORTH

#: Sharing has to promise more, up to a limit, the longer the robot alone would take and the less
#: steady the link: the rate a second later has little to do with that at the begin, and where
#: sharing looks best, it is most likely to fall.
_GAIN_A_SECOND, _MOST_GAIN = 0.4, 0.25
#: The schedule in use is kept unless another is expected to take less than this part of its time.
KEEPS = 0.97


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
        if epoch != self._epoch:
            self._epoch, self._used = epoch, {}
            self.speeds.reset()  # they were against the profiles of another book
        if book.knows_speeds and book.objective == 'latency':
            return self._fastest(book, mbps, strategy, spread)
        index = book.choose(mbps, strategy, self._used.get(strategy))
        self._used[strategy] = index
        if strategy != LOSS or book.objective != 'latency':
            return index
        others = {name: book.choose(mbps, name) for name in book.strategies
                  if name == LOCAL or name != LOSS and self.experience}
        expected = {i: self.expected(book, i, mbps) for i in (index, *others.values())}
        best = min(expected, key=lambda i: expected[i])
        if expected[best] < WORTH * expected[index]:
            return best
        alone = others.get(LOCAL, index)
        return index if pays(expected[index], expected[alone], spread) else alone

    def _fastest(self, book: ScheduleBook, mbps: float, strategy: str,
                 spread: Callable[[], float]) -> int:
        """Return the schedule of least expected seconds, at the speeds that devices have now."""
        previous, usual = self._used.get(strategy, -1), strategy == LOSS
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
        return self.corrected(entry, self._at(entry, mbps, self._speeds))

    @staticmethod
    def _at(entry: Entry, mbps: float, speeds: tuple[float, float]) -> float:
        known = entry.anywhere
        return known.seconds(mbps, *speeds) if known else entry.predicted

    def seconds(self, entry: Entry, mbps: float) -> float:
        """Return what an entry takes at a rate, at the speeds that devices have now."""
        return self._at(entry, mbps, self._factors())

    def busy(self, entry: Entry) -> tuple[float, float]:
        """Return for how many seconds an entry keeps robot and server busy, at their speeds."""
        robot, server = entry.anywhere.busy if entry.anywhere else (entry.predicted, 0.0)
        speeds = self._factors()
        return speeds[0] * robot, speeds[1] * server

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
        return seconds * self.experience.factor(_key(entry), time.monotonic())

    def note(self, entry: Entry, latency: float, predicted: float, start: float) -> None:
        """Learn from an inference that began at `start` and took `latency` seconds."""
        if self.experience:
            self.experience.note(_key(entry), latency, predicted, start)


def pays(shared: float, alone: float, spread: Callable[[], float]) -> bool:
    """Tell whether sharing is worth its risk, by the seconds expected with it and without."""
    return shared <= alone * (1 - _MOST_GAIN) or shared <= alone * WORTH and (
        shared <= alone * (WORTH - _GAIN_A_SECOND * spread() * min(alone, 1.0)))


def _key(entry: Entry) -> Hashable:
    """
    Return what an entry shares its experience with.

    Where devices and link are corrected for by themselves, what remains is a
    matter of the kind: nothing crosses, or whole layers do, or rows.
    """
    if entry.anywhere is None:
        return entry.partition, entry.predicted
    crosses = any(path.link > 0 for path in entry.anywhere.paths)
    return crosses, entry.partition.by_rows
