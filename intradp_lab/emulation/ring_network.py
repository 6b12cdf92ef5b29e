# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet on one machine in a ring: a network namespace for each device, a cable to each neighbour.

Each hop has a rate of its own each way.  What goes further than to a neighbour takes the
shorter way round (of equal ones that of ascending devices), and passes the devices
between, as in `cluster/topology.py`.  Multicast does not: the devices know each other's
addresses (`discovery`).
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from intradp_lab.emulation.fleet_network import MOST_DEVICES
from intradp_lab.emulation.namespaces import owned_namespaces, run
from intradp_lab.emulation.network import burst_bytes, join, MULTICAST
from intradp_lab.emulation.settings import check_rate, QUEUE_BYTES

PREFIX = 'intradp-ring'
#: A device's interfaces: to the device after it, to the one before it, and the one of its address.
NEXT, PREVIOUS, OWN = 'next', 'previous', 'own'


@dataclass(frozen=True, slots=True)
class RingNetwork:
    """Devices in a ring, in this order; made by `ring_network`."""

    namespaces: Mapping[str, str]

    @property
    def devices(self) -> tuple[str, ...]:
        """The devices, each next to the following one, the last to the first."""
        return tuple(self.namespaces)

    @property
    def discovery(self) -> dict[str, str]:
        """Return the variables by which ROS nodes find each other without multicast."""
        peers = ';'.join(address(k) for k in range(len(self.devices)))
        return {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', 'ROS_STATIC_PEERS': peers}

    def exec_prefix(self, device: str) -> list[str]:
        """Return the words to put before a command to run it on a device."""
        return ['ip', 'netns', 'exec', self.namespaces[device]]

    def set_rate(self, mbit: float, source: str | None = None, target: str | None = None) -> None:
        """Set the rate of all hops, or of the one from a device to its neighbour, at once."""
        check_rate(mbit)
        for name in (source,) if source else self.devices:
            for end in (self._end(name, target),) if target else (NEXT, PREVIOUS):
                run('tc', '-n', self.namespaces[name], 'qdisc', 'replace', 'dev', end, 'root',
                    'tbf', 'rate', f'{round(mbit * 1e6)}bit', 'burst', str(burst_bytes(mbit)),
                    'limit', str(QUEUE_BYTES))

    def cut(self, device: str) -> None:
        """Let what a device sends, gets and passes on vanish until `restore`."""
        for end in (NEXT, PREVIOUS):
            run('ip', '-n', self.namespaces[device], 'link', 'set', end, 'down')

    def restore(self, device: str) -> None:
        """Join a device again."""
        for end in (NEXT, PREVIOUS):
            run('ip', '-n', self.namespaces[device], 'link', 'set', end, 'up')
        self._route(device)

    def _end(self, source: str, target: str) -> str:
        count, ahead = len(self.devices), self._ahead(source, target)
        if ahead not in (1, count - 1):
            raise ValueError(f'{target!r} is not a neighbour of {source!r}')
        return NEXT if ahead == 1 else PREVIOUS

    def _ahead(self, source: str, target: str) -> int:
        names = self.devices
        return (names.index(target) - names.index(source)) % len(names)

    def _route(self, device: str) -> None:
        """Set by which neighbour a device reaches each other, as if that were next to it."""
        lines, own, count = [], self.devices.index(device), len(self.devices)
        for index, other in enumerate(self.devices):
            if other == device:
                continue
            end = NEXT if self._ahead(device, other) <= count // 2 else PREVIOUS
            neighbour = (own + (1 if end == NEXT else -1)) % count
            hardware = _hardware(neighbour, PREVIOUS if end == NEXT else NEXT)
            lines += [
                f'neighbour replace {address(index)} lladdr {hardware} nud permanent dev {end}',
                f'route replace {address(index)}/32 dev {end} src {address(own)}']
        run('ip', '-n', self.namespaces[device], '-batch', '-', given='\n'.join(lines) + '\n')


def address(index: int) -> str:
    """Return the address of the device of that number."""
    return f'10.79.0.{index + 1}'


def _hardware(index: int, end: str) -> str:
    return f'02:00:0a:4f:{1 if end == NEXT else 2:02x}:{index + 1:02x}'


@contextmanager
def ring_network(devices: Sequence[str], mbit: float, prefix: str = PREFIX,
                 ) -> Iterator[RingNetwork]:
    """
    Make the devices' namespaces, joined in a ring whose hops have `mbit` Mbit/s each way.

    They are gone when it is left (`owned_namespaces`).

    :raises ValueError: for fewer than three or more than eight devices, or a rate not above 0.
    :raises NetworkError: when the system refuses; `network.available` says why beforehand.
    """
    if not 3 <= len(devices) <= MOST_DEVICES:
        raise ValueError(f'a ring has 3 to {MOST_DEVICES} devices here, got {len(devices)}')
    check_rate(mbit)
    roles = {name: f'd{chr(ord("a") + k)}' for k, name in enumerate(devices)}
    with owned_namespaces(prefix, list(roles.values())) as names:
        ring = RingNetwork(MappingProxyType({name: names[role] for name, role in roles.items()}))
        _set_up(ring)
        ring.set_rate(mbit)
        yield ring


def _set_up(ring: RingNetwork) -> None:
    """Create, join and address the namespaces."""
    spaces = list(ring.namespaces.values())
    for space in spaces:
        run('ip', 'netns', 'add', space)
    for index, space in enumerate(spaces):
        join((space, NEXT), (spaces[(index + 1) % len(spaces)], PREVIOUS))
    for index, space in enumerate(spaces):
        # The address is none of the cables', so that peers send to one address only.
        run('ip', '-n', space, '-batch', '-', given=(
            'link set lo up\n'
            f'link add {OWN} type veth peer name {OWN}-far\n'
            f'link set {OWN}-far addrgenmode none up\n'
            f'address add {address(index)}/32 dev {OWN}\n'
            f'link set {OWN} up multicast on\n'
            f'route replace {MULTICAST} dev {OWN}\n' + ''.join(
                f'link set {end} addrgenmode none\n'
                f'link set {end} address {_hardware(index, end)} up\n'
                for end in (NEXT, PREVIOUS))))
        run('ip', 'netns', 'exec', space, 'sysctl', '-qw', 'net.ipv4.ip_forward=1',
            'net.ipv4.conf.all.rp_filter=0', f'net.ipv4.conf.{NEXT}.rp_filter=0',
            f'net.ipv4.conf.{PREVIOUS}.rp_filter=0')
    for device in ring.devices:
        ring._route(device)
