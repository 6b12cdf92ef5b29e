# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Choosing the DDS transport for tensor traffic, before rclpy.init().

Fast DDS reads its profile from a file named in the environment when the
first node of a process is made.  The plain defaults of the middleware lose
or delay large messages on a wireless link; the two profiles of this package
do not, each in its way.  Both sides must use the same one.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
import os
from pathlib import Path
import sys

from intradp_ros.dds.middleware import fast_dds_version, library_folders, middleware_problem
from intradp_ros.link.chunk_size import MAX_CHUNK_BYTES, USUAL_CHUNK_BYTES
from intradp_ros.link.send_window import USUAL_WINDOW_BYTES

#: Names the transport in the environment, so that every channel of a process agrees on its QoS.
VARIABLE = 'INTRADP_TRANSPORT'
_PROFILE_VARIABLE = 'FASTDDS_DEFAULT_PROFILES_FILE'
#: Fast DDS 2 (Jazzy) reads this one, and knows other words.
_PROFILE_VARIABLE_2 = 'FASTRTPS_DEFAULT_PROFILES_FILE'
#: Chooses the transports of a participant whose profile names none.
BUILTIN_VARIABLE = 'FASTDDS_BUILTIN_TRANSPORTS'
_RANGE_VARIABLE = 'ROS_AUTOMATIC_DISCOVERY_RANGE'
#: For nodes that use shared memory: a reader that stops leaves room for the others in it.
_LOCAL = 'transport_local.xml'
#: Bytes of shared memory that are free where it is chosen: each participant takes 8 MB of it.
_ROOM = 256 << 20
#: A file of the user's, which Fast DDS reads where it stands.
_OWN_FILE = 'DEFAULT_FASTDDS_PROFILES.xml'
#: An image of some MB comes at once, and nobody repeats what does not fit into the buffer.
_NEIGHBOURS = 'UDPv4?max_msg_size=65500B&sockets_size={}B'
_MOST_SOCKET_BYTES = 4_194_304


class TransportError(RuntimeError):
    """The transport cannot work on this machine as it is set up; the text says what to do."""


@dataclass(frozen=True, slots=True)
class Transport:
    """
    A way to carry DDS messages.

    `profile` is the file in config/ ('' for the middleware's defaults),
    `profile_2` that for Fast DDS 2;
    `builtin` are the builtin transports of Fast DDS that only the participant
    of tensors has ('' if it is the node's own);
    `socket_bytes` is the socket buffer that the profile asks for;
    `needs_buffer` means that nothing is delivered if the system grants less
    (else it only loses more).  `reliable` is the QoS that fits: a transport
    that itself retransmits gets in its own way when DDS does so too.
    `chunk_bytes` is how large a message may be at most: over UDP a large one
    is a burst of packets, over TCP it only saves work.  `window_bytes` is how
    many may be in flight at most, and `late` makes that more on fast links
    (see `SendWindow`): what is too much for UDP is repeated in vain.
    `payload_share` is what tensors get of a link's rate in addition to headers,
    acknowledgements and repetitions (`intradp bench transport`, 20 to 100 Mbit/s).
    """

    name: str
    profile: str
    reliable: bool
    socket_bytes: int
    needs_buffer: bool
    chunk_bytes: int = USUAL_CHUNK_BYTES
    window_bytes: int = USUAL_WINDOW_BYTES
    late: float = 0.0
    builtin: str = ''
    profile_2: str = ''
    payload_share: float = 1.0


TRANSPORTS: Mapping[str, Transport] = {
    transport.name: transport for transport in (
        Transport('udp', 'transport_udp.xml', True, _MOST_SOCKET_BYTES, False,
                  profile_2='transport_udp_fastdds2.xml', payload_share=0.86),
        Transport('large_data', 'transport_large_data.xml', False, 2_097_152, True,
                  MAX_CHUNK_BYTES, window_bytes=1_500_000, late=20e-3,
                  builtin='LARGE_DATA?max_msg_size=256KB&sockets_size=2MB&non_blocking=false'
                          '&tcp_negotiation_timeout=50',
                  profile_2='transport_large_data.xml', payload_share=0.94),
        Transport('default', '', True, 0, False),
        Transport('air', 'transport_air.xml', True, _MOST_SOCKET_BYTES, False,
                  profile_2='transport_air_fastdds2.xml', payload_share=0.86))
}


def find_transport(name: str) -> Transport:
    """
    Return the transport of that name in `TRANSPORTS`.

    :raises ValueError: if there is none of that name.
    """
    if name not in TRANSPORTS:
        raise ValueError(f'no transport {name!r}; there are ' + ', '.join(TRANSPORTS))
    return TRANSPORTS[name]


def transport_in_use(environment: Mapping[str, str] = os.environ) -> Transport:
    """Return the transport that the environment names; the default one if it names none."""
    return find_transport(environment.get(VARIABLE) or 'default')


