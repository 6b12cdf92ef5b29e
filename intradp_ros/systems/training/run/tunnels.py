# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
gloo's connections through sealed streams: gloo itself listens on the loopback only.

gloo believes whoever connects, and sends in the clear.  Where there is a key, each device of a
group has an address 127.x.y.z, made of the key and the plan, at which its gloo listens.  Other
machines listen at the same address and port of their own loopback, and carry what comes there
over a sealed stream to the device.  On one machine gloo's ends meet without that.  Whoever else is
on the machine reaches these addresses: so gloo's ends prove to have the key before they are used
(`round_groups.py`), and when all are connected nobody else is let in.

Each device also learns, after a failure, whom it cannot reach: what a wait says of whom it waited
for may be wrong, since that one may have waited for another.  A connection that is not made says
which link is cut; a process that is stopped still gets one.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
import contextlib
import ctypes
import errno
import hashlib
import os
from pathlib import Path
import socket
import struct
import threading

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.transport.sealed_stream import connect, SealedListener, SealedStream

#: Of Linux: a filter of a socket, and the one instruction that drops all.
_ATTACH_FILTER, _BPF_RETURN = 26, 6
#: Seconds of rest when a connection could not be taken.
_REST = 0.05
#: Connections that are carried to one device for a group, which needs one.
MOST_JOINED = 8
#: Seconds that a connection may take to whose reachability is asked.
PATIENCE = 1.0


class TunnelError(RuntimeError):
    """Two devices cannot be joined."""


def loopback_of(key: bytes, plan: PlanId, label: str, name: str) -> str:
    """Return the loopback address of a device's gloo in a group."""
    content = f'{plan.term} {plan.epoch} {label} {name}'.encode()
    x, y, z = hashlib.blake2b(content, key=key, digest_size=3).digest()
    return f'127.{1 + x % 254}.{y}.{1 + z % 254}'


def listening_port(address: str) -> int:
    """Return the port at which gloo listens at an address; TunnelError if there is not one."""
    return _listening(address)[0]


def shut_door(address: str) -> None:
    """
    Let nobody connect any more to what this process's gloo listens on at an address.

    gloo keeps open whatever connects; its socket is its own, so a filter drops who comes.
    """
    wanted = f'socket:[{_listening(address)[1]}]'
    nothing = ctypes.create_string_buffer(struct.pack('=HBBI', _BPF_RETURN, 0, 0, 0))
    for file in Path('/proc/self/fd').iterdir():
        with contextlib.suppress(OSError):
            if os.readlink(file) == wanted:
                with socket.socket(fileno=os.dup(int(file.name))) as door:
                    door.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, struct.pack(
                        'HP', 1, ctypes.addressof(nothing)))


def _listening(address: str) -> tuple[int, int]:
    """Return port and inode of what listens at an address."""
    wanted = f'{struct.unpack("=I", socket.inet_aton(address))[0]:08X}'
    lines = Path('/proc/self/net/tcp').read_text().splitlines()[1:]
    found = {(int(words[1].partition(':')[2], 16), int(words[9]))
             for words in map(str.split, lines)
             if words[3] == '0A' and words[1].startswith(f'{wanted}:')}
    if len(found) != 1:
        raise TunnelError(f'gloo listens at {len(found)} ports of {address}, not at one')
    return found.pop()


