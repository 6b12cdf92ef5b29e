# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Replays of recorded rates in model time: what systems take if they have to guess the link's rate.

Inferences follow one another, without a pause or at regular times.  Each is given the mean rate of
the trace while it lasts.  A system knows of the rate only what the robot
knows: the mean of an inference in which something was sent, once that is
over, and probes where nothing was sent for long.

Where rows are late the robot works on by itself, as in
`runtime/execution/straggler_mitigation.py`: with `players` (`judge/catch_up_play.py`) just so,
step by step and with the rate of every moment. Without, it has nothing of the result when it
begins and meets nobody, which is the worst case.
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

from intradp_lab.emulation.trace import LinkTrace
from intradp_lab.testbed.catch_up_replay import CatchUpPlayers
from intradp_ros.link.outlook import LinkPast
from intradp_ros.link.predictor import RatePredictor
from intradp_ros.link.rate import SHOWS_RATE_BYTES
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.choice import Forecast, ScheduleChoice
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.judge.lateness import AT_ONCE, LateThreshold, NEVER_LATE
from intradp_ros.systems.sharing.policy.patience import (
    clamped_prediction,
    PatiencePolicy,
)
from intradp_ros.systems.sharing.session.probe import PROBE_AFTER
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
    SHARED,
)

Floats = npt.NDArray[np.float64]
#: Rates (Mbit/s) at which schedules are judged; in between, latencies are interpolated.
RATES: Floats = np.geomspace(0.5, 800.0, 96)
_MBPS = 125e3  # bytes per second
_ROUNDS, _SETTLED = 8, 1e-4


class Curves:
    """
    Seconds that each schedule of a book takes, over the link's rate.

    `alone` are those of the robot by itself, infinite if the book does not say.
    """

    def __init__(self, setting: PlanningProblem, book: ScheduleBook) -> None:
        numbers = {p: k for k, p in enumerate(dict.fromkeys(e.partition for e in book.entries))}
        played = [[judge(partition) for partition in numbers] for judge in (
            Judge(setting.cost, setting.link(float(mbps))) for mbps in RATES)]
        self._logs = np.log(np.array([[p.latency for p in row] for row in played]))
        self._shows_rate = [max(p.bytes_up, p.bytes_down) >= SHOWS_RATE_BYTES for p in played[-1]]
        self._crosses = [p.bytes_up + p.bytes_down > 0 for p in played[-1]]
        self._number = [numbers[e.partition] for e in book.entries]
        alone = [k for k, entry in enumerate(book.entries) if entry.strategy == LOCAL][:1]
        self.alone = float(self.seconds(alone, RATES[:1])[0]) if alone else math.inf

    def latest(self, schedule: int, mbps: float, patience: PatiencePolicy) -> float:
        """
        Return the seconds after which the robot has the result of a schedule by itself.

        The schedule was chosen for a rate (Mbit/s), and is late by then.
        """
        if not self._crosses[self._number[schedule]]:
            return math.inf
        return self.late(schedule, mbps, patience).ran + self.alone

    def late(self, schedule: int, mbps: float, patience: PatiencePolicy) -> LateThreshold:
        """Return from when on a schedule that was chosen for a rate is late."""
        expected = float(self.seconds([schedule], np.array([max(mbps, 1e-3)]))[0])
        return self.late_by(expected, patience)

    def late_by(self, predicted: float, patience: PatiencePolicy) -> LateThreshold:
        """Return when an inference becomes late that was predicted to take some seconds."""
        return patience.lateness(clamped_prediction(predicted, self.alone, faster=True),
                                 self.alone)

    def seconds(self, schedules: Sequence[int], mbps: Floats) -> Floats:
        """Return what schedules take, each at its rate."""
        place = np.interp(np.log(mbps), np.log(RATES), np.arange(len(RATES)))
        low = np.minimum(place.astype(int), len(RATES) - 2)
        columns = [self._number[schedule] for schedule in schedules]
        below, above = self._logs[low, columns], self._logs[low + 1, columns]
        found: Floats = np.exp(below + (above - below) * (place - low))
        return found

    def shows_rate(self, schedule: int) -> bool:
        """Return whether a schedule sends enough to measure the link's rate."""
        return self._shows_rate[self._number[schedule]]


class Air:
    """A trace that begins again when it has ended."""

    def __init__(self, trace: LinkTrace) -> None:
        self.duration = trace.duration
        self._times = np.array([*trace.times, trace.duration])
        self._carried = np.concatenate(
            [[0.0], np.cumsum(np.diff(self._times) * np.array(trace.mbps))])

    def mean(self, start: float, seconds: Floats) -> Floats:
        """Return the mean rates (Mbit/s) of some seconds from `start` on."""
        found: Floats = (self._until(start + seconds) - self._until(np.array(start))) / seconds
        return found

    def carried_by(self, start: float, mbit: float) -> float:
        """Return when the last of some Mbit has crossed that began to cross at `start`."""
        times, rest = divmod(float(self._until(np.array(start))) + mbit, self._carried[-1])
        found = times * self.duration + np.interp(rest, self._carried, self._times)
        return max(start, float(found))

    def _until(self, when: Floats) -> Floats:
        times, rest = np.divmod(when, self.duration)
        found: Floats = times * self._carried[-1] + np.interp(rest, self._times, self._carried)
        return found


@dataclass(frozen=True, slots=True)
class ReplayedInference:
    """An inference: when it began, how long it took (s), the mean rate, and its schedule."""

    start: float
    seconds: float
    mbps: float
    schedule: int


