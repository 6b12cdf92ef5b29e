# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Power states by a sensor, in standby and while something runs."""
from __future__ import annotations

import time

import pytest
import torch

from intradp_ros.power.power_states import XAVIER_NX
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.power import measure_power
from intradp_ros.profiling.profile import (
    Profile,
)
from intradp_ros.runtime.models.model import share_module


class Board:
    """Draws 3 W, and more while it works; what it draws is seen only when it is looked at."""

    source, sees_accelerators = 'a board', True

    def __init__(self, working: float = 8.0) -> None:
        self.working, self.busy = working, False
        self._last: tuple[float, float] | None = None
        self._total = 0.0

    def joules(self, now: float) -> float:
        """Add up the power between two looks."""
        watts = 3.0 + self.working * self.busy
        if self._last:
            self._total += (now - self._last[0]) * (watts + self._last[1]) / 2
        self._last = now, watts
        return self._total

    def work(self) -> None:
        """Be busy for a while."""
        self.busy = True
        time.sleep(0.02)
        self.busy = False


class Silent:
    """A sensor that does not answer."""

    source, sees_accelerators = 'nobody', True

    def joules(self, now: float) -> float:
        """Fail."""
        raise OSError('no answer')


def test_standby_and_computing_are_distinguished() -> None:
    board = Board()
    power = measure_power(board, board.work, seconds=0.6, settling=0.2)
    assert power.idle == pytest.approx(3.0)
    assert power.compute == pytest.approx(11.0, rel=0.1)
    assert power.send - power.idle == pytest.approx(XAVIER_NX.send - XAVIER_NX.idle)
    assert power.source == 'measured: a board; 0.21 W for the radio, assumed'


def test_what_cannot_be_is_not_taken() -> None:
    board = Board(-2.0)
    assert measure_power(board, board.work, seconds=0.3, settling=0.1) is XAVIER_NX


class Busy(Board):
    """Draws more while this process has the processor."""

    def joules(self, now: float) -> float:
        """Return what was drawn since a moment long ago."""
        return 3.0 * now + 8.0 * time.process_time()


@pytest.mark.parametrize('sensor, source', [
    (Busy(), 'measured: a board; 0.21 W for the radio, assumed'),
    (Silent(), XAVIER_NX.source), (None, XAVIER_NX.source)])
def test_a_profile_keeps_them(sensor: Board | Silent | None, source: str) -> None:
    inputs = (torch.rand(1, 3, 64, 64),)
    model = share_module(torch.nn.Conv2d(3, 32, 3, padding=1), inputs)
    profile = measure_profile(model.split, inputs, budget=0.0, sensor=sensor)
    assert profile.power.source == source
    assert Profile.from_json(profile.to_json()).power == profile.power
