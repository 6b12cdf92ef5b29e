# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Robot and server on one machine, with a shaped link between them (Linux, as root).

Each side is a network namespace; a pair of virtual Ethernet devices joins
them, and a token bucket (``tc tbf``) on each device sets the rate of its way.
The bucket's queue holds more than a socket does, so that a sender is held up
as by its own radio, and nothing is dropped.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
import itertools
import os
from pathlib import Path
import re
import shutil
import signal
import subprocess
import time
from types import MappingProxyType

ADDRESSES: Mapping[str, str] = MappingProxyType({'robot': '10.77.0.1', 'server': '10.77.0.2'})
SIDES = tuple(ADDRESSES)
DEVICE = 'veth0'
MULTICAST = '224.0.0.0/4'
# Linux lets a socket hold 212992 bytes unless told otherwise; a shorter queue would drop.
QUEUE_BYTES = 500_000
_BURST_BYTES = 8_000
# A process may start another before it is killed, and takes a moment to go.
_KILL_ROUNDS = 100
_numbers = itertools.count()


class NetworkError(RuntimeError):
    """The network could not be set up as asked; the text holds what `ip` or `tc` said."""


def _run(*command: str) -> str:
    """Run a command and return its output; NetworkError with the cause when it fails."""
    # In its own session, so that Ctrl-C does not interrupt the cleaning up as well.
    done = subprocess.run(command, check=False, capture_output=True, text=True,
                          start_new_session=True)
    if done.returncode:
        raise NetworkError(f'{" ".join(command)}: {done.stderr.strip() or done.returncode}')
    return done.stdout


@dataclass(frozen=True, slots=True)
class ShapedLink:
    """Two joined namespaces, one for each of `SIDES`; made by `shaped_link`."""

    namespaces: Mapping[str, str]
    queue_bytes: int = QUEUE_BYTES

    def _namespace(self, side: str) -> str:
        """Return the namespace of a side, or say which sides there are."""
        if side not in self.namespaces:
            raise ValueError(f"there is no side '{side}'; choose from {', '.join(SIDES)}")
        return self.namespaces[side]

    def exec_prefix(self, side: str) -> list[str]:
        """Return the words to put before a command to run it on a side."""
        return ['ip', 'netns', 'exec', self._namespace(side)]

    def set_rate(self, mbit: float, side: str | None = None) -> None:
        """
        Set the rate at which `side` sends (None: both), in 1e6 bits per second, at once.

        What waits in the queue stays there.
        """
        if not mbit > 0:
            raise ValueError(f'a rate must be above 0 Mbit/s, not {mbit}; use cut() for an outage')
        # At high rates the bucket must hold a millisecond, or the timer limits the rate.
        burst = max(_BURST_BYTES, round(mbit * 1e6 / 8 * 1e-3))
        for name in SIDES if side is None else (side,):
            _run('tc', '-n', self._namespace(name), 'qdisc', 'replace', 'dev', DEVICE, 'root',
                 'tbf', 'rate', f'{round(mbit * 1e6)}bit', 'burst', str(burst),
                 'limit', str(self.queue_bytes))

    def cut(self) -> None:
        """
        Interrupt the link both ways until `restore`.

        The server's device goes down: the robot loses its carrier, so that
        what it sends vanishes without an error, as out of radio range.
        """
        _run('ip', '-n', self.namespaces['server'], 'link', 'set', DEVICE, 'down')

    def restore(self) -> None:
        """Join the sides again after `cut`; rates and addresses are as before."""
        _bring_up(self.namespaces['server'])


def _bring_up(namespace: str) -> None:
    """Take the device up and let it carry multicast, which DDS discovery needs."""
    _run('ip', '-n', namespace, 'link', 'set', DEVICE, 'up')
    _run('ip', '-n', namespace, 'route', 'replace', MULTICAST, 'dev', DEVICE)


def _set_up(namespaces: Mapping[str, str]) -> None:
    """Create, join and address the namespaces."""
    for name in namespaces.values():
        _run('ip', 'netns', 'add', name)
    robot, server = (namespaces[side] for side in SIDES)
    # Segments as large as the medium's: else the kernel hands on 64 KB in one piece.
    _run('ip', 'link', 'add', DEVICE, 'netns', robot, 'gso_max_segs', '1', 'type', 'veth',
         'peer', 'name', DEVICE, 'netns', server, 'gso_max_segs', '1')
    for side, name in namespaces.items():
        _run('ip', '-n', name, 'link', 'set', 'lo', 'up', 'multicast', 'on')
        _run('ip', '-n', name, 'address', 'add', f'{ADDRESSES[side]}/24', 'dev', DEVICE)
    for name in namespaces.values():
        _bring_up(name)


def _remove(namespace: str) -> None:
    """End every process in a namespace and delete it; no error if it is gone."""
    with suppress(NetworkError):
        for _ in range(_KILL_ROUNDS):
            pids = _run('ip', 'netns', 'pids', namespace).split()
            if not pids:
                break
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)
        _run('ip', 'netns', 'delete', namespace)


def _start_tick(pid: int) -> str:
    """Return when a process started, in clock ticks since boot; '' if it is gone."""
    try:
        status = Path(f'/proc/{pid}/stat').read_text()
    except OSError:
        return ''
    return status.rpartition(')')[2].split()[19]


def _owned_names(prefix: str) -> dict[str, str]:
    """Return unused namespace names that tell whose they are: process id and start."""
    owner = f'{prefix}-{os.getpid()}-{_start_tick(os.getpid())}-{next(_numbers)}'
    return {side: f'{owner}-{side}' for side in SIDES}


def namespaces(prefix: str = 'intradp') -> list[str]:
    """Return the names of the namespaces there are with this prefix."""
    names = (line.split()[0] for line in _run('ip', 'netns', 'list').splitlines())
    pattern = re.compile(rf'{re.escape(prefix)}-\d+-\d+-\d+-({"|".join(SIDES)})')
    return [name for name in names if pattern.fullmatch(name)]


def remove_stale(prefix: str = 'intradp') -> list[str]:
    """Remove what processes that are gone left behind, and return the names."""
    stale = []
    for name in namespaces(prefix):
        pid, tick = name.removeprefix(f'{prefix}-').split('-')[:2]
        if _start_tick(int(pid)) != tick:
            _remove(name)
            stale.append(name)
    return stale


def available() -> str | None:
    """Return why there can be no shaped link here, and the mend; None if there can."""
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
def shaped_link(mbit: float = 20.0, prefix: str = 'intradp',
                queue_bytes: int = QUEUE_BYTES) -> Iterator[ShapedLink]:
    """
    Make robot and server with a link of `mbit` (1e6 bits per second) each way.

    On the way out, however it is left, processes that still run in the
    namespaces are killed and the namespaces removed; what a killed run left
    behind is removed on the way in.

    :param prefix: start of the namespaces' names.
    :param queue_bytes: queue of each way; below 213 kB a sender sees losses.
    :raises NetworkError: when the system refuses; `available` says why beforehand.
    """
    remove_stale(prefix)
    link = ShapedLink(MappingProxyType(_owned_names(prefix)), queue_bytes)
    try:
        _set_up(link.namespaces)
        link.set_rate(mbit)
        yield link
    finally:
        for name in link.namespaces.values():
            _remove(name)