def transport_environment(
    name: str, environment: Mapping[str, str] = os.environ, limits: Path | None = None,
) -> dict[str, str]:
    """
    Return the variables to set, in this process before rclpy.init() or in a child's.

    `environment` is what they will be added to, `limits` the directory of
    the kernel's limits (default /proc/sys/net/core).

    :raises ValueError: if there is no transport of that name.
    :raises TransportError: if nothing would be delivered: the kernel's limits are too low, or
        another variable overrides the profile; or if the middleware knows no such profile.
    """
    transport = find_transport(name)
    variables = {VARIABLE: name}
    if not transport.profile:
        return variables
    if unknown := middleware_problem(environment):
        raise TransportError(unknown)
    problem = buffer_problem(transport, limits)
    if problem and transport.needs_buffer:
        raise TransportError(problem)
    if name == 'large_data' and environment.get(_RANGE_VARIABLE) == 'LOCALHOST':
        raise TransportError(
            f'{_RANGE_VARIABLE}=LOCALHOST replaces the transport large_data by plain UDP; '
            'unset it or choose the transport udp')
    variables |= _profile_variable(transport, environment)
    if transport.builtin:  # for tensors; the nodes' own participants talk to any other
        granted = min(_read_limit(limit, limits) for limit in ('rmem_max', 'wmem_max'))
        variables[BUILTIN_VARIABLE] = _NEIGHBOURS.format(min(granted, _MOST_SOCKET_BYTES))
    return variables


def _profile_variable(transport: Transport, environment: Mapping[str, str]) -> dict[str, str]:
    """Return what names the profile to the Fast DDS that is installed; of several, the first."""
    version = fast_dds_version(library_folders(environment))
    if version is not None and version < (3, 0):
        return {_PROFILE_VARIABLE_2: str(profile_path(transport.profile_2))}
    return {_PROFILE_VARIABLE: str(profile_path(transport.profile))}


def local_environment(environment: Mapping[str, str] = os.environ,
                      memory: Path = Path('/dev/shm')) -> dict[str, str]:
    """
    Return the variables that keep a stopped reader from holding up others in shared memory.

    They are to be set before the process's first node is made.  There are none where the
    transport has no shared memory, where there is little of it (a container's 64 MB), where the
    user has a profile of the middleware's, or with another middleware than Fast DDS 3.
    """
    transport = transport_in_use(environment)
    chosen = environment.get(_PROFILE_VARIABLE, '')
    limited = environment.get(_RANGE_VARIABLE) == 'LOCALHOST'
    if transport.builtin or transport.profile and not limited or middleware_problem(environment) \
            or (fast_dds_version(library_folders(environment)) or (0, 0)) < (3, 0) \
            or Path(chosen).name not in ('', transport.profile) \
            or BUILTIN_VARIABLE in environment or Path(_OWN_FILE).is_file() \
            or not _roomy(memory):
        return {}
    return {_PROFILE_VARIABLE: str(profile_path(_LOCAL))}


def _roomy(memory: Path) -> bool:
    """Return whether shared memory has room for the segments of many participants."""
    try:
        found = os.statvfs(memory)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize >= _ROOM


def possible_environment(
    name: str, environment: Mapping[str, str] = os.environ, limits: Path | None = None,
) -> tuple[dict[str, str], str]:
    """
    Return what `transport_environment` does; the default transport where there are no profiles.

    So nodes run with any middleware (Humble, Cyclone DDS, Zenoh).  The second
    item says then what is lost, and is '' otherwise.

    :raises ValueError, TransportError: as `transport_environment` does, for any other cause.
    """
    problem = middleware_problem(environment) if find_transport(name).profile else ''
    if not problem:
        return transport_environment(name, environment, limits), ''
    return transport_environment('default', environment, limits), (
        f'{problem}; the transport default is taken now, which may lose or delay tensors on a '
        'wireless link: take it on all machines')


def buffer_problem(transport: Transport, limits: Path | None = None) -> str:
    """Return what the kernel's limits on socket buffers spoil, and the fix; '' if nothing."""
    low = [f'net.core.{limit}={_read_limit(limit, limits)}' for limit in ('rmem_max', 'wmem_max')
           if _read_limit(limit, limits) < transport.socket_bytes]
    if not low:
        return ''
    effect = ('nothing would be delivered' if transport.needs_buffer
              else 'bursts of messages would be lost and repeated')
    wanted = transport.socket_bytes
    return (f'{" and ".join(low)}: less than the {wanted} bytes that the transport '
            f'{transport.name} asks for, {effect}; run: sudo sysctl -w '
            f'net.core.rmem_max={wanted} net.core.wmem_max={wanted}')


def _read_limit(name: str, limits: Path | None) -> int:
    """Return a limit in bytes; unlimited where the system sets none."""
    path = (limits or Path('/proc/sys/net/core')) / name
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return sys.maxsize


def profile_path(file: str) -> Path:
    """
    Return where a profile file is installed.

    :raises TransportError: if the package's share directory is not found.
    """
    prefixes = [*os.environ.get('AMENT_PREFIX_PATH', '').split(os.pathsep), sys.prefix]
    places = [Path(prefix) / 'share' / 'intradp_ros' / 'config' for prefix in prefixes if prefix]
    places.append(Path(__file__).resolve().parents[2] / 'config')
    for place in places:
        if (place / file).is_file():
            return place / file
    raise TransportError(f'{file} is in none of: ' + ', '.join(map(str, places))
                         + '; install the package with pip or colcon, and source its setup file')
