# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Power states of this machine, measured by its own sensor."""
from __future__ import annotations

from collections.abc import Callable
import logging
import time

from intradp_ros.power.sensors import EnergySensor
from intradp_ros.profiling.profile import PowerStates, XAVIER_NX

#: Seconds in which a state's power is measured, after some in which the sensor's mean follows.
SECONDS, SETTLING = 2.0, 0.5
_PAUSE = 0.05  # seconds between two readings
_LOG = logging.getLogger(__name__)


def measure_power(sensor: EnergySensor, run: Callable[[], object], seconds: float = SECONDS,
                  settling: float = SETTLING) -> PowerStates:
    """
    Return what the machine draws in standby, and while `run` is called again and again.

    The radio is not tried: it counts with what it adds to a Jetson Xavier NX
    (paper, Table 3).  Where computing does not draw more than standby the
    measurement is worth nothing, and the states of that board are returned.

    Raises
    ------
    OSError, ValueError
        If the sensor does not answer.

    """
    idle = _watts(sensor, _rest, seconds, settling)
    compute = _watts(sensor, run, seconds, settling)
    if not 0 <= idle < compute:
        _LOG.warning('%s: %.2f W in standby and %.2f W computing cannot be; taking those of a '
                     'Jetson Xavier NX', sensor.source, idle, compute)
        return XAVIER_NX
    radio = XAVIER_NX.send - XAVIER_NX.idle
    return PowerStates(compute, idle + radio, idle,
                       f'measured: {sensor.source}; {radio:.2f} W for the radio, assumed')


def _rest() -> None:
    time.sleep(_PAUSE)


def _watts(sensor: EnergySensor, act: Callable[[], object], seconds: float, settling: float,
           ) -> float:
    """Return the mean power while something is done again and again."""
    _during(sensor, act, settling)
    begin, before = time.monotonic(), sensor.joules(time.monotonic())
    after = _during(sensor, act, seconds)
    return (after - before) / (time.monotonic() - begin)


def _during(sensor: EnergySensor, act: Callable[[], object], seconds: float) -> float:
    """Do something for some seconds, reading the sensor now and then; return the last reading."""
    end = time.monotonic() + seconds
    while True:
        act()
        joules = sensor.joules(now := time.monotonic())
        if now >= end:
            return joules
