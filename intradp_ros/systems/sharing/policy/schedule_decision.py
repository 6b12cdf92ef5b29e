# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""By which schedule of the agreed book an inference is shared, and what is expected of it."""
from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from intradp_ros.systems.sharing.book.book import Entry
from intradp_ros.systems.sharing.book.book_versions import BookVersion
from intradp_ros.systems.sharing.book.choice import Forecast, ScheduleChoice
from intradp_ros.systems.sharing.book.program_cache import ProgramCache
from intradp_ros.systems.sharing.book.throughput import best_period, OVERLAP_PAYS
from intradp_ros.systems.sharing.strategies import SHARED

_BYTES_A_SECOND = 125e3  # in one Mbit/s


@dataclass(frozen=True)
class ScheduleDecision:
    """
    A schedule of the book that both sides have, and the seconds it should take by the book.

    `faster` means that it was chosen because it takes less than the robot
    alone, `rate` for how many bytes per second up (0: nothing crosses).
    `at_once` means that the robot works on whenever it waits, `median_s` are
    the seconds that half of such inferences should take at most with that, by
    what link and devices may do, `nominal_s` those at the rate and the speeds in
    the middle (0: that was not asked).  `in_turn` means that it
    should begin when those before it have ended, however many may be in flight.
    """

    epoch: int
    index: int
    entry: Entry
    predicted: float
    faster: bool = False
    rate: float = 0.0
    at_once: bool = False
    median_s: float = 0.0
    nominal_s: float = 0.0
    in_turn: bool = False

    @property
    def mbps(self) -> float:
        """Mbit/s for which it was chosen."""
        return self.rate / _BYTES_A_SECOND

    @property
    def expected_s(self) -> float:
        """Seconds that an inference should take, late rows and all."""
        return self.median_s or self.predicted

    @property
    def expected_nominal_s(self) -> float:
        """Seconds that it should take at the speeds of `predicted`, late rows and all."""
        return self.nominal_s or self.predicted


@dataclass(frozen=True)
class Conditions:
    """
    What an inference finds when it begins.

    `rate` is what the link carries up in bytes per second, `spread` says how
    unsteady that is; `load` is how many times as long the server computes,
    `inflight` how many inferences of the robot may be in flight; `ahead` is
    what may come.
    """

    rate: float
    spread: Callable[[], float]
    ahead: Forecast
    load: float = 1.0
    inflight: int = 1


def select(choice: ScheduleChoice, cache: ProgramCache, agreement: BookVersion, strategy: str,
           found: Conditions) -> ScheduleDecision | None:
    """Return the schedule to share by; None to stay alone."""
    book = agreement.book
    choice.load = found.load
    if found.inflight > 1 and strategy == SHARED and book.knows_speeds:
        selection: ScheduleDecision | None = _of_a_stream(choice, agreement, found)
    else:
        selection = _of_one(choice, agreement, strategy, found)
    if selection is None:
        return None
    shared = cache.get(selection.entry.partition).schedule.transfers
    return selection if shared else None


def _of_one(choice: ScheduleChoice, agreement: BookVersion, strategy: str, found: Conditions,
            ) -> ScheduleDecision | None:
    """Return the schedule of least latency; None if the book lacks the strategy."""
    book, mbps = agreement.book, found.rate / _BYTES_A_SECOND
    chosen = choice.decide(agreement.epoch, book, mbps, strategy, found.spread, found.ahead)
    if chosen is None:
        return None
    index = chosen.index
    return ScheduleDecision(
        agreement.epoch, index, book.entries[index], choice.predicted(book, index, mbps),
        strategy == SHARED and book.objective == 'latency', found.rate, chosen.at_once,
        chosen.median_s, chosen.nominal_s)


def _of_a_stream(choice: ScheduleChoice, agreement: BookVersion,
                 found: Conditions) -> ScheduleDecision:
    """Return the schedule of most frames per second, one by one or with several in flight."""
    book, inflight, mbps = agreement.book, found.inflight, found.rate / _BYTES_A_SECOND
    index, seconds = best_period([
        (i, choice.seconds(book.entries[i], mbps), choice.busy(book, i, mbps))
        for i in book.different()], inflight)
    one = _of_one(choice, agreement, SHARED, found)
    if one and one.predicted <= OVERLAP_PAYS * seconds:
        return replace(one, in_turn=True)
    entry = book.entries[index]
    predicted = max(inflight * seconds, choice.seconds(entry, mbps))
    return ScheduleDecision(agreement.epoch, index, entry, predicted, rate=found.rate)
