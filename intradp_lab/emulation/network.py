# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Robot and server on one machine, with a shaped link between them (Linux, as root).

Each side is a network namespace.  A pair of virtual Ethernet devices joins
them; or, if packets shall be delayed or lost, or queue between the sides,
each is joined to a third namespace, the access point, which bridges them or
runs the `forwarder`.  Token buckets (``tc tbf``) set the rate: one for each
way, on the sender's device or on the access point's, or one device that both
ways pass through.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
import os
from pathlib import Path
import shutil
import subprocess
import sys
from types import MappingProxyType
import warnings

from intradp_lab.emulation.namespaces import (
    namespaces,
    NetworkError,
    owned_namespaces,
    remove_stale,
    run,
)
from intradp_lab.emulation.settings import check_rate, LinkSettings, SENDER, SHARED_MEDIUM

__all__ = ['ADDRESSES', 'available', 'burst_bytes', 'DEVICE', 'LinkSettings', 'namespaces',
           'NetworkError', 'remove_stale', 'shaped_link', 'ShapedLink', 'SIDES']

ADDRESSES: Mapping[str, str] = MappingProxyType({'robot': '10.77.0.1', 'server': '10.77.0.2'})
SIDES = tuple(ADDRESSES)
DEVICE = 'veth0'
MULTICAST = '224.0.0.0/4'
#: The third namespace; its device that both ways pass through if they share the medium.
ACCESS_POINT, AIR = 'ap', 'air'
#: One packet of Ethernet, and a little.
_BURST_BYTES = 1_600
_SEED = 7


@dataclass(frozen=True, slots=True)
class ShapedLink:
    """Joined namespaces, one for each of `SIDES`; made by `shaped_link`."""

    namespaces: Mapping[str, str]
    settings: LinkSettings = field(default_factory=LinkSettings)

    def _namespace(self, side: str) -> str:
        """Return the namespace of a side, or say which sides there are."""
        if side not in SIDES:
            raise ValueError(f"there is no side '{side}'; choose from {', '.join(SIDES)}")
        return self.namespaces[side]

    def exec_prefix(self, side: str) -> list[str]:
        """Return the words to put before a command to run it on a side."""
        return ['ip', 'netns', 'exec', self._namespace(side)]

    def set_rate(self, mbit: float, side: str | None = None) -> None:
        """
        Set the rate at which `side` sends (None: both), in 1e6 bits per second, at once.

        What waits in the queue stays there.  A shared medium has one rate
        for both sides.
        """
        check_rate(mbit)
        by_namespace: dict[str, list[str]] = {}
        for name in SIDES if side is None else (side,):
            namespace, device = self._bucket(name)
            by_namespace.setdefault(namespace, []).append(
                f'qdisc replace dev {device} root tbf rate {round(mbit * 1e6)}bit '
                f'burst {burst_bytes(mbit)} limit {self.settings.queue_bytes}\n')
        for namespace, lines in by_namespace.items():
            run('tc', '-n', namespace, '-batch', '-', given=''.join(lines))

    def _bucket(self, side: str) -> tuple[str, str]:
        """Return namespace and device of the bucket for what a side sends."""
        namespace = self._namespace(side)
        if self.settings.bottleneck == SENDER:
            return namespace, DEVICE
        ap = self.namespaces[ACCESS_POINT]
        if self.settings.medium == SHARED_MEDIUM:
            return ap, AIR
        return ap, next(other for other in SIDES if other != side)

    def cut(self) -> None:
        """
        Interrupt the link both ways until `restore`.

        The far device of the link goes down, so that what the robot sends
        vanishes without an error, as out of radio range.
        """
        run('ip', '-n', *self._far(), 'down')

    def restore(self) -> None:
        """Join the sides again after `cut`; rates and addresses are as before."""
        run('ip', '-n', *self._far(), 'up')
        if not self.settings.has_access_point:
            _bring_up(self.namespaces, 'server')  # a device that was down has lost its routes

    def lose(self, loss: float) -> None:
        """
        Drop this part of the packets that arrive at each side from now on (0: none), at random.

        The kernel's packet filter does it (``nft``); `LinkSettings.loss` needs ``tc`` only, but
        a process that carries every packet.
        """
        of_thousand = round(1e3 * loss)
        rule = ('table inet loss { chain arriving { type filter hook input priority 0; '
                f'iifname {DEVICE} numgen random mod 1000 < {of_thousand} drop; }}; }}'
                if of_thousand else '')
        for side in SIDES:
            run(*self.exec_prefix(side), 'nft', '-f', '-',
                given=f'table inet loss; delete table inet loss; {rule}\n')

    def _far(self) -> tuple[str, ...]:
        if self.settings.has_access_point:
            return self.namespaces[ACCESS_POINT], 'link', 'set', 'server'
        return self.namespaces['server'], 'link', 'set', DEVICE


def burst_bytes(mbit: float) -> int:
    """Return how many bytes an idle link lets through at once."""
    # At high rates the bucket must hold a millisecond, or the timer limits the rate.
    return max(_BURST_BYTES, round(mbit * 1e6 / 8 * 1e-3))


def _hardware_address(side: str) -> str:
    return f'02:00:0a:4d:00:{SIDES.index(side) + 1:02x}'


