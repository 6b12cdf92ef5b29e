# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Where the processes of a robot and of a server run, and the link between them.

As root on Linux the two sides live in network namespaces with a shaped link,
a core for the robot and the others for the server, and the robot is made the
slower side.  Otherwise they share this machine's loopback and speed, and
`EmulatedPair.link` says so.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
import os
from pathlib import Path
from typing import Any

from intradp_lab.emulation import network, slow_device
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_lab.emulation.transport_choice import usable_environment
from intradp_ros.core.processes import Command

Starter = Callable[[Command], Child]


@dataclass(frozen=True)
class Side:
    """Where and how the processes of one side run."""

    prefix: Sequence[str] = ()
    cores: Sequence[int] = ()
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class EmulatedPair:
    """Both sides, what starts processes, and what is emulated."""

    start: Starter
    robot: Side
    server: Side
    link: str

    def node(self, side: Side, module: str, parameters: Mapping[str, Any]) -> Child:
        """Start an executable, by the name of its module."""
        arguments = ros_arguments(module, parameters=parameters)
        return self.start(Command(module.rpartition('.')[2], arguments, side.prefix, side.cores,
                                  side.environment))


@contextmanager
def emulated_pair(mbps: float, transport: str, logs: Path, say: Callable[[str], None],
                  ) -> Iterator[EmulatedPair]:
    """
    Set up both sides and the link; everything has ended when the context is left.

    :param mbps: rate of the link each way, in Mbit/s.
    :param transport: a transport profile (`transport_choice.CHOICES`).
    :param logs: folder for what the processes print.
    :param say: is given what is not as asked for.

    :raises NetworkError: if the link cannot be set up.
    """
    common = {'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp', **_transport(transport, say)}
    cores = sorted(os.sched_getaffinity(0))
    first, rest = cores[:1], cores[1:] or cores
    reason = network.available()
    if reason:  # LARGE_DATA does not work within this discovery range
        common |= _transport('udp', say)
        say(f'Link and robot are not emulated: {reason}')
        common |= {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                   'ROS_DOMAIN_ID': str(os.getpid() % 100 + 1)}
        with starter(logs) as start:
            yield EmulatedPair(start, Side((), first, common), Side((), rest, common),
                               f'loopback, not emulated ({reason})')
        return
    slow = slow_device.available()
    robot = common if slow else {**common, **slow_device.slow_environment()}
    speed = f'robot at full speed: {slow}' if slow else 'robot slowed to SSE4.1, one thread'
    with network.shaped_link(mbps) as link, starter(logs) as start:
        yield EmulatedPair(start, Side(link.exec_prefix('robot'), first, robot),
                           Side(link.exec_prefix('server'), rest, common),
                           f'{mbps:g} Mbit/s each way between network namespaces, {speed}')


def _transport(name: str, say: Callable[[str], None]) -> dict[str, str]:
    variables, reason = usable_environment(name)
    if reason:
        say(f'Transport udp instead of large_data: {reason}')
    return variables
