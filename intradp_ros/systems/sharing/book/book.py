# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The schedule book: for every bandwidth of a grid the schedule of every strategy.

A readable file: partitions with what the simulator says of them.  Programs
follow from a partition by `lowering.lower`, on both sides alike.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
import json
import math
import pathlib
from typing import Any

import numpy as np

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.json_text import parse_json
from intradp_ros.core.limits import MAX_MBPS, MAX_SECONDS, within
from intradp_ros.systems.sharing.book.catch_up_curve import curve_rates, CURVE_RATIOS, POINTS
from intradp_ros.systems.sharing.book.critical_paths import LatencyModel, MAX_PATHS, Path
from intradp_ros.systems.sharing.partition.partition import Partition
from intradp_ros.systems.sharing.strategies import LOCAL, SHARED, STRATEGIES, UNEVEN
from intradp_ros.wire.codecs.names import LOSSY

FORMAT = 'intradp-schedule-book/7'
#: What a strategy was called before 0.2, in books that users have on disk.
_RENAMED = {'loss': SHARED}
MAX_ENTRIES = 1000
#: A schedule is kept until the bandwidth is outside of its range by this factor.
HYSTERESIS = 1.05
_PLAYED = len(CURVE_RATIOS) * POINTS


@dataclass(frozen=True, slots=True)
class Entry:
    """
    One schedule: for which bandwidth (Mbit/s) and strategy, and what it should take.

    `predicted` is in seconds at `mbps`, `joules` what the robot spends then.
    The schedule is the one to use from `low` up to `high` Mbit/s.  `anywhere`
    says what it takes at other rates and on devices of other speeds, if the
    book knows.
    """

    mbps: float
    strategy: str
    predicted: float
    partition: Partition
    joules: float = 0.0
    low: float = 0.0
    high: float = math.inf
    anywhere: LatencyModel | None = None

    def beyond(self, mbps: float) -> float:
        """Return how far a bandwidth is outside of the range, as a logarithm; 0 inside."""
        return max(0.0, math.log(max(self.low, 1e-9) / mbps),
                   math.log(mbps / self.high) if self.high < math.inf else 0.0)


