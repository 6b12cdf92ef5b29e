# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the robot's sensor saw while an inference ran."""
from __future__ import annotations

import threading

import pytest
from sharing import FixedRate, hand_made_book, infer_until_shared
from small_models import seeded, UNet
import torch

from intradp_ros.execution.memory import memory_pair
from intradp_ros.execution.model import share_module
from intradp_ros.execution.pair import Pair
from intradp_ros.execution.robot import RobotClient
from intradp_ros.execution.server import OffloadServer
from intradp_ros.planning.baselines import LOCAL
from intradp_ros.power.meter import EnergyMeter

SOURCE = torch.rand(1, 3, 48, 64, generator=torch.Generator().manual_seed(0))


class Steady:
    """A sensor of a board that always draws 7 W."""

    source, whole = 'a steady board', True

    def joules(self, now: float) -> float:
        """Return what was drawn until now."""
        return 7.0 * now


def test_every_inference_tells_what_was_drawn_meanwhile() -> None:
    network = seeded(UNet, 48, 64)
    model, meter = share_module(network, (SOURCE,)), EnergyMeter(Steady(), 0.005)
    near, far = memory_pair()
    server = OffloadServer(far, {model.digest: model}, lambda text: None)
    robot = RobotClient(model, near, FixedRate(100.0), lambda text: None)
    robot.meter = meter
    with Pair(robot, server, near, far):
        robot.use_book(hand_made_book(model))
        with torch.inference_mode():
            wanted = network(SOURCE)
        shared = infer_until_shared(robot, (SOURCE,), wanted)
        for outcome in (shared, robot.infer((SOURCE,), strategy=LOCAL)):
            assert outcome.stats.drawn == pytest.approx(7.0 * outcome.stats.latency)
    assert not any(thread.name == 'energy-meter' for thread in threading.enumerate())


def test_nothing_is_told_without_a_sensor() -> None:
    model = share_module(torch.nn.Conv2d(3, 8, 3).eval(), (SOURCE,))
    near, far = memory_pair()
    with Pair(RobotClient(model, near, FixedRate(100.0), lambda text: None),
              OffloadServer(far, {model.digest: model}, lambda text: None), near, far) as pair:
        stats = pair.robot.infer((SOURCE,)).stats
        assert stats.drawn is None and stats.energy > 0