class Chooser(Protocol):
    """Decides which schedule an inference takes."""

    def choose(self, now: float) -> int:
        """Return a schedule id."""

    def latest(self, schedule: int) -> float:
        """Return the seconds after which the robot has the result by itself."""

    def late(self, schedule: int) -> LateThreshold:
        """Return from when on a robot that waits works by itself."""

    def learn(self, run: ReplayedInference) -> None:
        """Hear of an inference that has ended."""


def run_of(curves: Curves, air: Air, start: float, schedules: Sequence[int],
           ) -> tuple[Floats, Floats]:
    """Return seconds and mean rates of inferences that would begin now, one for each schedule."""
    seconds = np.full(len(schedules), 1e-3)
    for _ in range(_ROUNDS):
        rates = air.mean(start, seconds)
        before, seconds = seconds, curves.seconds(schedules, rates)
        if np.all(np.abs(seconds - before) <= _SETTLED * before):
            break
    return seconds, air.mean(start, seconds)


def replay(curves: Curves, air: Air, chooser: Chooser, *, until: float | None = None,
           period: float = 0.0, players: CatchUpPlayers | None = None) -> list[ReplayedInference]:
    """
    ReplayedInference inferences until the trace has ended, or `until` seconds went by.

    Each begins when the one before has ended, and at least `period` seconds
    after that one began.
    """
    now, runs = 0.0, []
    while now < (air.duration if until is None else until):
        schedule = chooser.choose(now)
        if players:
            seconds = np.array([players[schedule].seconds(air, now, chooser.late(schedule))])
        else:
            seconds, _ = run_of(curves, air, now, [schedule])
            seconds = np.minimum(seconds, chooser.latest(schedule))
        rates = air.mean(now, seconds)
        runs.append(ReplayedInference(now, float(seconds[0]), float(rates[0]), schedule))
        now += max(runs[-1].seconds, period)
        chooser.learn(runs[-1])
    return runs


class Oracle:
    """Knows the rate to come, and takes the shared schedule that is fastest at it."""

    def __init__(self, curves: Curves, air: Air, book: ScheduleBook) -> None:
        self._curves, self._air = curves, air
        own: dict[object, int] = {}
        for index, entry in enumerate(book.entries):
            if entry.strategy == SHARED:
                own.setdefault(entry.partition, index)
        self._schedules = list(own.values())

    def choose(self, now: float) -> int:
        """Return the fastest schedule."""
        seconds, _ = run_of(self._curves, self._air, now, self._schedules)
        return self._schedules[int(np.argmin(seconds))]

    def latest(self, schedule: int) -> float:
        """Return that it never catches up: it knows better."""
        return math.inf

    def late(self, schedule: int) -> LateThreshold:
        """Return that it never does anything by itself."""
        return NEVER_LATE

    def learn(self, run: ReplayedInference) -> None:
        """Hear nothing new."""


class Predicting:
    """
    Chooses as the robot does, by what a predictor expects and by what may come.

    Without `patience` it waits for rows however late they are, and takes the
    best schedule for the expected rate; so it does without `foresight`, too.
    """

    def __init__(self, curves: Curves, air: Air, book: ScheduleBook, predictor: RatePredictor,
                 strategy: str = SHARED, patience: PatiencePolicy | None = PatiencePolicy(), *,
                 foresight: bool = True) -> None:
        self._curves, self._air, self._book = curves, air, book
        self._patience, self._mbps = patience, 0.0
        self._predictor, self._strategy = predictor, strategy
        self._choice, self._past, self._at_once = ScheduleChoice(), LinkPast(), False
        self._foresight = foresight
        self._measured = -PROBE_AFTER

    def choose(self, now: float) -> int:
        """Return the schedule for what may come."""
        self._probe(now)
        expected = self._predictor.predict(now)
        self._mbps = expected / _MBPS
        chosen = self._choice.decide(0, self._book, self._mbps, self._strategy,
                                     self._predictor.spread, self._ahead(now, expected))
        assert chosen is not None
        self._at_once = chosen.at_once
        return chosen.index

    def _ahead(self, now: float, expected: float) -> Forecast:
        patience = self._patience
        if patience is None or not self._foresight:
            return Forecast(lambda seconds: None, lambda predicted: math.inf)
        return Forecast(lambda seconds: self._past.outlook(now, seconds, expected),
                        lambda predicted: self._curves.late_by(predicted, patience).ran)

    def latest(self, schedule: int) -> float:
        """Return the seconds after which the robot has the result by itself."""
        if self._patience is None:
            return math.inf
        return self._curves.latest(schedule, self._mbps, self._patience)

    def late(self, schedule: int) -> LateThreshold:
        """Return from when on a robot that waits works by itself."""
        if self._patience is None:
            return NEVER_LATE
        if self._at_once:
            return AT_ONCE
        return self._curves.late(schedule, self._mbps, self._patience)

    def _probe(self, now: float) -> None:
        """Measure the rate now and then while no inference does."""
        while now - self._measured >= PROBE_AFTER:
            self._measured += PROBE_AFTER
            rate = self._air.mean(max(0.0, self._measured - 0.01), np.array(0.01))
            self._take(float(rate) * _MBPS)

    def _take(self, rate: float) -> None:
        self._predictor.update(rate, self._measured)
        self._past.update(rate, self._measured)

    def learn(self, run: ReplayedInference) -> None:
        """Hear the mean rate of an inference that sent enough."""
        if self._curves.shows_rate(run.schedule):
            self._measured = run.start + run.seconds
            self._take(run.mbps * _MBPS)


def mean_and_p95(runs: Sequence[ReplayedInference]) -> tuple[float, float]:
    """Return the mean and the 95th percentile of the seconds that inferences took."""
    seconds = np.array([run.seconds for run in runs])
    return float(seconds.mean()), float(np.percentile(seconds, 95))
