# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What one robot process is to do, and what it saw: plain data that goes through files."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
import json
from pathlib import Path
from typing import Any

from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.profiling.profile import Profile

#: Links of recorded traces have short outages; systems are compared, not how soon they give up.
UNHURRIED: Mapping[str, float] = {'silence': 1.0, 'late_factor': 4.0, 'late_slack': 0.5}


@dataclass(frozen=True)
class Phase:
    """One system under test: a strategy of a book, run for some seconds or frames at least."""

    system: str
    book: str
    strategy: str
    seconds: float
    frames: int = 3


@dataclass(frozen=True)
class Trial:
    """
    Everything that the processes of one workload need.

    `model` is a `ModelSpec` as text; `profiles` are files by side, `patience`
    the settings of a `PatiencePolicy`.
    """

    model: str
    axis: int
    profiles: Mapping[str, str]
    phases: tuple[Phase, ...]
    output: str
    name: str = 'testbed'
    predictor: str = 'ewma'
    patience: Mapping[str, float] = field(default_factory=lambda: dict(UNHURRIED))

    def save(self, path: Path) -> None:
        """Write the trial to a file."""
        write_atomically(path, json.dumps(asdict(self), indent=1))

    def profile(self, side: str) -> Profile:
        """Read the profile of a side's device."""
        return Profile.from_json(Path(self.profiles[side]).read_text())

    @classmethod
    def load(cls, path: Path) -> Trial:
        """Read what `save` wrote."""
        data = json.loads(path.read_text())
        data['phases'] = tuple(Phase(**phase) for phase in data['phases'])
        return cls(**data)


@dataclass
class Seen:
    """
    What one system did, a number for each inference.

    `at` is seconds since the phase began, `rate` the Mbit/s that the robot
    predicted, `schedule` the id in the book, `transmission` the seconds in
    which rows were on their way (None where the server's report of its
    events did not come).  `timeline` has the events of inference number
    `typical`, whose latency is nearest to the median, as `Event.to_list`
    writes them.
    """

    system: str
    at: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    schedule: list[int] = field(default_factory=list)
    shared: list[bool] = field(default_factory=list)
    recovered: list[bool] = field(default_factory=list)
    compute: list[float] = field(default_factory=list)
    waiting: list[float] = field(default_factory=list)
    bytes_up: list[int] = field(default_factory=list)
    bytes_down: list[int] = field(default_factory=list)
    energy: list[float] = field(default_factory=list)
    transmission: list[float | None] = field(default_factory=list)
    typical: int = 0
    timeline: list[list[Any]] = field(default_factory=list)


def save_seen(seen: Sequence[Seen], path: Path) -> None:
    """Write what all systems did."""
    write_atomically(path, json.dumps([asdict(s) for s in seen]))


def load_seen(path: Path) -> list[Seen]:
    """Read what `save_seen` wrote."""
    data: list[dict[str, Any]] = json.loads(path.read_text())
    return [Seen(**row) for row in data]
