# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Power states of this machine, measured by its own sensor."""
from __future__ import annotations

from collections.abc import Callable
import logging
import time

from intradp_ros.power.meter import EnergyMeter, INTERVAL
from intradp_ros.power.power_sensors import EnergySensor
from intradp_ros.power.power_states import PowerStates, XAVIER_NX

#: Seconds in which a state's power is measured, after some in which the sensor's mean follows.
SECONDS, SETTLING = 2.0, 0.5
_LOG = logging.getLogger(__name__)


def measure_power(sensor: EnergySensor, run: Callable[[], object], seconds: float = SECONDS,
                  settling: float = SETTLING) -> PowerStates:
    """
    Return what the machine draws in standby, and while `run` is called again and again.

    The radio is not tried: it counts with what it adds to a Jetson Xavier NX
    (paper, Table 3).  Where the sensor does not answer, or computing draws no
    more than standby, the measurement is worth nothing: a warning says so,
    and the states of that board are returned.
    """
    meter = EnergyMeter(sensor)
    try:
        idle = _watts(meter, _rest, seconds, settling)
        compute = _watts(meter, run, seconds, settling)
    finally:
        meter.close()
    if idle is None or compute is None or not 0 <= idle < compute:
        _LOG.warning('%s says %s W in standby and %s W computing, which cannot be; taking those '
                     'of a Jetson Xavier NX', sensor.source, idle, compute)
        return XAVIER_NX
    radio = XAVIER_NX.send - XAVIER_NX.idle
    return PowerStates(compute, idle + radio, idle,
                       f'measured: {sensor.source}; {radio:.2f} W for the radio, assumed')


def _rest() -> None:
    time.sleep(INTERVAL)


def _watts(meter: EnergyMeter, act: Callable[[], object], seconds: float, settling: float,
           ) -> float | None:
    """Return the mean power while something is done again and again, None if it is unknown."""
    _again_and_again(act, settling)
    begin = time.monotonic()
    _again_and_again(act, seconds)
    end = time.monotonic()
    time.sleep(2 * INTERVAL)  # until the meter has read what the end was like
    drawn = meter.drawn(begin, end)
    return None if drawn is None else drawn / (end - begin)


def _again_and_again(act: Callable[[], object], seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        act()
