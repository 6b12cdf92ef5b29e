# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What participants of a domain say of themselves, as heard on the network.

Every participant announces itself by multicast (DDSI-RTPS 2.5, sections 8.5.3
and 9.6.1.4: simple participant discovery).  Fast DDS adds the process and
the machine, and such properties of its profile as shall be announced.  Reading
that shows which profile the middleware really took, who else is there, and
whether multicast works at all.
"""
from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
import os
import socket
import struct
import time
from types import TracebackType

GROUP = '239.255.0.1'
_PORT_BASE, _DOMAIN_GAIN = 7400, 250
_DATA, _SPDP_WRITER, _PL_CDR_LE = 0x15, bytes.fromhex('000100c2'), 0x0003
_GUID, _PROPERTIES, _SENTINEL = 0x0050, 0x0059, 0x0001
_HAS_INLINE_QOS, _LITTLE_ENDIAN = 0x02, 0x01
_MOST_BYTES = 65_536
_MOST_PROPERTIES = 64


@dataclass(frozen=True, slots=True)
class Announcement:
    """
    One participant: where its message came from, its name for itself, its properties.

    `participant` are the 12 bytes of its GUID's prefix; of the properties
    only texts are kept.
    """

    address: str
    participant: bytes
    properties: dict[str, str]

    @property
    def process(self) -> int | None:
        """Process id, None if it is unknown."""
        text = self.properties.get('fastdds.physical_data.process', '')
        return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else None

    @property
    def machine(self) -> str:
        """What the participant calls its machine, '' if it does not say."""
        return self.properties.get('fastdds.physical_data.host', '')

    @property
    def transport(self) -> str:
        """Name of the transport whose profile it has, '' if none of this package."""
        return self.properties.get('intradp.transport', '')


def read_announcement(data: bytes, address: str = '') -> Announcement | None:
    """Return what a datagram announces; None if it is not an announcement that is understood."""
    try:
        return _read(data, address)
    except (struct.error, IndexError, ValueError):
        return None


def _read(data: bytes, address: str) -> Announcement | None:
    if data[:4] != b'RTPS':
        return None
    for kind, flags, body in _submessages(data[20:]):
        if kind == _DATA and flags & _LITTLE_ENDIAN and body[8:12] == _SPDP_WRITER:
            values = dict(_parameters(_payload(body, flags)))
            if _GUID in values:
                return Announcement(address, values[_GUID][:12],
                                    dict(_properties(values.get(_PROPERTIES, b''))))
    return None


def _submessages(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    while len(data) >= 4:
        kind, flags, size = struct.unpack_from('<BBH', data)
        end = 4 + size if size else len(data)  # the last one may leave its size out
        yield kind, flags, data[4:end]
        data = data[end:]


def _payload(body: bytes, flags: int) -> bytes:
    """Return the parameters of a DATA submessage."""
    at = 4 + struct.unpack_from('<H', body, 2)[0]
    if flags & _HAS_INLINE_QOS:
        while True:
            name, size = struct.unpack_from('<HH', body, at)
            at += 4 + size
            if name == _SENTINEL:
                break
    if struct.unpack_from('>H', body, at)[0] != _PL_CDR_LE:
        raise ValueError('no parameter list in little-endian')
    return body[at + 4:]


def _parameters(data: bytes) -> Iterator[tuple[int, bytes]]:
    while len(data) >= 4:
        name, size = struct.unpack_from('<HH', data)
        if name == _SENTINEL:
            return
        yield name, data[4:4 + size]
        data = data[4 + size:]


def _properties(data: bytes) -> Iterator[tuple[str, str]]:
    if not data:
        return
    at = 4
    for _ in range(min(struct.unpack_from('<I', data)[0], _MOST_PROPERTIES)):
        texts = []
        for _ in range(2):
            size = struct.unpack_from('<I', data, at)[0]
            texts.append(data[at + 4:at + 4 + size].rstrip(b'\0').decode('ascii', 'replace'))
            at += 4 + size + (-size) % 4
        yield texts[0], texts[1]


class Listening:
    """
    Hears announcements from the moment it is made; a context manager.

    `domain` is the ROS domain.  OSError is raised where the system has no
    socket for that, as without a network.
    """

    def __init__(self, domain: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind((GROUP, _PORT_BASE + _DOMAIN_GAIN * domain))
            _join_everywhere(self._socket)
        except OSError:
            self._socket.close()
            raise

    def __enter__(self) -> Listening:
        """Return itself."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Stop listening."""
        self._socket.close()

    def hear(self, seconds: float) -> Iterator[Announcement]:
        """Yield announcements, as they come, for some time."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._socket.settimeout(left)
            try:
                data, (address, _) = self._socket.recvfrom(_MOST_BYTES)
            except TimeoutError:
                return
            if (announcement := read_announcement(data, address)) is not None:
                yield announcement

    def own(self, seconds: float) -> Announcement | None:
        """Return the first announcement of this process; None if none comes in time."""
        return next((a for a in self.hear(seconds) if a.process == os.getpid()), None)


def _join_everywhere(group: socket.socket) -> None:
    """Join the group on every interface that can; OSError if none can."""
    refused = OSError('no interface carries multicast')
    joined = 0
    for number, _ in socket.if_nameindex():
        request = socket.inet_aton(GROUP) + struct.pack('=4si', bytes(4), number)
        try:
            group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, request)
            joined += 1
        except OSError as error:
            refused = error
    if not joined:
        raise refused
