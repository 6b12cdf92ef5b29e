# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Sensors of what a machine draws, as Linux shows them: INA3221 on Jetsons, RAPL on processors.

Jetsons have them as hwmon (JetPack 5 and later: mV and mA) or as iio devices
(JetPack 4: mW), Intel's and AMD's processors as powercap zones (uJ that begin
again at 0 now and then; most kernels let only root read them).
"""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
import logging
from pathlib import Path
from typing import Protocol

SYSFS = Path('/sys')
#: The rails that feed a whole module; the others branch from these.
WHOLE = frozenset({'VDD_IN', 'POM_5V_IN', '5V_IN'})
_UNUSED = frozenset({'', 'NC'})
_LOG = logging.getLogger(__name__)


class EnergySensor(Protocol):
    """
    Counts what a machine draws; `source` says by what, and of which part of it.

    `sees_accelerators` says whether these are among that.
    """

    source: str
    sees_accelerators: bool

    def joules(self, now: float) -> float:
        """
        Return what was drawn since the first call (0 then), at `now` seconds of any clock.

        OSError or ValueError if the sensor does not answer.
        """


@dataclass(frozen=True, slots=True)
class Rail:
    """A supply rail of an INA3221: files whose numbers, multiplied, are so many units of watts."""

    label: str
    factors: tuple[Path, ...]
    unit: float

    def watts(self) -> float:
        """Return what the rail carries now."""
        watts = self.unit
        for path in self.factors:
            watts *= _number(path)
        return watts


class Rails:
    """Supply rails together; what they carry is taken to change evenly between two calls."""

    sees_accelerators = True

    def __init__(self, rails: Sequence[Rail]) -> None:
        self.source = f'INA3221 {" + ".join(rail.label for rail in rails)}'
        self._rails = rails
        self._last: tuple[float, float] | None = None
        self._total = 0.0

    def joules(self, now: float) -> float:
        """Return what was drawn since the first call."""
        watts = sum(rail.watts() for rail in self._rails)
        if self._last is not None:
            before, was = self._last
            self._total += (now - before) * (watts + was) / 2
        self._last = now, watts
        return self._total


@dataclass(frozen=True, slots=True)
class Zone:
    """A powercap zone: a counter of microjoules that begins again at 0 after `span` of them."""

    label: str
    counter: Path
    span: float


class Counters:
    """Counters of energy together, to be read more often than they begin again (minutes)."""

    sees_accelerators = False

    def __init__(self, zones: Sequence[Zone]) -> None:
        self.source = f'RAPL {" + ".join(zone.label for zone in zones)}'
        self._zones = zones
        self._last: list[float] | None = None
        self._total = 0.0

    def joules(self, now: float) -> float:
        """Return what was drawn since the first call."""
        counts = [_number(zone.counter) for zone in self._zones]
        if self._last is not None:
            self._total += 1e-6 * sum(
                new - old if new >= old else new - old + zone.span
                for zone, old, new in zip(self._zones, self._last, counts))
        self._last = counts
        return self._total


def find_sensor(sysfs: Path = SYSFS) -> EnergySensor | None:
    """
    Return the sensor that sees most of this machine, None if it has none that can be read.

    A rail that feeds a whole module is taken alone; where there is none, all
    rails together (some may feed others).  Of processors, packages and
    memory count; the rest of the machine draws unseen.
    """
    rails = [*_hwmon_rails(sysfs), *_iio_rails(sysfs)]
    if rails := [rail for rail in rails if rail.label in WHOLE] or rails:
        return Rails(rails)
    zones = list(_zones(sysfs))
    return Counters(zones) if zones else None


def _hwmon_rails(sysfs: Path) -> Iterator[Rail]:
    for device in sorted((sysfs / 'class' / 'hwmon').glob('hwmon*')):
        if _text(device / 'name') != 'ina3221':
            continue
        for channel in (1, 2, 3):
            files = device / f'in{channel}_input', device / f'curr{channel}_input'
            yield from _readable(Rail(_text(device / f'in{channel}_label'), files, 1e-6))


def _iio_rails(sysfs: Path) -> Iterator[Rail]:
    for device in sorted((sysfs / 'bus' / 'i2c' / 'drivers' / 'ina3221x').glob('*/iio:device*')):
        for channel in (0, 1, 2):
            file = device / f'in_power{channel}_input'
            yield from _readable(Rail(_text(device / f'rail_name_{channel}'), (file,), 1e-3))


def _readable(rail: Rail) -> Iterator[Rail]:
    try:
        rail.watts()
    except (OSError, ValueError):  # a channel that is not used, or switched off
        return
    if rail.label not in _UNUSED:
        yield rail


def _zones(sysfs: Path) -> Iterator[Zone]:
    """Find packages, and the memory that belongs to them."""
    for zone in sorted((sysfs / 'class' / 'powercap').glob('intel-rapl:*')):
        label = _text(zone / 'name')
        if not label.startswith('package') and label != 'dram':
            continue
        counter, span = zone / 'energy_uj', zone / 'max_energy_range_uj'
        try:
            _number(counter)
            yield Zone(label, counter, _number(span))
        except PermissionError:
            _LOG.info('%s is for root only: what this machine draws is not measured', counter)
        except (OSError, ValueError):
            continue


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ''


def _number(path: Path) -> float:
    return float(path.read_text())
