# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What an inference gave and what it took."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from intradp_ros.runtime.transport.timeline import CATCH_UP, Event, RECOVERY, total
from intradp_ros.schedule.schedule import ROBOT


@dataclass(frozen=True)
class InferenceStats:
    """
    One inference in figures; seconds, bytes and joules.

    `shared` says that the server took part in the result, `by_rows` that both
    sides computed rows of the same operators besides, `recovered` that the
    robot finished what the server owed (and `reason` why).  `predicted` is
    what was expected beforehand: the book's prediction, corrected by what the
    schedule took lately; `alone` what the robot by itself is expected to
    take, 0 if nothing is known.  Energy is the robot's: `energy` modelled from
    its power states, `drawn` what its sensor saw of all that ran on it
    meanwhile, None where it has none.
    """

    inference: int
    strategy: str
    schedule: int
    shared: bool
    recovered: bool
    reason: str
    latency: float
    predicted: float
    compute: float
    waiting: float
    bytes_up: int
    bytes_down: int
    energy: float
    drawn: float | None = None
    by_rows: bool = False
    alone: float = 0.0


@dataclass(frozen=True)
class Outcome:
    """Outputs in the model's own structure, with figures and measured events."""

    outputs: Any
    stats: InferenceStats
    events: tuple[Event, ...]

    @property
    def local_catch_up(self) -> bool:
        """Whether the robot computed rows that the server owed it."""
        return any(event.name in (CATCH_UP, RECOVERY) for event in self.events)


def compute_and_wait(events: Sequence[Event]) -> tuple[float, float]:
    """Return the robot's seconds of compute and of waiting for rows."""
    return total(events, ROBOT, 'compute'), total(events, ROBOT, 'wait')