def _bring_up(namespaces: Mapping[str, str], side: str) -> None:
    """
    Take a side's device up and let it carry multicast, which DDS discovery needs.

    It is given the other side's hardware address: the system forgets it when a
    cable is pulled, and asks for it only once a second.
    """
    other = next(name for name in SIDES if name != side)
    run('ip', '-n', namespaces[side], '-batch', '-', given=(
        f'link set {DEVICE} up\n'
        f'route replace {MULTICAST} dev {DEVICE}\n'
        f'neighbour replace {ADDRESSES[other]} lladdr {_hardware_address(other)} '
        f'nud permanent dev {DEVICE}\n'))


def join(one: tuple[str, str], other: tuple[str, str]) -> None:
    """Join two devices, each a namespace and a name, by a cable."""
    # Segments as large as the medium's: else the kernel hands on 64 KB in one piece.
    run('ip', 'link', 'add', one[1], 'netns', one[0], 'gso_max_segs', '1', 'type', 'veth',
        'peer', 'name', other[1], 'netns', other[0], 'gso_max_segs', '1')


def _set_up(link: ShapedLink) -> None:
    """Create, join and address the namespaces."""
    for name in link.namespaces.values():
        run('ip', 'netns', 'add', name)
    sides = [(link.namespaces[side], DEVICE) for side in SIDES]
    if link.settings.has_access_point:
        for side, end in zip(SIDES, sides):
            join(end, (link.namespaces[ACCESS_POINT], side))
        _set_up_access_point(link)
    else:
        join(*sides)
    for side, (name, _) in zip(SIDES, sides):
        run('ip', '-n', name, 'link', 'set', 'lo', 'up', 'multicast', 'on')
        run('ip', '-n', name, 'address', 'add', f'{ADDRESSES[side]}/24', 'dev', DEVICE)
        run('ip', '-n', name, 'link', 'set', DEVICE, 'address', _hardware_address(side))
    for side in SIDES:
        _bring_up(link.namespaces, side)


def _set_up_access_point(link: ShapedLink) -> None:
    """Take the access point's devices up, which shall say nothing themselves."""
    ap = link.namespaces[ACCESS_POINT]
    lines = [f'link set {side} addrgenmode none up' for side in SIDES]
    if not link.settings.uneven:
        lines += ['link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0',
                  'link set bridge addrgenmode none up',
                  *(f'link set {side} master bridge' for side in SIDES)]
    if link.settings.medium == SHARED_MEDIUM:
        lines += [f'link add {AIR} type ifb', f'link set {AIR} up']
    run('ip', '-n', ap, '-batch', '-', given='\n'.join(lines) + '\n')
    if link.settings.medium == SHARED_MEDIUM:
        run('tc', '-n', ap, '-batch', '-', given=''.join(
            f'qdisc add dev {side} clsact\n'
            f'filter add dev {side} egress protocol all u32 match u32 0 0 '
            f'action mirred egress redirect dev {AIR}\n' for side in SIDES))


@contextmanager
def _forwarding(link: ShapedLink) -> Iterator[None]:
    """Run the forwarder in the access point; it ends with this process at the latest."""
    settings, program = link.settings, Path(__file__).with_name('forwarder.py')
    numbers = (settings.delay_ms / 1e3, settings.jitter_ms / 1e3, settings.loss, _SEED)
    # Isolated, so that it starts at once, whatever this environment starts with.
    command = ['ip', 'netns', 'exec', link.namespaces[ACCESS_POINT], sys.executable, '-I', '-S',
               str(program), *SIDES, *map(str, numbers)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stdin and process.stdout and process.stderr
        if process.stdout.readline() != 'ready\n':
            raise NetworkError(f'{program.name}: {process.stderr.read().strip()}')
        try:
            yield
        finally:
            process.stdin.close()


def available() -> str | None:
    """Return why there can be no shaped link here, and the fix; None if there can."""
    if os.geteuid() != 0:
        return 'network namespaces need root; run as root (sudo)'
    for tool in ('ip', 'tc'):
        if shutil.which(tool) is None:
            return f"the command '{tool}' is missing; install it with: apt install iproute2"
    try:
        with shaped_link(1.0, prefix='intradp-probe'):
            return None
    except NetworkError as error:
        return f'this machine lets even root not shape a link ({error}); in a container, ' \
               'start it with --privileged'


@contextmanager
def shaped_link(settings: LinkSettings | float, prefix: str = 'intradp',
                ) -> Iterator[ShapedLink]:
    """
    Make robot and server with a link between them; a number is its rate in Mbit/s each way.

    They are gone when it is left (`owned_namespaces`).

    :param prefix: start of the namespaces' names.
    :raises NetworkError: when the system refuses; `available` says why beforehand.
    """
    if not isinstance(settings, LinkSettings):
        settings = LinkSettings(settings)
    if settings.warning():
        warnings.warn(settings.warning(), stacklevel=3)
    roles = [*SIDES, ACCESS_POINT] if settings.has_access_point else SIDES
    with owned_namespaces(prefix, roles) as names:
        link = ShapedLink(names, settings)
        _set_up(link)
        link.set_rate(settings.mbit)
        if settings.uneven:
            with _forwarding(link):
                yield link
        else:
            yield link
