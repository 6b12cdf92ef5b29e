# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A thread that reads a sensor, and what it reports for any stretch of time."""
from __future__ import annotations

from collections.abc import Callable
import logging
import time

import pytest
from waiting import wait_for

from intradp_ros.power.meter import EnergyMeter


class Wire:
    """A sensor whose power is a function of time."""

    source, sees_accelerators = 'a wire', True

    def __init__(self, joules: Callable[[float], float]) -> None:
        self.readings = 0
        self._joules = joules

    def joules(self, now: float) -> float:
        """Return what was drawn until now."""
        self.readings += 1
        return self._joules(now)


def read(sensor: Wire, count: int) -> None:
    """Wait until a sensor was read that many times more."""
    wanted = sensor.readings + count
    wait_for(lambda: sensor.readings >= wanted)


def test_even_power_is_reported_for_any_stretch() -> None:
    sensor = Wire(lambda now: 7.0 * now)
    meter = EnergyMeter(sensor, 0.01)
    read(sensor, 5)
    now = time.monotonic()
    assert meter.drawn(now - 0.013, now) == pytest.approx(7.0 * 0.013)
    assert meter.drawn(now, now + 0.5) == pytest.approx(3.5)  # goes on as it was
    assert meter.drawn(now, now + 5.0) is None  # but not for ever
    meter.close()


def test_a_step_is_seen_where_it_was() -> None:
    """Within what the thread may have been late."""
    step = time.monotonic() + 0.6
    sensor = Wire(lambda now: 2.0 * now + 10.0 * max(0.0, now - step))
    meter = EnergyMeter(sensor, 0.005)
    while time.monotonic() < step + 0.5:
        time.sleep(0.01)
    read(sensor, 2)
    assert meter.drawn(step - 0.4, step - 0.2) == pytest.approx(2.0 * 0.2, rel=0.2)
    assert meter.drawn(step - 0.4, step + 0.4) == pytest.approx(1.6 + 4.0, rel=0.1)
    meter.close()


def test_nothing_is_reported_of_what_was_not_read() -> None:
    sensor = Wire(lambda now: now)
    before = time.monotonic()
    meter = EnergyMeter(sensor, 0.005)
    read(sensor, 3)
    assert meter.drawn(before - 1.0, before) is None
    meter.close()


def test_a_sensor_that_fails_is_reported_once_and_read_again(caplog: pytest.LogCaptureFixture,
                                                         ) -> None:
    broken = True

    def joules(now: float) -> float:
        if broken:
            raise OSError('no answer on the bus')
        return 3.0 * now

    sensor = Wire(joules)
    with caplog.at_level(logging.WARNING):
        meter = EnergyMeter(sensor, 0.002)
        read(sensor, 5)
        now = time.monotonic()
        assert meter.drawn(now - 0.001, now) is None
        broken = False
        read(sensor, 5)
    now = time.monotonic()
    assert meter.drawn(now - 0.001, now) == pytest.approx(0.003)
    assert [record.message for record in caplog.records] == [
        'a wire does not answer: no answer on the bus']
    meter.close()


def test_closing_ends_the_reading() -> None:
    sensor = Wire(lambda now: now)
    meter = EnergyMeter(sensor, 0.002)
    read(sensor, 2)
    meter.close()
    count = sensor.readings
    time.sleep(0.02)
    assert sensor.readings == count
