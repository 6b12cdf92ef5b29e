# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How a worker waits and copies, and the device that it emulates."""
from __future__ import annotations

from dataclasses import dataclass

from intradp_ros.systems.training.run.stage_runner import StageRunner


@dataclass(frozen=True)
class Emulation:
    """
    Seconds of each layer for a sample, forward and back, and the rate of the network card.

    `step` are the seconds of each layer in the optimiser's step.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    rate: float | None = None
    step: tuple[float, ...] = ()

    def seconds(self, stage: StageRunner, kind: str, rows: int) -> float:
        """Return what a pass of a stage takes, or its step."""
        if kind == 'U':
            return sum(self.step[stage.first:stage.last])
        table = self.forward if kind == 'F' else self.backward
        return rows * sum(table[stage.first:stage.last])


@dataclass(frozen=True)
class Settings:
    """
    How a worker waits and copies: time-out of every wait (s), rounds between snapshots.

    Waits are longer by two rounds as the plan expects them.  Stages compute on `device`, which
    `split.calls.accelerator.open_device` opens.
    """

    timeout: float = 3.0
    every: int = 5
    address: str = '127.0.0.1'
    device: str = 'cpu'
    emulation: Emulation | None = None
