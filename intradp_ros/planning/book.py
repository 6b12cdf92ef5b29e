# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The schedule book: for every bandwidth of a grid the schedule of every strategy.

A readable file: partitions with what the simulator says of them.  Programs
follow from a partition by `lowering.lower`, on both sides alike.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

from intradp_ros.planning.baselines import (
    best_cut,
    best_local,
    best_offload,
    CUT,
    LOCAL,
    LOSS,
    OFFLOAD,
)
from intradp_ros.planning.cost import CostModel, LinkModel
from intradp_ros.planning.encodings import assuming, best_encodings, encoded
from intradp_ros.planning.loss import loss
from intradp_ros.planning.partition import Partition, Stage
from intradp_ros.planning.refine import best_of, refine
from intradp_ros.wire.codecs.names import LOSSY

FORMAT = 'intradp-schedule-book/2'
MAX_ENTRIES = 1000
Progress = Callable[[int, int], None]


def bandwidth_grid(low: float = 1.0, high: float = 400.0, points: int = 20) -> tuple[float, ...]:
    """Return bandwidths in Mbit/s, evenly spaced in the logarithm."""
    return tuple(float(f'{b:.4g}') for b in np.geomspace(low, high, points))


@dataclass(frozen=True, slots=True)
class Entry:
    """One schedule: for which bandwidth (Mbit/s) and strategy, and what it should take (s)."""

    mbps: float
    strategy: str
    predicted: float
    partition: Partition


@dataclass(frozen=True)
class ScheduleBook:
    """
    Entries for one graph; an entry's index is its schedule id.

    Entries with the strategy ``loss`` are never predicted slower than
    ``local``, ``offload`` and ``cut`` at the same bandwidth.  `axis` is the
    split axis the partitions were made for; `link` keeps delay and overhead
    (seconds) that were assumed.  `lossy` names the lossy encoding that values
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

    def __post_init__(self) -> None:
        """Refuse lossy encodings that the book does not tell of."""
        used = frozenset[str]().union(*(e.partition.lossy for e in self.entries))
        if self.lossy not in ('', *LOSSY) or not used <= {self.lossy}:
            raise ValueError(f'values cross as {sorted(used)}, but the lossy encoding of the book '
                             f'is {self.lossy!r} (of {", ".join(LOSSY)})')

    @property
    def grid(self) -> tuple[float, ...]:
        """Bandwidths in Mbit/s, ascending."""
        return tuple(sorted({e.mbps for e in self.entries}))

    def choose(self, mbps: float, strategy: str = LOSS) -> int:
        """
        Return the schedule id for a predicted bandwidth.

        The nearest grid point in the logarithm; below half of the lowest
        one everything stays on the robot.
        """
        if strategy != LOCAL and mbps < self.grid[0] / 2:
            strategy = LOCAL
        distance = {i: abs(math.log(max(mbps, 1e-9) / e.mbps))
                    for i, e in enumerate(self.entries) if e.strategy == strategy}
        if not distance:
            raise ValueError(f'the book has no strategy {strategy!r}; it has '
                             f'{sorted({e.strategy for e in self.entries})}')
        return min(distance, key=lambda i: distance[i])

    def to_json(self) -> str:
        """Return the book as indented JSON text."""
        data = {'format': FORMAT, 'digest': self.digest, 'axis': self.axis, 'delay': self.delay,
                'overhead': self.overhead, 'lossy': self.lossy,
                'lossy_difference': self.lossy_difference,
                'entries': [{**asdict(e), 'partition': e.partition.to_dict()}
                            for e in self.entries]}
        return json.dumps(data, indent=1)

    @classmethod
    def from_json(cls, text: str) -> ScheduleBook:
        """
        Read what `to_json` wrote.

        Raises
        ------
        ValueError
            If the text is no schedule book, or one of another format.

        """
        try:
            data = json.loads(text)
            if data.get('format') != FORMAT:
                raise ValueError(f'its format is {data.get("format")!r}, wanted {FORMAT!r}')
            if not 1 <= len(data['entries']) <= MAX_ENTRIES:
                raise ValueError(f'it has {len(data["entries"])} entries, not 1..{MAX_ENTRIES}')
            return cls(str(data['digest']), int(data['axis']), float(data['delay']),
                       float(data['overhead']), tuple(_entry(e) for e in data['entries']),
                       str(data['lossy']), _difference(data['lossy_difference']))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError,
                RecursionError) as error:
            raise ValueError(f'not a schedule book: {error}') from error

    def save(self, path: Path) -> None:
        """Write the book to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(self.to_json())

    @classmethod
    def load(cls, path: Path) -> ScheduleBook:
        """Read a book from a file; ValueError if it is none."""
        return cls.from_json(path.read_text())


def _difference(found: Any) -> float | None:
    if found is not None and not 0 <= float(found) < float('inf'):
        raise ValueError(f'impossible difference: {found}')
    return None if found is None else float(found)


def _entry(data: Mapping[str, Any]) -> Entry:
    mbps, predicted = float(data['mbps']), float(data['predicted'])
    if not (0 < mbps < float('inf') and 0 <= predicted < float('inf')):
        raise ValueError(f'impossible entry: {mbps} Mbit/s, {predicted} s')
    return Entry(mbps, str(data['strategy']), predicted, Partition.from_dict(data['partition']))


def make_book(cost: CostModel, digest: str, *, grid: Sequence[float] | None = None,
              delay: float = 0.0, overhead: float = 0.0, seed: int = 0, lossy: str = '',
              progress: Progress | None = None) -> ScheduleBook:
    """
    Compute the schedules of all strategies for every bandwidth.

    `progress` is called with points done and points in all; `lossy` is a
    lossy encoding that the user allows.
    """
    grid = tuple(grid or bandwidth_grid())
    entries: list[Entry] = []
    for done, mbps in enumerate(grid):
        entries += plan_bandwidth(cost, mbps, delay, overhead, seed, lossy)
        if progress:
            progress(done + 1, len(grid))
    return ScheduleBook(digest, cost.split.axis, delay, overhead, tuple(entries), lossy)


def plan_bandwidth(cost: CostModel, mbps: float, delay: float, overhead: float, seed: int,
                   lossy: str = '') -> list[Entry]:
    """
    Compute the schedules of all strategies for one bandwidth in Mbit/s.

    Each value crosses in the encoding that is fastest at this bandwidth.
    """
    link = LinkModel.symmetric(mbps, delay, overhead)
    encodings = best_encodings(cost, link, lossy)
    cost = assuming(cost, encodings)
    baselines = {LOCAL: best_local(cost, link), OFFLOAD: best_offload(cost, link),
                 CUT: best_cut(cost, link)}
    single = Partition((Stage(len(cost.split.operators), 0.5, 1, 4),))
    starts = [loss(cost, link, seed=seed), single]
    refined = [refine(cost, link, start) for start in starts]
    found = {**baselines, LOSS: best_of([*baselines.values(), *refined])}
    return [Entry(mbps, name, judged.latency, encoded(cost.split, judged.partition, encodings))
            for name, judged in found.items()]
