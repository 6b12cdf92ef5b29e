# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Partitions: the few numbers from which the schedule of two sides follows."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

MAX_BANDS = 64


@dataclass(frozen=True, slots=True)
class Stage:
    """
    Operators up to `stop` (exclusive) between two exchanges of rows.

    Inside a stage each side computes all rows it needs itself, halos
    included; at its end rows are exchanged.  The robot owns the first
    `share` of the rows of every value that leaves the stage, the server the
    others.  A side computes its part in `robot_bands` or `server_bands`
    pieces, so that rows are sent while others are still computed.
    """

    stop: int
    share: float
    robot_bands: int = 1
    server_bands: int = 1


@dataclass(frozen=True, slots=True)
class Partition:
    """Stages in order; the last one ends with the graph's last operator."""

    stages: tuple[Stage, ...]

    def check(self, operators: int) -> None:
        """
        Raise ValueError unless the stages tile a graph of that many operators.

        Stages may come from a file or from the network, so every number is
        held to its range.
        """
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

    def to_dict(self) -> list[dict[str, Any]]:
        """Return plain data for a readable file."""
        return [asdict(stage) for stage in self.stages]

    @classmethod
    def from_dict(cls, data: Sequence[Mapping[str, Any]]) -> Partition:
        """
        Build from plain data.

        Raises
        ------
        ValueError
            If a key is missing, unknown or of the wrong type.

        """
        try:
            return cls(tuple(
                Stage(int(d['stop']), float(d['share']),
                      int(d['robot_bands']), int(d['server_bands']))
                for d in data))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f'not a list of stages: {error!r}') from error


def local(operators: int) -> Partition:
    """Everything on the robot."""
    return Partition((Stage(operators, 1.0),))


def offload(operators: int) -> Partition:
    """Whole input to the server, everything there, result back."""
    return Partition((Stage(operators, 0.0),))


def cut(operators: int, after: int) -> Partition:
    """Operators before `after` on the robot, the others on the server."""
    return Partition((Stage(after, 1.0), Stage(operators, 0.0)))
