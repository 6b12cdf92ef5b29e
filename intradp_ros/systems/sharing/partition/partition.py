# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Partitions: the few numbers from which the schedule of two sides follows."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from intradp_ros.wire.codecs.names import ENCODINGS, LOSSY, NONE

MAX_BANDS = 64
MAX_GROWTH = 8.0
Encodings = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Pace:
    """
    How a side goes through its part of a stage, band by band.

    Each band has `growth` times the rows of the one before.  Bands follow
    from the first row to the last, or `upward` from the last to the first.
    They are bands of the rows that leave the stage, and of earlier operators
    what these need; or, `by_input`, of the rows that enter the stage, and of
    later operators what these allow.
    """

    growth: float = 1.0
    upward: bool = False
    by_input: bool = False

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Pace:
        """Build from plain data; TypeError or ValueError if it is not that of a pace."""
        growth, upward, by_input = data['growth'], data['upward'], data['by_input']
        if type(upward) is not bool or type(by_input) is not bool:
            raise ValueError(f'upward and by_input are true or false, got {upward}, {by_input}')
        return cls(float(growth), upward, by_input)

    def check(self) -> None:
        """Raise ValueError if the growth is out of its range."""
        if not 1 / MAX_GROWTH <= self.growth <= MAX_GROWTH:
            raise ValueError(f'growth must be within {1 / MAX_GROWTH}..{MAX_GROWTH}, '
                             f'got {self.growth}')


@dataclass(frozen=True, slots=True)
class RowStage:
    """
    Operators up to `stop` (exclusive) between two exchanges of rows.

    Inside a stage each side computes all rows it needs itself, halos
    included, and only records of reductions are exchanged; at its end rows
    are.  The robot owns the first
    `share` of the rows of every value that leaves the stage, the server the
    others.  A side computes its part in `robot_bands` or `server_bands`
    pieces, so that rows are sent while others are still computed.
    """

    stop: int
    share: float
    robot_bands: int = 1
    server_bands: int = 1
    robot_pace: Pace = Pace()
    server_pace: Pace = Pace()


@dataclass(frozen=True)
class Partition:
    """
    Stages in order; the last one ends with the graph's last operator.

    `encodings` are pairs of a value and the encoding that its rows cross the
    link in, ascending; values that are not among them cross plain.
    """

    stages: tuple[RowStage, ...]
    encodings: Encodings = ()

    def __hash__(self) -> int:
        """Return the hash, which is worked out once: choices look up dozens of partitions."""
        return self._hash

    @cached_property
    def _hash(self) -> int:
        return hash((self.stages, self.encodings))

    def __reduce__(self) -> tuple[type[Partition], tuple[tuple[RowStage, ...], Encodings]]:
        """Leave the hash behind when it is pickled: texts have another one in each process."""
        return Partition, (self.stages, self.encodings)

    @property
    def lossy(self) -> frozenset[str]:
        """The lossy ones among the encodings."""
        return frozenset(name for _, name in self.encodings) & frozenset(LOSSY)

    @property
    def by_rows(self) -> bool:
        """Whether both sides compute rows of the same operators."""
        return any(0.0 < stage.share < 1.0 for stage in self.stages)

    def check(self, operators: int, values: int | None = None) -> None:
        """
        Raise ValueError unless the stages tile a graph of that many operators.

        Stages may come from a file or from the network, so every number is
        held to its range.  With the graph's number of values, encodings are
        held to it too.
        """
        self._check_stages(operators)
        ids = [value for value, _ in self.encodings]
        last = float('inf') if values is None else values
        if ids != sorted(set(ids)) or not all(0 <= value < last for value in ids):
            raise ValueError(f'encodings must be for ascending values below {last}, got {ids}')
        for _, name in self.encodings:
            if name not in ENCODINGS or name == NONE:
                raise ValueError(f'{name!r} is not an encoding; values that cross plain are left '
                                 f'out, others cross as {", ".join(ENCODINGS[1:])}')

    def _check_stages(self, operators: int) -> None:
        stops = [stage.stop for stage in self.stages]
        if not stops or stops != sorted(set(stops)) or stops[0] < 1 or stops[-1] != operators:
            raise ValueError(
                f'stages must end at ascending operators, the last at {operators}; got {stops}')
        for stage in self.stages:
            if not 0.0 <= stage.share <= 1.0:
                raise ValueError(f'share must be within 0..1, got {stage.share}')
            for bands in (stage.robot_bands, stage.server_bands):
                if not 1 <= bands <= MAX_BANDS:
                    raise ValueError(f'bands must be within 1..{MAX_BANDS}, got {bands}')
            stage.robot_pace.check()
            stage.server_pace.check()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for a readable file."""
        return {'stages': [asdict(stage) for stage in self.stages],
                'encodings': [list(pair) for pair in self.encodings]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Partition:
        """
        Build from plain data.

        :raises ValueError: if a key is missing, unknown or of the wrong type, or there is no such
            encoding.
        """
        try:
            return cls(tuple(
                RowStage(int(d['stop']), float(d['share']),
                         int(d['robot_bands']), int(d['server_bands']),
                         Pace.from_dict(d['robot_pace']), Pace.from_dict(d['server_pace']))
                for d in data['stages']), _encodings(data.get('encodings', ())))
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            raise ValueError(f'not a partition: {error!r}') from error


def _encodings(data: Sequence[Sequence[Any]]) -> Encodings:
    pairs = tuple((value, name) for value, name in data)
    if not all(type(value) is int and type(name) is str for value, name in pairs):
        raise ValueError(f'not pairs of a value and an encoding: {data!r:.100}')
    return pairs


def local(operators: int) -> Partition:
    """Everything on the robot."""
    return Partition((RowStage(operators, 1.0),))


def offload(operators: int) -> Partition:
    """Whole input to the server, everything there, result back."""
    return Partition((RowStage(operators, 0.0),))


def cut(operators: int, after: int) -> Partition:
    """Operators before `after` on the robot, the others on the server."""
    return Partition((RowStage(after, 1.0), RowStage(operators, 0.0)))