@dataclass(frozen=True)
class ScheduleBook:
    """
    Entries for one graph; an entry's index is its schedule id.

    Entries with the strategy ``shared`` are never predicted worse than the
    others at the same bandwidth, by `objective`.  `axis` is the split axis
    the partitions were made for; `delay` and `overhead` (seconds), whether
    both ways share the air, and how many times the rate up (all bandwidths
    are those up) is that down were assumed.  `bounds` are pairs of Mbit/s and
    seconds below which no schedule can be.  `lossy` names the lossy encoding that values
    may cross in, which only a user asks for; `lossy_difference` is then the
    largest difference that it made to an output on example inputs, relative
    to the output's spread (None where that was not measured).
    """

    digest: str
    axis: int
    delay: float
    overhead: float
    entries: tuple[Entry, ...]
    lossy: str = ''
    lossy_difference: float | None = None
    bounds: tuple[tuple[float, float], ...] = ()
    objective: str = 'latency'
    shared_air: bool = False
    down_ratio: float = 1.0

    def __post_init__(self) -> None:
        """Refuse lossy encodings that the book does not know, and an impossible link."""
        if not 0 < self.down_ratio < math.inf:
            raise ValueError(f'a link has a positive ratio of its rates, got {self.down_ratio}')
        used = frozenset[str]().union(*(e.partition.lossy for e in self.entries))
        if self.lossy not in ('', *LOSSY) or not used <= {self.lossy}:
            raise ValueError(f'values cross as {sorted(used)}, but the lossy encoding of the book '
                             f'is {self.lossy!r} (of {", ".join(LOSSY)})')

    @cached_property
    def grid(self) -> tuple[float, ...]:
        """Bandwidths in Mbit/s, ascending."""
        return tuple(sorted({e.mbps for e in self.entries}))

    @cached_property
    def knows_speeds(self) -> bool:
        """Whether all entries say what they take at any rate and on devices of any speed."""
        return all(entry.anywhere for entry in self.entries)

    @cached_property
    def curve_rates(self) -> tuple[float, ...]:
        """Rates (Mbit/s) of what schedules take if the robot catches up, ascending."""
        return curve_rates(self.grid)

    @cached_property
    def knows_catch_up(self) -> bool:
        """Whether all entries also say what they take if the robot works on when it waits."""
        return all(entry.anywhere and entry.anywhere.catch_up for entry in self.entries)

    @cached_property
    def most_busy(self) -> tuple[float, float]:
        """Seconds that robot and server compute where they compute most, as profiled."""
        busy = [entry.anywhere.busy for entry in self.entries if entry.anywhere]
        return max((b[0] for b in busy), default=0.0), max((b[1] for b in busy), default=0.0)

    def different(self, strategy: str = '') -> tuple[int, ...]:
        """Return the ids of different schedules, of one strategy or of all; ``shared`` first."""
        return self._different.get(strategy, ())

    @cached_property
    def _different(self) -> dict[str, tuple[int, ...]]:
        found: dict[str, dict[Partition, int]] = {'': {}}
        for index, entry in sorted(enumerate(self.entries), key=lambda e: e[1].strategy != SHARED):
            for strategy in ('', entry.strategy):
                found.setdefault(strategy, {}).setdefault(entry.partition, index)
        return {strategy: tuple(ids.values()) for strategy, ids in found.items()}

    @cached_property
    def strategies(self) -> tuple[str, ...]:
        """Names of the strategies that the book has schedules of."""
        return tuple(dict.fromkeys(e.strategy for e in self.entries))

    @cached_property
    def others(self) -> tuple[str, ...]:
        """Names of the strategies that this package does not plan, but runs: of rivals, say."""
        return tuple(name for name in self.strategies if name not in (*STRATEGIES, UNEVEN))

    def choose(self, mbps: float, strategy: str = SHARED, previous: int | None = None) -> int:
        """
        Return the schedule id for a predicted bandwidth.

        The schedule in whose range the bandwidth is, or is nearest to; of
        several the one made for the nearest bandwidth.  `previous`, the
        schedule in use, is kept until the bandwidth has left its range by
        `HYSTERESIS`.  Below half of the grid everything stays on the robot.

        :raises ValueError: if the book has no such strategy.
        """
        mbps = max(mbps, 1e-9)
        if previous is None or not 0 <= previous < len(self.entries):
            return self._nearest(mbps, strategy, self.grid[0] / 2)
        before = self.entries[previous]
        if before.strategy == strategy and before.beyond(mbps) <= math.log(HYSTERESIS):
            return previous
        returning = HYSTERESIS if before.strategy == LOCAL else 1.0
        return self._nearest(mbps, strategy, returning * self.grid[0] / 2)

    def _nearest(self, mbps: float, strategy: str, least: float) -> int:
        if mbps < least:
            strategy = LOCAL
        distance = {i: (e.beyond(mbps), abs(math.log(mbps / e.mbps)))
                    for i, e in enumerate(self.entries) if e.strategy == strategy}
        if not distance:
            raise ValueError(f'the schedule table has no strategy {strategy!r}; it has '
                             f'{sorted({e.strategy for e in self.entries})}')
        return min(distance, key=lambda i: distance[i])

    def expected(self, mbps: float, strategy: str = SHARED) -> float:
        """
        Return the seconds that a strategy should take at a bandwidth.

        Between the points of the grid interpolated in both logarithms, beyond
        them what it takes at the nearest one.

        :raises ValueError: if the book has no such strategy.
        """
        if strategy not in self._curves:
            raise ValueError(f'the schedule table has no strategy {strategy!r}; it has '
                             f'{sorted(self._curves)}')
        rates, seconds = self._curves[strategy]
        return float(np.exp(np.interp(math.log(max(mbps, 1e-9)), rates, seconds)))

    @cached_property
    def _curves(self) -> dict[str, tuple[list[float], list[float]]]:
        """Logarithms of the bandwidths and seconds of each strategy."""
        curves = {}
        for strategy in self.strategies:
            points = sorted((e.mbps, e.predicted) for e in self.entries if e.strategy == strategy)
            curves[strategy] = ([math.log(mbps) for mbps, _ in points],
                                [math.log(max(seconds, 1e-9)) for _, seconds in points])
        return curves

    def bound(self, mbps: float) -> float | None:
        """Return the lower bound (seconds) for a bandwidth of the grid, None if there is none."""
        return dict(self.bounds).get(mbps)

    def to_json(self, *, indented: bool = True) -> str:
        """Return the book as JSON text."""
        data = {'format': FORMAT, 'digest': self.digest, 'axis': self.axis, 'delay': self.delay,
                'overhead': self.overhead, 'lossy': self.lossy,
                'lossy_difference': self.lossy_difference,
                'objective': self.objective, 'shared_air': self.shared_air,
                'down_ratio': self.down_ratio,
                'bounds': [list(pair) for pair in self.bounds],
                'entries': [_plain(e) for e in self.entries]}
        return json.dumps(data, indent=1 if indented else None)

    @classmethod
    def from_json(cls, text: str) -> ScheduleBook:
        """
        Read what `to_json` wrote.

        :raises ValueError: if the text is not a schedule table, or one of another format.
        """
        try:
            data = parse_json(text, None)
            if data.get('format') != FORMAT:
                raise ValueError(f'its format is {data.get("format")!r}, wanted {FORMAT!r}; plan '
                                 'again with this version')
            if not 1 <= len(data['entries']) <= MAX_ENTRIES:
                raise ValueError(f'it has {len(data["entries"])} entries, not 1..{MAX_ENTRIES}')
            delay, overhead = (within(name, float(data[name]), 0.0, MAX_SECONDS)
                               for name in ('delay', 'overhead'))
            return cls(str(data['digest']), int(data['axis']), delay, overhead,
                       tuple(_entry(e) for e in data['entries']),
                       str(data['lossy']), _difference(data['lossy_difference']),
                       _bounds(data['bounds']), str(data['objective']),
                       bool(data['shared_air']), float(data.get('down_ratio', 1.0)))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError,
                RecursionError) as error:
            raise ValueError(f'not a schedule table: {error}') from error

    def save(self, path: pathlib.Path) -> None:
        """Write the book to a file, which is complete or as it was."""
        write_atomically(path, self.to_json())

    @classmethod
    def load(cls, path: pathlib.Path) -> ScheduleBook:
        """Read a book from a file; ValueError if it is none."""
        return cls.from_json(path.read_text())


