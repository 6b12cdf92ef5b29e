# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which schedule of a book an inference takes."""
from __future__ import annotations

from collections.abc import Callable
import time

from intradp_ros.systems.sharing.baselines import LOCAL, LOSS
from intradp_ros.systems.sharing.book.book import Entry, ScheduleBook
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration, WORTH
from intradp_ros.systems.sharing.partition.partition import Partition

#: Sharing has to promise more, up to a limit, the longer the robot alone would take and the less
#: steady the link: the rate a second later has little to do with that at the begin, and where
#: sharing looks best, it is most likely to fall.
_GAIN_A_SECOND, _MOST_GAIN = 0.4, 0.25


class ScheduleChoice:
    """
    Chooses by the predicted rate, and by what schedules really took.

    Remembers the schedule in use, for the hysteresis of the book.  Without
    `experience` predictions are taken at their word; but sharing that promises
    little is left alone, as the link's rate does not stay what it was.
    """

    def __init__(self, experience: LatencyCalibration | None = None) -> None:
        self.experience = experience
        self._epoch, self._index = 0, -1

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
        previous = self._index if self._epoch == epoch else None
        index = book.choose(mbps, strategy, previous)
        self._epoch, self._index = epoch, index
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


def _key(entry: Entry) -> tuple[Partition, float]:
    return entry.partition, entry.predicted