class Tunnels:
    """
    One device's ends; without a `key` none are made, and only reachability is answered.

    :raises TunnelError: if the address is none of this device.
    """

    def __init__(self, name: str, address: str, key: bytes) -> None:
        self.name, self.key = name, key
        self._open: set[str] = set()
        try:
            self._listener = SealedListener(address, key, self._wanted, self._arrived, 'tunnels')
        except OSError as error:
            raise TunnelError(f'{name} cannot listen at {address} ({error}): name an address of '
                              'its own that the others can reach') from None
        self.place = self._listener.place

    def admit(self, address: str, port: int) -> Callable[[], None]:
        """Let others come to what listens here; return what ends that."""
        self._open.add(purpose := _purpose(self.name, address, port))
        return lambda: self._open.discard(purpose)

    def reach(self, device: str, place: tuple[str, int], address: str, port: int,
              ) -> Callable[[], None]:
        """
        Let what connects to an address of this loopback come to a device; return what ends that.

        :raises TunnelError: if the address is taken here by something else.
        """
        try:
            listening = socket.create_server((address, port), backlog=16)
        except OSError as error:
            if error.errno == errno.EADDRINUSE and _is_here(place[0]):
                return lambda: None  # the device's own: it is on this machine
            raise TunnelError(f'{address}:{port} cannot stand for {device}: {error}') from None
        ended = threading.Event()
        threading.Thread(target=self._lead, args=(listening, ended, place,
                                                  _purpose(device, address, port)),
                         name='tunnels', daemon=True).start()

        def end() -> None:
            ended.set()
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes the thread
        return end

    def unreached(self, places: Mapping[str, tuple[str, int]]) -> list[str]:
        """Return those to whom no connection can be made now."""
        others = {name: place for name, place in places.items() if name != self.name}
        if not others:
            return []
        with ThreadPoolExecutor(len(others)) as pool:
            found = list(pool.map(_reaches, others.values()))
        return [name for name, reached in zip(others, found) if not reached]

    def close(self) -> None:
        """Listen no more."""
        self._listener.close()

    def _wanted(self, purpose: str) -> bool:
        return bool(self.key) and purpose in self._open

    def _arrived(self, purpose: str, stream: SealedStream) -> None:
        """Join a stream from another device and the gloo that it is for."""
        _, address, port = purpose.rsplit(' ', 2)
        with socket.create_connection((address, int(port)), PATIENCE) as own:
            own.settimeout(None)
            _carry(own, stream)

    def _lead(self, listening: socket.socket, ended: threading.Event, place: tuple[str, int],
              purpose: str) -> None:
        """Join each connection of this machine's gloo and a stream to the device."""
        steady, room = Steady('tunnels'), threading.BoundedSemaphore(MOST_JOINED)

        def carry(own: socket.socket) -> None:
            try:
                self._join(own, place, purpose)
            finally:
                room.release()

        def join() -> bool:
            try:
                own, _ = listening.accept()
            except OSError:
                if ended.is_set():
                    return True
                raise
            if room.acquire(blocking=False):
                threading.Thread(target=carry, args=(own,), name='tunnels', daemon=True).start()
            else:
                own.close()
            return True
        with listening:
            while not ended.is_set():
                if not steady.do(join, False):  # files are used up, say: later there are some
                    ended.wait(_REST)

    def _join(self, own: socket.socket, place: tuple[str, int], purpose: str) -> None:
        with own, contextlib.suppress(OSError):
            stream = connect(place, self.key, purpose)
            try:
                _carry(own, stream)
            finally:
                stream.close()


def _purpose(device: str, address: str, port: int) -> str:
    return f'gloo {device} {address} {port}'


def _carry(own: socket.socket, stream: SealedStream) -> None:
    """Carry bytes both ways until one end is gone."""
    own.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def back() -> None:
        with contextlib.suppress(OSError):
            while True:
                own.sendall(stream.receive())
        stop()

    def stop() -> None:
        stream.stop()
        with contextlib.suppress(OSError):
            own.shutdown(socket.SHUT_RDWR)
    other = threading.Thread(target=back, name='tunnels', daemon=True)
    other.start()
    try:
        with contextlib.suppress(OSError):
            while stream.forward(own):
                pass
    finally:
        stop()
        other.join()


def _is_here(address: str) -> bool:
    """Whether an address is one of this machine."""
    try:
        with socket.create_server((address, 0), family=socket.AF_INET6 if ':' in address
                                  else socket.AF_INET):
            return True
    except OSError:
        return False


def _reaches(place: tuple[str, int]) -> bool:
    try:
        with socket.create_connection(place, PATIENCE):
            return True
    except ConnectionRefusedError:
        return True  # the machine is there: whether the process is, the trainer knows
    except OSError:
        return False
