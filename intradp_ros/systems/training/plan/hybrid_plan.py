# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which device trains which layers with how many samples: what the hybrid planner returns."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class HybridStage:
    """
    Layers first to last - 1 on a group of devices.

    `shares` are the samples of each device in every micro-batch, in the order of the rows;
    at most `warm_up` micro-batches are forward before the first comes back.  The only stage of a
    plan may deal the whole round instead (`of_round`): each device takes its samples of the round
    in passes of its own, as few as micro-batches allow.
    """

    first: int
    last: int
    shares: tuple[tuple[str, int], ...]
    warm_up: int
    of_round: bool = False

    @property
    def devices(self) -> tuple[str, ...]:
        """Return the names of the group."""
        return tuple(name for name, _ in self.shares)


@dataclass(frozen=True)
class HybridPlan:
    """
    Stages of replica groups, and what a round of them takes.

    `seconds` are predicted, `memory` bytes by device, `carried` bytes by medium.
    """

    stages: tuple[HybridStage, ...]
    micro_batch: int
    micro_batches: int
    seconds: float = 0.0
    memory: Mapping[str, float] = field(default_factory=dict)
    carried: Mapping[str, float] = field(default_factory=dict)

    @property
    def shape(self) -> str:
        """Return the plan in one line: layers and the samples of each device, by stage."""
        return ' | '.join(f'{stage.first}-{stage.last - 1}: ' + ', '.join(
            f'{name} x{samples}' for name, samples in stage.shares)
            + (' of the round' if stage.of_round else '') for stage in self.stages)

    def to_dict(self) -> dict[str, Any]:
        """Return what JSON can hold."""
        return asdict(self)
