# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet on one machine: a network namespace for each device, behind one access point.

All stations share the air: what one sends passes the one token bucket on its
way to the access point, and again on the way to another station; a wired
device has a port of its own.  `device_limits.py` limits what devices compute and hold.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from intradp_lab.emulation.namespaces import owned_namespaces, run
from intradp_lab.emulation.network import (
    ACCESS_POINT,
    AIR,
    burst_bytes,
    DEVICE,
    join,
    MULTICAST,
)
from intradp_lab.emulation.settings import check_rate, QUEUE_BYTES

PREFIX = 'intradp-fleet'
MOST_DEVICES = 8


@dataclass(frozen=True, slots=True)
class FleetNetwork:
    """Devices behind one access point; made by `fleet_network`."""

    namespaces: Mapping[str, str]
    ports: Mapping[str, str]

    @property
    def discovery(self) -> dict[str, str]:
        """Return the variables by which ROS nodes find each other."""
        return {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET'}

    def exec_prefix(self, device: str) -> list[str]:
        """Return the words to put before a command to run it on a device."""
        return ['ip', 'netns', 'exec', self.namespaces[device]]

    def set_rate(self, mbit: float) -> None:
        """Set the rate that all stations share, in 1e6 bits per second, at once."""
        check_rate(mbit)
        run('tc', '-n', self.namespaces[ACCESS_POINT], 'qdisc', 'replace', 'dev', AIR, 'root',
            'tbf', 'rate', f'{round(mbit * 1e6)}bit', 'burst', str(burst_bytes(mbit)), 'limit',
            str(QUEUE_BYTES))

    def cut(self, device: str) -> None:
        """Let what a device sends and should get vanish until `restore`."""
        run('ip', '-n', self.namespaces[ACCESS_POINT], 'link', 'set', self.ports[device], 'down')

    def restore(self, device: str) -> None:
        """Join a device again."""
        run('ip', '-n', self.namespaces[ACCESS_POINT], 'link', 'set', self.ports[device], 'up')


def address(index: int) -> str:
    """Return the address of the device of that number."""
    return f'10.78.0.{index + 1}'


def _hardware(index: int) -> str:
    return f'02:00:0a:4e:00:{index + 1:02x}'


@contextmanager
def fleet_network(devices: Sequence[str], mbit: float, wired: Sequence[str] = (),
                  prefix: str = PREFIX) -> Iterator[FleetNetwork]:
    """
    Make the devices' namespaces, joined by an access point whose air has `mbit` Mbit/s.

    They are gone when it is left (`owned_namespaces`).

    :raises ValueError: for more than eight devices, or a rate that is not above 0.
    :raises NetworkError: when the system refuses; `network.available` says why beforehand.
    """
    if not 2 <= len(devices) <= MOST_DEVICES:
        raise ValueError(f'a fleet has 2 to {MOST_DEVICES} devices here, got {len(devices)}')
    check_rate(mbit)
    roles = {name: f'd{chr(ord("a") + k)}' for k, name in enumerate(devices)}
    with owned_namespaces(prefix, [*roles.values(), ACCESS_POINT]) as names:
        network = FleetNetwork(
            MappingProxyType({**{name: names[role] for name, role in roles.items()},
                              ACCESS_POINT: names[ACCESS_POINT]}), MappingProxyType(roles))
        _set_up(network, devices, set(devices) - set(wired))
        network.set_rate(mbit)
        yield network


def _set_up(network: FleetNetwork, devices: Sequence[str], stations: set[str]) -> None:
    """Create, join and address the namespaces."""
    for name in network.namespaces.values():
        run('ip', 'netns', 'add', name)
    ap = network.namespaces[ACCESS_POINT]
    for device in devices:
        join((network.namespaces[device], DEVICE), (ap, network.ports[device]))
    _set_up_access_point(network, sorted(network.ports[name] for name in stations))
    for index, device in enumerate(devices):
        _bring_up(network.namespaces[device], index, len(devices))


def _bring_up(namespace: str, index: int, count: int) -> None:
    """Address a device; give it the others' hardware addresses, which an outage would forget."""
    others = ''.join(
        f'neighbour replace {address(k)} lladdr {_hardware(k)} nud permanent dev {DEVICE}\n'
        for k in range(count) if k != index)
    run('ip', '-n', namespace, '-batch', '-', given=(
        'link set lo up multicast on\n'
        f'address add {address(index)}/24 dev {DEVICE}\n'
        f'link set {DEVICE} address {_hardware(index)}\n'
        f'link set {DEVICE} up\n'
        f'route replace {MULTICAST} dev {DEVICE}\n{others}'))


def _set_up_access_point(network: FleetNetwork, stations: Sequence[str]) -> None:
    """Bridge the ports; let all that crosses a station's port pass the air."""
    ap, ports = network.namespaces[ACCESS_POINT], network.ports.values()
    run('ip', '-n', ap, '-batch', '-', given='\n'.join([
        *(f'link set {port} addrgenmode none up' for port in ports),
        'link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0',
        'link set bridge addrgenmode none up',
        *(f'link set {port} master bridge' for port in ports),
        f'link add {AIR} type ifb', f'link set {AIR} up']) + '\n')
    run('tc', '-n', ap, '-batch', '-', given=''.join(
        f'qdisc add dev {port} clsact\n' + ''.join(
            f'filter add dev {port} {way} protocol all u32 match u32 0 0 '
            f'action mirred egress redirect dev {AIR}\n' for way in ('ingress', 'egress'))
        for port in stations))
