# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Recorded rates of a link over time."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
import csv
from dataclasses import dataclass
import math
from pathlib import Path

import numpy as np

COLUMNS = ('t_seconds', 'Mbps')
LONGEST = 1e7  # seconds; more is a slip in a unit


@dataclass(frozen=True)
class LinkTrace:
    """
    Rates in Mbit/s, each from its time (seconds, ascending from 0) to the next one's.

    A rate of 0 is an outage.  The last rate lasts as long as the one before
    it did; then the trace begins again.
    """

    times: tuple[float, ...]
    mbps: tuple[float, ...]

    def __post_init__(self) -> None:
        """Raise ValueError unless times ascend and rates can be rates."""
        if not self.times or len(self.times) != len(self.mbps):
            raise ValueError(
                f'a trace needs a rate for every time, got {len(self.times)} times and '
                f'{len(self.mbps)} rates')
        if not self.times[-1] < LONGEST:
            raise ValueError(f'a trace must be shorter than {LONGEST:g} seconds')
        if self.times[0] != 0 or any(not b > a for a, b in zip(self.times, self.times[1:])):
            raise ValueError('the times of a trace must ascend from 0 seconds')
        wrong = [rate for rate in self.mbps if not 0 <= rate < math.inf]
        if wrong:
            raise ValueError(f'a rate must be 0 Mbit/s or more, got {wrong[0]}')

    @property
    def duration(self) -> float:
        """Seconds from the beginning until it begins again."""
        last = self.times[-1] - self.times[-2] if len(self.times) > 1 else 1.0
        return self.times[-1] + last

    def rate_at(self, seconds: float) -> float:
        """Return the rate in Mbit/s at a time; a later one counts from the beginning again."""
        index = np.searchsorted(self.times, seconds % self.duration, side='right') - 1
        return self.mbps[int(index)]

    def resampled(self, period: float = 0.1) -> LinkTrace:
        """Return the same rates, in their order, at every multiple of `period` seconds."""
        times = [k * period for k in range(max(1, round(self.duration / period)))]
        return LinkTrace(tuple(times), tuple(self.rate_at(t) for t in times))

    def part(self, start: float, seconds: float) -> LinkTrace:
        """Return the stretch of some seconds from `start` on, as a trace that begins at 0."""
        inside = [(t - start, r) for t, r in zip(self.times, self.mbps)
                  if start < t < start + seconds]
        pairs = [(0.0, self.rate_at(start)), *inside]
        return LinkTrace(*(tuple(column) for column in zip(*pairs)))

    def __iter__(self) -> Iterator[tuple[float, float]]:
        """Yield times with their rates."""
        return iter(zip(self.times, self.mbps))


def constant(mbps: float) -> LinkTrace:
    """Return the trace of a link that never changes."""
    return LinkTrace((0.0,), (mbps,))


def read_trace(path: Path) -> LinkTrace:
    """
    Read a CSV file with the columns ``t_seconds`` and ``Mbps``.

    :raises ValueError: if the file is not such a table, or its numbers are not a trace.
    :raises OSError: if it cannot be read.
    """
    try:
        with path.open(newline='', encoding='utf-8-sig') as file:  # spreadsheets mark UTF-8
            rows: Sequence[dict[str, str]] = list(csv.DictReader(file))
        times, rates = (tuple(float(row[column]) for row in rows) for column in COLUMNS)
        return LinkTrace(tuple(t - times[0] for t in times), rates)
    except (KeyError, TypeError, ValueError, IndexError, csv.Error) as error:
        raise ValueError(f'{path} is not a link trace: it must be a CSV file with the columns '
                         f'{" and ".join(COLUMNS)}, and commas between them ({error})'
                         ) from error
