# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Ways to bring tensors to another process: the DDS channel, and a TCP socket to compare with."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
import socket
import struct
import threading
import time
from typing import Protocol

import torch

from intradp_lab.testbed.transport_bench import MOST_TENSORS, TCP
from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.standalone import standalone_channel
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Control, ControlKind, Frame

PATIENCE = 60.0
_NAME, _PORT = 'bench', 47_613
_SIZE = struct.Struct('<QQ')  # number of the tensor, bytes
_DONE = struct.Struct('<Qd')  # number of the tensor, when it was complete


class Arrived:
    """When tensors were complete at the other side, by number; passed by one thread to another."""

    def __init__(self) -> None:
        self._times: dict[int, float] = {}
        self._changed = threading.Condition()

    def note(self, number: int, when: float) -> None:
        """Take the news of a tensor; the first one counts."""
        with self._changed:
            self._times.setdefault(number, when)
            self._changed.notify_all()

    def wait(self, number: int, patience: float = PATIENCE) -> float:
        """Return when it was complete (seconds, monotonic); TimeoutError if it does not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._times, patience):
                raise TimeoutError(f'tensor {number} did not arrive within {patience:g} s')
            return self._times[number]


class Carrier(Protocol):
    """Brings tensors of bytes to the other process, which says when each was complete."""

    arrived: Arrived

    def send(self, number: int, tensor: torch.Tensor) -> None:
        """Send a tensor without waiting for its arrival; numbers begin at 1."""


class DdsCarrier:
    """Tensors over a DdsChannel."""

    def __init__(self, channel: DdsChannel) -> None:
        self.arrived = Arrived()
        self._channel = channel
        channel.listen(self._take)
        self._greet()

    def send(self, number: int, tensor: torch.Tensor) -> None:
        """Send a tensor without waiting for its arrival."""
        for chunk in cut_into_chunks(tensor, session=1, epoch=1, inference=number, schedule=0,
                                     transfer=0, value=tensor.numel(), region=Region(0, 1),
                                     chunk_bytes=self._channel.chunk_bytes):
            self._channel.send(chunk)

    def _greet(self) -> None:
        """Ping until the other side answers, and hears chunks: what is sent before is lost."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            self._channel.send(Control(ControlKind.PING))
            with suppress(TimeoutError):
                self.arrived.wait(0, 0.1)
                if self._channel.peers:
                    return
                time.sleep(0.01)
        raise TimeoutError(f'nobody answered within {PATIENCE:g} s')

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Control) and frame.kind in (ControlKind.PONG, ControlKind.REPORT):
            self.arrived.note(frame.inference, frame.body['time'])


class TcpCarrier:
    """Tensors over a TCP socket, each after its number and size."""

    def __init__(self, connection: socket.socket) -> None:
        self.arrived = Arrived()
        self._socket = connection
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._listen, name='tcp-carrier', daemon=True).start()

    def send(self, number: int, tensor: torch.Tensor) -> None:
        """Send a tensor; waits while the socket is full."""
        self._socket.sendall(_SIZE.pack(number, tensor.numel()))
        self._socket.sendall(tensor.numpy().data)

    def _listen(self) -> None:
        with suppress(OSError):
            while True:
                self.arrived.note(*_DONE.unpack(receive_exactly(self._socket, _DONE.size)))


@contextmanager
def carrier(kind: str, host: str, chunk_bytes: int) -> Iterator[Carrier]:
    """Provide the robot's end of a carrier: `TCP` to a host, else DDS."""
    if kind == TCP:
        with connected(host) as connection:
            yield TcpCarrier(connection)
    else:
        with standalone_channel(_NAME, 'robot', chunk_bytes) as channel:
            yield DdsCarrier(channel)


def connected(host: str) -> socket.socket:
    """Connect to the sink as soon as it listens."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            return socket.create_connection((host, _PORT))
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


def sink(kind: str, chunk_bytes: int, ready: Callable[[], None]) -> None:
    """Report of every tensor when it was complete; `ready` is called when they may come."""
    if kind == TCP:
        _sink_tcp(ready)
    else:
        _sink_dds(chunk_bytes, ready)


def _sink_dds(chunk_bytes: int, ready: Callable[[], None]) -> None:
    """Run until killed."""
    pile = Reassembler(lambda chunk: ExpectedTransfer(
        chunk.value, Region(0, 1), torch.uint8, (chunk.value,)), max_inferences=MOST_TENSORS)
    with standalone_channel(_NAME, 'server', chunk_bytes) as channel:
        def take(frame: Frame) -> None:
            # An answer to a ping may get lost, what is said of a tensor may not.
            kind = ControlKind.PONG if isinstance(frame, Control) else ControlKind.REPORT
            if isinstance(frame, Control) or pile.add(frame) is not None:
                channel.send(Control(kind, inference=frame.inference,
                                     body={'time': time.monotonic()}))

        channel.listen(take)
        ready()
        threading.Event().wait()


def _sink_tcp(ready: Callable[[], None]) -> None:
    """Run until the other side closes."""
    with socket.create_server(('0.0.0.0', _PORT)) as listener:
        ready()
        connection, _ = listener.accept()
    with connection, suppress(ConnectionError):
        while True:
            number, size = _SIZE.unpack(receive_exactly(connection, _SIZE.size))
            receive_exactly(connection, size)
            connection.sendall(_DONE.pack(number, time.monotonic()))


def receive_exactly(connection: socket.socket, nbytes: int) -> bytes:
    """Read that many bytes; ConnectionError if the other side closes before."""
    data = bytearray(nbytes)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if not count:
            raise ConnectionError('closed')
        view = view[count:]
    return bytes(data)
