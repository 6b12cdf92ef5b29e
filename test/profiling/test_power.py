# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Power states by a sensor, in standby and while something runs."""
from __future__ import annotations

import time

import pytest
import torch

from intradp_ros.execution.model import share_module
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.power import measure_power
from intradp_ros.profiling.profile import Profile, XAVIER_NX


class ProcessorSensor:
    """Counts 3 W all along and 8 W for every second of this process on a processor."""

    source = 'this process'

    def __init__(self, working: float = 8.0) -> None:
        self.working = working

    def joules(self, now: float) -> float:
        """Return what was drawn since a moment long ago."""
        return 3.0 * now + self.working * time.process_time()


class Silent:
    """A sensor that does not answer."""

    source = 'nobody'

    def joules(self, now: float) -> float:
        """Fail."""
        raise OSError('no answer')


def work() -> None:
    """Keep a processor busy for some milliseconds."""
    end = time.thread_time() + 0.005
    while time.thread_time() < end:
        pass


def test_standby_and_computing_are_told_apart() -> None:
    power = measure_power(ProcessorSensor(), work, seconds=0.3, settling=0.05)
    assert 3.0 <= power.idle < 4.5
    assert power.idle + 2.0 < power.compute <= 11.5
    assert power.send - power.idle == pytest.approx(XAVIER_NX.send - XAVIER_NX.idle)
    assert power.source == 'measured: this process; 0.21 W for the radio, assumed'


def test_what_cannot_be_is_not_taken() -> None:
    assert measure_power(ProcessorSensor(-5.0), work, seconds=0.1, settling=0.0) is XAVIER_NX


@pytest.mark.parametrize('sensor, source', [
    (ProcessorSensor(), 'measured: this process; 0.21 W for the radio, assumed'),
    (Silent(), XAVIER_NX.source), (None, XAVIER_NX.source)])
def test_a_profile_keeps_them(sensor: ProcessorSensor | Silent | None, source: str) -> None:
    inputs = (torch.rand(1, 3, 64, 64),)
    model = share_module(torch.nn.Conv2d(3, 32, 3, padding=1), inputs)
    profile = measure_profile(model.split, inputs, budget=0.0, sensor=sensor)
    assert profile.power.source == source
    assert Profile.from_json(profile.to_json()).power == profile.power
