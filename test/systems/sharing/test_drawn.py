# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the robot's sensor saw while an inference ran."""
from __future__ import annotations

import threading
import time

import pytest
from sharing import infer_until_shared, sharing_pair, SOURCE
import torch
from waiting import wait_for

from intradp_ros.power.meter import EnergyMeter
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.systems.sharing.strategies import (
    LOCAL,
)


class Steady:
    """A sensor of a board that always draws 7 W."""

    source, sees_accelerators = 'a steady board', True

    def joules(self, now: float) -> float:
        """Return what was drawn until now."""
        return 7.0 * now


def test_every_inference_says_what_was_drawn_meanwhile(model: SharedModel, wanted: torch.Tensor,
                                                        ) -> None:
    meter = EnergyMeter(Steady(), 0.005)
    wait_for(lambda: meter.drawn(time.monotonic(), time.monotonic()) is not None)
    with sharing_pair(model) as pair:
        pair.robot.meter = meter
        shared = infer_until_shared(pair.robot, (SOURCE,), wanted)
        for outcome in (shared, pair.robot.infer((SOURCE,), strategy=LOCAL)):
            assert outcome.stats.drawn == pytest.approx(7.0 * outcome.stats.latency)
    assert not any(thread.name == 'energy-meter' for thread in threading.enumerate())


def test_nothing_is_reported_without_a_sensor(model: SharedModel) -> None:
    with sharing_pair(model) as pair:
        stats = pair.robot.infer((SOURCE,)).stats
        assert stats.drawn is None and stats.energy > 0
