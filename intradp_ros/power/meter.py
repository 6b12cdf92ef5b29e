# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Reading a sensor all the time, so that nobody who asks what was drawn has to wait for it."""
from __future__ import annotations

from bisect import bisect_right
import logging
import threading
import time

from intradp_ros.core.steady import Steady
from intradp_ros.power.power_sensors import EnergySensor, find_sensor

#: Seconds between readings, and how many of them are kept.
INTERVAL, KEPT = 0.05, 4096
#: Seconds for which the power is taken to go on as it was.
TRUSTED = 1.0
_LOG = logging.getLogger(__name__)


class EnergyMeter:
    """
    Tells what was drawn between two moments of the last minutes.

    A thread of its own reads the sensor; `close` ends it.  Between readings,
    and for a while after the last one, the power is taken to be even: what is
    shorter than some intervals is a mean with what was before.
    """

    def __init__(self, sensor: EnergySensor, interval: float = INTERVAL) -> None:
        self.source = sensor.source
        self._sensor, self._interval = sensor, interval
        self._times: list[float] = []
        self._joules: list[float] = []
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._failed = False
        self._thread = threading.Thread(target=self._run, name='energy-meter', daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Read no more."""
        self._closed.set()
        self._thread.join()

    def drawn(self, start: float, stop: float) -> float | None:
        """
        Return joules between two times of the monotonic clock, in seconds.

        None if there were no two readings yet, only later ones than `start`, or
        none that is about as late as `stop`.
        """
        with self._lock:
            if len(self._times) < 2 or start < self._times[0] \
                    or stop > self._times[-1] + TRUSTED:
                return None
            return self._at(stop) - self._at(start)

    def _at(self, moment: float) -> float:
        """Interpolate between the readings around a moment, or go on as between the last two."""
        after = min(max(bisect_right(self._times, moment), 1), len(self._times) - 1)
        before, later = self._times[after - 1:after + 1]
        had, has = self._joules[after - 1:after + 1]
        return had + (has - had) * (moment - before) / (later - before)

    def _run(self) -> None:
        steady = Steady(self.source, _LOG.warning)
        while not self._closed.is_set():
            steady.do(self._read, None)
            self._closed.wait(self._interval)

    def _read(self) -> None:
        now = time.monotonic()
        try:
            joules = self._sensor.joules(now)
        except (OSError, ValueError) as error:
            if not self._failed:
                _LOG.warning('%s does not answer: %s', self.source, error)
            self._failed = True
            return
        self._failed = False
        with self._lock:
            if not self._times or now > self._times[-1]:
                self._times.append(now)
                self._joules.append(joules)
            del self._times[:-KEPT], self._joules[:-KEPT]


def open_meter() -> EnergyMeter | None:
    """Return a meter of this machine's sensor, None if it has none."""
    sensor = find_sensor()
    return EnergyMeter(sensor) if sensor else None
