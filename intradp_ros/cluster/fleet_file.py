# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``fleet.yaml``: which machines there are, and what joins them."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from intradp_ros.cluster.device import Battery, Device, gateway_place
from intradp_ros.cluster.located_yaml import (
    ENERGY,
    FleetFileError,
    Located,
    MAX_BYTES,
    MEMORY,
    parse,
    RATE,
    TIME,
)
from intradp_ros.cluster.topology import behind_access_point, Medium, ring, Topology
from intradp_ros.cluster.topology import Path as MediaPath
from intradp_ros.core.plain_file import open_to_read
from intradp_ros.power.power_states import PowerStates

MAX_DEVICES = 256
GIGABIT = 125e6

_DEVICE = ('memory', 'speed', 'profile', 'threads', 'disk', 'power', 'battery', 'site',
           'gateway')
_KINDS = ('access point', 'ring', 'cable')


@dataclass(frozen=True, slots=True)
class Network:
    """
    What joins some devices: an access point, a ring or a cable, `rate` in bytes per second.

    `wired` are those of an access point's devices that have a port there,
    of `port` bytes per second each way.
    """

    name: str
    kind: str
    members: tuple[str, ...]
    rate: float
    delay: float = 0.0
    wired: tuple[str, ...] = ()
    port: float = GIGABIT


@dataclass(frozen=True)
class Fleet:
    """A fleet: its topology, the networks it is made of, and files of profiles by device."""

    topology: Topology
    networks: tuple[Network, ...]
    profiles: Mapping[str, Path]


def read_fleet(path: Path) -> Fleet:
    """
    Read a file.

    :raises FleetFileError: if it cannot be read or used; the text names file, line and fix.
    """
    try:
        with open_to_read(path) as stream:
            data = stream.read(MAX_BYTES + 1)
        text = data.decode('utf-8-sig')
    except UnicodeDecodeError as error:
        line = data.count(b'\n', 0, error.start) + 1
        raise FleetFileError(f'{path}:{line}: is not encoded in UTF-8: save it as UTF-8') from None
    except OSError as error:
        raise FleetFileError(f'{path}: cannot be read: {error.strerror}') from None
    return parse_fleet(text, str(path), path.parent)


def parse_fleet(text: str, file: str = 'fleet.yaml', folder: Path = Path()) -> Fleet:
    """Return the fleet that a text describes; as `read_fleet`. Profiles are found in `folder`."""
    top = parse(text, file)
    fields = top.fields(('devices', 'networks', 'media', 'paths'), ('devices',))
    entries = list(fields['devices'].entries())
    if not 0 < len(entries) <= MAX_DEVICES:
        raise fields['devices'].fail(f'a fleet has 1 to {MAX_DEVICES} devices')
    devices, disks = [], []
    profiles: dict[str, Path] = {}
    for name, place in entries:
        device, disk, profile = _device(name, place)
        devices.append(device)
        disks += [disk] if disk else []
        profiles |= {name: folder / profile} if profile else {}
    networks = tuple(_network(name, place, [d.name for d in devices])
                     for name, place in (fields['networks'].entries()
                                         if 'networks' in fields else ()))
    draft = _Draft(devices, networks, disks, fields)
    try:
        return Fleet(draft.topology(), networks, profiles)
    except ValueError as error:
        raise top.fail(str(error)) from None


def _device(name: str, place: Located) -> tuple[Device, Medium | None, str]:
    """Return a device, its disk, and the name of its profile."""
    fields = place.fields(_DEVICE, ('memory',))
    if 'speed' in fields and 'profile' in fields:
        raise fields['speed'].fail('a device with a profile of its own needs no speed: '
                                   'remove one of them')
    disk = None
    if 'disk' in fields:
        disk = Medium(f'{name}.disk', fields['disk'].quantity(RATE))
    device = Device(
        name, fields['memory'].quantity(MEMORY),
        fields['speed'].number(0.0, above=True) if 'speed' in fields else 1.0,
        fields['threads'].whole(1) if 'threads' in fields else 1,
        disk.name if disk else '',
        _power(fields['power']) if 'power' in fields else None,
        _battery(fields['battery']) if 'battery' in fields else None,
        fields['site'].text() if 'site' in fields else '',
        _gateway(fields['gateway']) if 'gateway' in fields else '')
    return device, disk, fields['profile'].text() if 'profile' in fields else ''


def _gateway(place: Located) -> str:
    try:
        return gateway_place(place.text())
    except ValueError:
        raise place.fail('write where it takes requests: HOST:PORT') from None


