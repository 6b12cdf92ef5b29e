# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Emulated devices that have part of this machine: control groups limit processor, memory and disk.

Version 1 and 2 of control groups are used as they are mounted.  Groups lie below that of
this process, so that its own limits hold too; their names say who made them, as those
of namespaces do, and they go with all processes in them.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import os
from pathlib import Path
import re
import signal
import time
from types import MappingProxyType

from intradp_lab.emulation.namespaces import owned_names, start_tick
from intradp_ros.core.control_groups import (
    CONTROLLERS,
    CPU,
    DISK,
    entering,
    Hierarchy,
    MEMORY,
    own_hierarchies,
)

PREFIX = 'intradp-limit'
#: Microseconds: short, so that a device is slow rather than away for a tenth of a second.
_PERIOD = 20_000
#: Times as much as others' processes: a device gets what it was given, whatever else runs.
_WEIGHT = 20
_KILL_ROUNDS = 200



class LimitError(RuntimeError):
    """A limit could not be set as asked; the text says what the system said."""


@dataclass(frozen=True, slots=True)
class DeviceLimits:
    """
    What a device may have; 0 for as much as there is.

    `cpus` are processor cores, 0.5 is half of one; `disk` bytes per second that are read.
    """

    cpus: float = 0.0
    memory: int = 0
    disk: float = 0.0

    @property
    def kinds(self) -> tuple[str, ...]:
        """What is limited."""
        wanted = ((CPU, self.cpus), (MEMORY, self.memory), (DISK, self.disk))
        return tuple(kind for kind, value in wanted if value)


@dataclass(frozen=True, slots=True)
class LimitedDevices:
    """Control groups by device, one for each hierarchy; made by `limited_devices`."""

    groups: Mapping[str, Sequence[Path]]

    def of(self, device: str) -> Sequence[Path]:
        """Return the groups of a device, as `Command` takes them."""
        return self.groups.get(device, ())

    def exec_prefix(self, device: str) -> list[str]:
        """Return the words to put before a command to run it on a device; first of all others."""
        return entering(self.of(device))


def settings(limits: DeviceLimits, version: int, disks: Sequence[str],
             ) -> dict[str, dict[str, str]]:
    """Return what is written to which file of a group, by what it limits."""
    quota, disk = max(1000, round(limits.cpus * _PERIOD)), round(limits.disk)
    if version == 2:
        return {CPU: {'cpu.max': f'{quota} {_PERIOD}', 'cpu.weight': str(100 * _WEIGHT)},
                MEMORY: {'memory.max': str(limits.memory), 'memory.swap.max': '0'},
                DISK: {'io.max': '\n'.join(f'{name} rbps={disk}' for name in disks)}}
    return {CPU: {'cpu.cfs_period_us': str(_PERIOD), 'cpu.cfs_quota_us': str(quota),
                  'cpu.shares': str(1024 * _WEIGHT)},
            MEMORY: {'memory.limit_in_bytes': str(limits.memory),
                     'memory.memsw.limit_in_bytes': str(limits.memory)},
            DISK: {'blkio.throttle.read_bps_device': '\n'.join(
                f'{name} {disk}' for name in disks)}}


#: Files that some kernels lack (without accounting of swap).
_OPTIONAL = ('memory.memsw.limit_in_bytes', 'memory.swap.max')


def disk_of(path: Path) -> str:
    """Return the number, ``major:minor``, of the whole disk that a path lies on."""
    device = path.stat().st_dev
    place = Path(f'/sys/dev/block/{os.major(device)}:{os.minor(device)}').resolve()
    if (place / 'partition').exists():
        place = place.parent
    try:
        return (place / 'dev').read_text().strip()
    except OSError:
        raise LimitError(f'{path} lies on no disk whose reading could be limited') from None


def available(*kinds: str) -> str | None:
    """Return why these (by default all) cannot be limited here; None if they can."""
    try:
        with limited_devices({'probe': DeviceLimits(
                0.5 if CPU in kinds or not kinds else 0.0,
                1 << 28 if MEMORY in kinds or not kinds else 0,
                1e9 if DISK in kinds or not kinds else 0.0)}, prefix='intradp-limit-probe'):
            return None
    except LimitError as error:
        return str(error)


@contextmanager
def limited_devices(limits: Mapping[str, DeviceLimits], folder: Path = Path('/var/tmp'),
                    prefix: str = PREFIX) -> Iterator[LimitedDevices]:
    """
    Make the devices' control groups; the limits of reading are for the disk of a folder.

    On the way out, however it is left, processes that still run in the groups are killed and
    the groups removed; what a killed run left behind is removed on the way in.

    :raises ValueError: if the devices should have more processor cores than there are.
    :raises LimitError: if the system refuses; `available` says why beforehand.
    """
    if sum(one.cpus for one in limits.values()) > (os.cpu_count() or 1):
        raise ValueError(f'the devices should have more than the {os.cpu_count()} cores that '
                         'there are')
    try:
        places = own_hierarchies()
    except OSError as error:
        raise LimitError(f'there are no control groups here: {error}') from error
    remove_stale(set(places.values()), prefix)
    roles = {name: f'd{chr(ord("a") + number)}' for number, name in enumerate(limits)}
    names = owned_names(prefix, list(roles.values()))
    made: list[Path] = []
    try:
        yield LimitedDevices(MappingProxyType({
            device: _make(names[roles[device]], one, places, folder, made)
            for device, one in limits.items()}))
    finally:
        for group in made:
            _remove(group)


def remove_stale(places: set[Hierarchy], prefix: str = PREFIX) -> list[Path]:
    """Remove what processes that are gone left behind, and return the groups."""
    pattern = re.compile(rf'{re.escape(prefix)}-(\d+)-(\d+)-\d+-[a-z]+')
    stale = [path for place in places for path in place.place.glob(f'{prefix}-*')
             if (found := pattern.fullmatch(path.name))
             and start_tick(int(found[1])) != found[2]]
    for path in stale:
        _remove(path)
    return stale


def _make(name: str, limits: DeviceLimits, places: Mapping[str, Hierarchy], folder: Path,
          made: list[Path]) -> list[Path]:
    """Make the groups of one device; those that are there already are added to `made`."""
    groups: list[Path] = []
    for kind in limits.kinds:
        if kind not in places:
            raise LimitError(f'no control group for {kind} is mounted here')
        place = places[kind]
        group = place.place / name
        files = settings(limits, place.version, [disk_of(folder)] if kind == DISK else ())[kind]
        try:
            if group not in made:
                if place.version == 2:
                    (place.place / 'cgroup.subtree_control').write_text(
                        ' '.join(f'+{CONTROLLERS[2][each]}' for each in limits.kinds))
                group.mkdir()
                made.append(group)
                groups.append(group)
            for file, text in files.items():
                if file not in _OPTIONAL or (group / file).exists():
                    (group / file).write_text(text)
        except OSError as error:
            raise LimitError(f'{kind} cannot be limited here: {error}; control groups need root '
                             '(in a container, --privileged)') from error
    return groups


def _remove(group: Path) -> None:
    """End every process in a group and remove it; no error if it is gone."""
    for _ in range(_KILL_ROUNDS):
        with suppress(OSError):
            for pid in (group / 'cgroup.procs').read_text().split():
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:  # a process takes a moment to go
            time.sleep(0.01)
        else:
            return
