# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long a batch of a service takes on an executor: measured once, then learnt as it runs."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
import math
import statistics

#: What is promised: mean and this many standard deviations, at least the 95th percentile of every
#: distribution with one peak whose spread is known.
DEVIATIONS = 2.0
#: Share of the newest time in mean and spread, and how many spreads (with a share of the mean) it
#: counts at most: one pause of the machine must not close a service.
NEWEST, FARTHEST, LEAST_SPREAD = 0.05, 4.0, 0.01


@dataclass(frozen=True, slots=True)
class ServiceTable:
    """
    Seconds of a batch by its rows, and their spread (standard deviation); entry 0 is for one row.

    `nbytes` is what the loaded service takes of the executor's memory.
    """

    seconds: tuple[float, ...]
    spread: tuple[float, ...]
    nbytes: int = 0
    load_seconds: float = 0.0

    def __post_init__(self) -> None:
        """Raise ValueError if it is not a table of times."""
        if not self.seconds or len(self.seconds) != len(self.spread):
            raise ValueError(f'{len(self.seconds)} times and {len(self.spread)} spreads: give '
                             'both for each batch from 1 row on')
        for b, (seconds, spread) in enumerate(zip(self.seconds, self.spread), 1):
            if not (0 < seconds < math.inf and 0 <= spread < math.inf):
                raise ValueError(f'a batch of {b} takes {seconds} s, spread {spread} s: times '
                                 'must be above 0, and finite')

    @property
    def most(self) -> int:
        """Return the rows of the largest batch."""
        return len(self.seconds)

    def quantile(self, b: int) -> float:
        """Return the seconds that a batch of b rows is promised to take."""
        return self.seconds[b - 1] + DEVIATIONS * self.spread[b - 1]

    def at_speed(self, speed: float) -> ServiceTable:
        """Return the table of a machine that is `speed` times as fast."""
        return replace(self, seconds=tuple(s / speed for s in self.seconds),
                       spread=tuple(s / speed for s in self.spread))

    def quantiles(self) -> tuple[float, ...]:
        """Return `quantile` of every batch; a larger one never takes less."""
        found: list[float] = []
        for b in range(1, self.most + 1):
            found.append(max(self.quantile(b), found[-1] if found else 0.0))
        return tuple(found)


def exact_table(seconds: Sequence[float]) -> ServiceTable:
    """Return a table of times without spread."""
    return ServiceTable(tuple(map(float, seconds)), (0.0,) * len(seconds))


def measured(times: Sequence[float]) -> tuple[float, float]:
    """Return seconds and spread of a batch that was run several times, whatever disturbed some."""
    seconds = statistics.median(times)
    return seconds, 1.5 * statistics.median(abs(t - seconds) for t in times)


def learnt(table: ServiceTable, b: int, seconds: float) -> ServiceTable:
    """Return a table that has seen another batch of b rows; a time that is not one is left out."""
    if not 0 < seconds < math.inf:
        return table
    mean, spread = table.seconds[b - 1], table.spread[b - 1]
    most = FARTHEST * (spread + LEAST_SPREAD * mean)
    apart = min(most, max(-most, seconds - mean))
    variance = (1 - NEWEST) * (spread * spread + NEWEST * apart * apart)
    return replace(table, seconds=_changed(table.seconds, b, mean + NEWEST * apart),
                   spread=_changed(table.spread, b, math.sqrt(variance)))


def _changed(values: tuple[float, ...], b: int, value: float) -> tuple[float, ...]:
    return (*values[:b - 1], value, *values[b:])