def _power(place: Located) -> PowerStates:
    fields = place.fields(('compute', 'send', 'receive', 'idle'), ('compute', 'send', 'idle'))
    watts = {name: value.number() for name, value in fields.items()}
    return PowerStates(watts['compute'], watts['send'], watts['idle'], 'declared in the fleet',
                       watts.get('receive'))


def _battery(place: Located) -> Battery:
    fields = place.fields(('capacity', 'level'), ('capacity',))
    capacity = fields['capacity'].quantity(ENERGY)
    level = fields['level'].number() if 'level' in fields else 1.0
    if level > 1:
        raise fields['level'].fail('write a share of the capacity, 0 to 1')
    return Battery(capacity, level * capacity)


def _network(name: str, place: Located, devices: Sequence[str]) -> Network:
    fields = place.fields((*_KINDS, 'devices', 'wired', 'port', 'delay'), ('devices',))
    kinds = [kind for kind in _KINDS if kind in fields]
    if len(kinds) != 1:
        raise place.fail(f'say once what it is and its rate, as in "{_KINDS[0]}: 100 Mbit/s"; '
                         f'there are {", ".join(_KINDS)}')
    if kinds[0] != _KINDS[0]:
        for key in ('wired', 'port'):
            if key in fields:
                raise fields[key].fail(f'only an {_KINDS[0]} has it: remove it')
    members = _known(fields['devices'], devices)
    if len(members) < 2 or kinds[0] == 'cable' and len(members) > 2:
        raise fields['devices'].fail('a cable joins two devices, a network two or more')
    return Network(
        name, kinds[0], members, fields[kinds[0]].quantity(RATE),
        fields['delay'].quantity(TIME, above=False) if 'delay' in fields else 0.0,
        _known(fields['wired'], members) if 'wired' in fields else (),
        fields['port'].quantity(RATE) if 'port' in fields else GIGABIT)


def _known(place: Located, names: Sequence[str]) -> tuple[str, ...]:
    """Return a list of names, each one of some."""
    found = place.names()
    for name in found:
        if name not in names or found.count(name) > 1:
            raise place.fail(f'{name!r} is not one of {", ".join(names)}, or stands twice')
    return found


class _Draft:
    """Puts media and paths together; of two networks that join two devices the first does."""

    def __init__(self, devices: Sequence[Device], networks: Sequence[Network],
                 disks: Sequence[Medium], fields: Mapping[str, Located]) -> None:
        self._devices = tuple(devices)
        self._media = list(disks)
        self._paths: dict[tuple[str, str], MediaPath] = {}
        for network in networks:
            self._add(network)
        for name, place in fields['media'].entries() if 'media' in fields else ():
            if name in [m.name for m in self._media]:
                raise place.fail('a medium of that name is there already: choose another name')
            self._media.append(_medium(name, place))
        explicit = set[tuple[str, str]]()
        for name, place in fields['paths'].entries() if 'paths' in fields else ():
            ends = self._explicit(name, place)
            if ends in explicit:
                raise place.fail('this path stands here a second time: remove one of them')
            explicit.add(ends)

    def _add(self, network: Network) -> None:
        members = [Device(name) for name in network.members]
        if network.kind == 'access point':
            found = behind_access_point(members, network.rate, network.delay, network.wired,
                                        network.port)
        else:
            found = ring(members, network.rate, network.delay)
        names = {m.name: network.name if m.name == 'air' else f'{network.name}/{m.name}'
                 for m in found.media}
        self._media += [replace(m, name=names[m.name]) for m in found.media]
        for ends, path in found.paths.items():
            self._paths.setdefault(ends, tuple(names[name] for name in path))

    def _explicit(self, ends: str, place: Located) -> tuple[str, str]:
        """Take a path; return from where to where it leads."""
        source, arrow, target = (part.strip() for part in ends.partition('>'))
        known = [d.name for d in self._devices]
        if not arrow or source not in known or target not in known or source == target:
            raise place.fail('write "a > b: [medium, ...]" with two of the devices '
                             f'{", ".join(known)}')
        media = place.names()
        if not media:
            raise place.fail('a path of no media: name what it crosses, or leave the path out')
        for name in media:
            if name not in [m.name for m in self._media]:
                raise place.fail(f'there is no medium {name!r}; there are '
                                 f'{", ".join(m.name for m in self._media)}')
        self._paths[source, target] = media
        return source, target

    def topology(self) -> Topology:
        """Return what was put together; raise ValueError where names meet."""
        return Topology(self._devices, tuple(self._media), self._paths)


def _medium(name: str, place: Located) -> Medium:
    fields = place.fields(('rate', 'delay'), ('rate',))
    delay = fields['delay'].quantity(TIME, above=False) if 'delay' in fields else 0.0
    return Medium(name, fields['rate'].quantity(RATE), delay)
