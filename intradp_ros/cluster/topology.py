# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Which machines there are, and what the transfers between them share."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

from intradp_ros.cluster.device import Device

Path = tuple[str, ...]
"""The media that a transfer goes through, by name."""


@dataclass(frozen=True, slots=True)
class Medium:
    """
    What limits transfers together: the air of a Wi-Fi cell, one way of a port, a disk, a bus.

    All transfers through it have `bytes_per_second` together; each takes
    `delay` seconds in addition to the time of its bytes.
    """

    name: str
    bytes_per_second: float
    delay: float = 0.0


@dataclass(frozen=True)
class Topology:
    """
    Devices, media, and the path of a transfer from one device to another.

    :raises ValueError: if names occur twice or are unknown, a rate is not above zero, or a delay
        is below it.
    """

    devices: tuple[Device, ...]
    media: tuple[Medium, ...]
    paths: Mapping[tuple[str, str], Path]

    def __post_init__(self) -> None:
        """Check names and numbers."""
        _unique('device', (d.name for d in self.devices))
        _unique('medium', (m.name for m in self.media))
        for medium in self.media:
            if not medium.bytes_per_second > 0 or not medium.delay >= 0:
                raise ValueError(f'medium {medium.name!r} needs a rate above 0 and a delay of 0 '
                                 f'or more, got {medium.bytes_per_second} and {medium.delay}')
        for ends, path in self.paths.items():
            for name in ends:
                self.device(name)
            for name in path:
                self.medium(name)
        for device in self.devices:
            if device.disk:
                self.medium(device.disk)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The devices' names."""
        return tuple(d.name for d in self.devices)

    @cached_property
    def _devices(self) -> dict[str, Device]:
        return {d.name: d for d in self.devices}

    @cached_property
    def _media(self) -> dict[str, Medium]:
        return {m.name: m for m in self.media}

    def device(self, name: str) -> Device:
        """Return a device; raise ValueError where there is none of the name."""
        if name not in self._devices:
            raise ValueError(f'there is no device {name!r}; there are {", ".join(self._devices)}')
        return self._devices[name]

    def medium(self, name: str) -> Medium:
        """Return a medium; raise ValueError where there is none of the name."""
        if name not in self._media:
            raise ValueError(f'there is no medium {name!r}; there are {", ".join(self._media)}')
        return self._media[name]

    def path(self, source: str, target: str) -> Path:
        """
        Return the media between two devices; none from a device to itself.

        :raises ValueError: if nothing joins them.
        """
        if source == target:
            return ()
        if (source, target) not in self.paths:
            raise ValueError(f'no path leads from {source!r} to {target!r}')
        return self.paths[source, target]

    def rate(self, source: str, target: str) -> float:
        """
        Return the bytes per second that a transfer gets alone; infinite within a device.

        Of a medium that its path names twice it gets a half.
        """
        path = self.path(source, target)
        return min((self.medium(name).bytes_per_second / path.count(name) for name in path),
                   default=float('inf'))

    def delay(self, source: str, target: str) -> float:
        """Return the seconds that a transfer takes in addition to the time of its bytes."""
        return sum(self.medium(name).delay for name in self.path(source, target))

    def without(self, gone: Iterable[str]) -> Topology:
        """Return the topology of the devices that are left."""
        left = set(self.names) - set(gone)
        return Topology(tuple(d for d in self.devices if d.name in left), self.media,
                        {ends: path for ends, path in self.paths.items() if left.issuperset(ends)})


def behind_access_point(devices: Sequence[Device], bytes_per_second: float, delay: float = 0.0,
                        wired: Iterable[str] = (), port: float = 125e6) -> Topology:
    """
    Return devices of one Wi-Fi cell: every transfer takes from the same air, up and down.

    A transfer between two stations crosses the air twice, and is charged as
    a path that names it twice.  `wired` devices have a port of their own at
    the access point instead, `port` bytes per second each way.
    """
    cabled = set(wired)
    media = [Medium('air', bytes_per_second, delay)]
    media += [Medium(f'{d.name}.{way}', port) for d in devices if d.name in cabled
              for way in ('up', 'down')]

    def hop(name: str, way: str) -> str:
        return f'{name}.{way}' if name in cabled else 'air'

    return Topology(tuple(devices), tuple(media), {
        (a.name, b.name): (hop(a.name, 'up'), hop(b.name, 'down'))
        for a, b in permutations(devices, 2)})


def ring(devices: Sequence[Device], bytes_per_second: float, delay: float = 0.0) -> Topology:
    """Return devices in a ring: a medium for each hop and direction, the shorter way round."""
    names = [d.name for d in devices]
    count = len(names)
    media = {(i, step): Medium(f'{names[i]}>{names[(i + step) % count]}', bytes_per_second, delay)
             for i in range(count) for step in ((1, -1) if count > 2 else (1,))}
    paths = {}
    for a, b in permutations(range(count), 2):
        step = 1 if (b - a) % count <= count // 2 or count == 2 else -1
        hops = (b - a) % count if step == 1 else (a - b) % count
        paths[names[a], names[b]] = tuple(
            media[(a + step * k) % count, step].name for k in range(hops))
    return Topology(tuple(devices), tuple(media.values()), paths)


def dedicated_links(devices: Sequence[Device], bytes_per_second: float, delay: float = 0.0,
                    ) -> Topology:
    """Return devices of which every two have a medium of their own, one for each direction."""
    pairs = list(permutations([d.name for d in devices], 2))
    return Topology(tuple(devices),
                    tuple(Medium(f'{a}>{b}', bytes_per_second, delay) for a, b in pairs),
                    {(a, b): (f'{a}>{b}',) for a, b in pairs})


def _unique(kind: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if not name or name in seen:
            raise ValueError(f'every {kind} needs a name of its own, got {name!r} '
                             + ('twice' if name else 'as a name'))
        seen.add(name)