def _difference(found: Any) -> float | None:
    if found is not None and not 0 <= float(found) < float('inf'):
        raise ValueError(f'impossible difference: {found}')
    return None if found is None else float(found)


def _bounds(data: Sequence[Sequence[Any]]) -> tuple[tuple[float, float], ...]:
    bounds = tuple((float(mbps), float(seconds)) for mbps, seconds in data)
    if not all(0 < mbps <= MAX_MBPS and 0 <= seconds <= MAX_SECONDS for mbps, seconds in bounds):
        raise ValueError('impossible lower bounds')
    return bounds


def _plain(entry: Entry) -> dict[str, Any]:
    """Return an entry as data; JSON has no infinity."""
    known = entry.anywhere
    return {**asdict(entry), 'partition': entry.partition.to_dict(),
            'high': entry.high if entry.high < math.inf else None,
            'anywhere': {'paths': [list(path) for path in known.paths],
                         'busy': list(known.busy), 'crossing': list(known.crossing),
                         'catch_up': list(known.catch_up)} if known else None}


def _entry(data: Mapping[str, Any]) -> Entry:
    mbps, predicted, joules = (float(data[key]) for key in ('mbps', 'predicted', 'joules'))
    low, high = float(data['low']), math.inf if data['high'] is None else float(data['high'])
    if not (0 < mbps <= MAX_MBPS and 0 <= predicted <= MAX_SECONDS and 0 <= joules < math.inf
            and 0 <= low <= mbps <= high):
        raise ValueError(f'impossible entry: {mbps} Mbit/s in {low}..{high}, {predicted} s, '
                         f'{joules} J')
    strategy = str(data['strategy'])
    return Entry(mbps, _RENAMED.get(strategy, strategy), predicted,
                 Partition.from_dict(data['partition']), joules, low, high,
                 _anywhere(data.get('anywhere')))


def _anywhere(data: Mapping[str, Any] | None) -> LatencyModel | None:
    if data is None:
        return None
    paths = tuple(Path(*map(float, path)) for path in data['paths'])
    robot, server = (within('busy', float(s), 0.0, MAX_SECONDS) for s in data['busy'])
    up, down = (within('crossing', float(s), 0.0, MAX_SECONDS) for s in data['crossing'])
    if not 1 <= len(paths) <= MAX_PATHS or not all(
            abs(number) <= MAX_SECONDS for path in paths for number in path):
        raise ValueError(f'impossible paths: {paths!r:.200}')
    found = data['catch_up'] if 'catch_up' in data else data['recourse']  # as it was called
    catch_up = tuple(within('catch_up', float(s), 0.0, MAX_SECONDS) for s in found)
    if len(catch_up) not in (0, _PLAYED):
        raise ValueError(f'a schedule has {len(catch_up)} times with catching up, not {_PLAYED}')
    return LatencyModel(paths, (robot, server), catch_up, (up, down))
