# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One of the two processes that measure what moving bytes costs; `transport_cost.py` starts them.

As ``python -m intradp_ros.dds.transport_cost_side robot NAME`` it sends bursts of
chunks, and as ``server NAME`` it receives them and says when all of a burst
are there.  Either prints, as JSON, its processor seconds for a chunk of each
size, and for a packet that comes by itself.  Meanwhile it computes, as an
inference does: what moves bytes then finds caches that operators have used.
"""
from __future__ import annotations

from collections.abc import Iterator
import json
from socket import AF_INET, SOCK_DGRAM, socket
from statistics import median
import sys
import threading
import time

import torch

from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.standalone import standalone_channel
from intradp_ros.dds.transport_cost import PACKET_BYTES, SIZES
from intradp_ros.profiling.machine import available_cores, prepare_process
from intradp_ros.profiling.profile import CHUNK_BYTES
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

#: Bursts of chunks of each size: the first ones warm up, of the others the middle one counts.
ROUNDS, COUNT = 4, 30
#: Seconds between chunks: as over a link of 20 Mbit/s, they are received one by one.
PAUSE = 0.012
PATIENCE = 15.0
#: Packets of a link, and the seconds between them at some 20 Mbit/s.
PACKETS, PACKET_PAUSE = 300, 0.6e-3
#: What each core computes on meanwhile (32 MB): an inference leaves no more of its caches.
NUMBERS = 2**23
_SESSION = 1


def bursts() -> Iterator[tuple[int, int]]:
    """Yield all bursts by number, from 1, with the bytes of a chunk."""
    yield from enumerate(SIZES * ROUNDS, 1)


def expected(size: int) -> ExpectedTransfer:
    """Return what each transfer of a burst is: one chunk of that many bytes."""
    return ExpectedTransfer(0, Region(0, 1), torch.uint8, (size,))


class Computing:
    """Computes on a thread for each core, and says what all others of the process take."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._compute, daemon=True)
                         for _ in range(available_cores())]

    def __enter__(self) -> Computing:
        """Begin."""
        for thread in self._threads:
            thread.start()
        self._clocks = [time.pthread_getcpuclockid(t.ident or 0) for t in self._threads]
        return self

    def __exit__(self, *_: object) -> None:
        """End."""
        self._over.set()
        for thread in self._threads:
            thread.join()

    def others(self) -> float:
        """Return the processor seconds that all other threads have taken."""
        return time.process_time() - sum(map(time.clock_gettime, self._clocks))

    def _compute(self) -> None:
        numbers = torch.zeros(NUMBERS)
        while not self._over.is_set():
            numbers.add_(1.0)


class Finished:
    """Tells when the other side has said that it has all of a burst."""

    def __init__(self) -> None:
        self._newest = -1
        self._changed = threading.Condition()

    def take(self, frame: Frame) -> None:
        """Take what the other side says."""
        with self._changed:
            self._newest = max(self._newest, frame.inference)
            self._changed.notify()

    def wait(self, burst: int, timeout: float) -> bool:
        """Wait until it has; return whether it has said so in time."""
        with self._changed:
            return self._changed.wait_for(lambda: self._newest >= burst, timeout)


def send(channel: DdsChannel, computing: Computing) -> list[float]:
    """Send all bursts; return the processor seconds of each chunk, by size."""
    finished = Finished()
    channel.listen(finished.take)
    end = time.monotonic() + PATIENCE
    while not finished.wait(0, 0.1) or not channel.peers:
        channel.send(Control(ControlKind.PING, _SESSION))
        time.sleep(0.01)
        if time.monotonic() > end:
            raise TimeoutError('no answer over DDS on this machine')
    return _typical([_send_burst(channel, computing, finished, number, size)
                     for number, size in bursts()])


def _send_burst(channel: DdsChannel, computing: Computing, finished: Finished, number: int,
                size: int) -> float:
    tensor = torch.randint(0, 256, (size,), dtype=torch.uint8)
    start = computing.others()
    for transfer in range(COUNT):
        for chunk in cut_into_chunks(tensor, session=_SESSION, epoch=0, inference=number,
                                     schedule=0, transfer=transfer, value=0, region=Region(0, 1),
                                     chunk_bytes=CHUNK_BYTES):
            channel.send(chunk)
        time.sleep(PAUSE)
    if not finished.wait(number, PATIENCE):
        raise TimeoutError('chunks were lost on this machine')
    return (computing.others() - start) / COUNT


class Receiver:
    """Puts chunks together and measures the processor seconds of each burst."""

    def __init__(self, channel: DdsChannel, computing: Computing) -> None:
        self.seconds: list[float] = []
        self.done = threading.Event()
        self._channel, self._computing, self._sizes = channel, computing, dict(bursts())
        self._reassembler = Reassembler(lambda chunk: expected(self._sizes[chunk.inference]))
        self._start, self._count = 0.0, 0

    def take(self, frame: Frame) -> None:
        """Answer a greeting; count a chunk, and say when it was the last one of its burst."""
        if isinstance(frame, Chunk):
            if self._reassembler.add(frame) is None:
                return
            self._count += 1
            if self._count < COUNT:
                return
            self._finish(frame.inference)
        else:
            self._channel.send(Control(ControlKind.PONG, _SESSION))
        self._start, self._count = self._computing.others(), 0

    def _finish(self, burst: int) -> None:
        self.seconds.append((self._computing.others() - self._start) / COUNT)
        self._channel.send(Control(ControlKind.REPORT, _SESSION, inference=burst))
        if burst == len(self._sizes):
            self.done.set()


def receive(channel: DdsChannel, computing: Computing) -> list[float]:
    """Receive all bursts; return the processor seconds of each chunk, by size."""
    receiver = Receiver(channel, computing)
    channel.listen(receiver.take)
    if not receiver.done.wait(4 * PATIENCE):
        raise TimeoutError('chunks were lost on this machine')
    return _typical(receiver.seconds)


def _typical(seconds: list[float]) -> list[float]:
    """Return the median of each size, without the first bursts."""
    return [median(seconds[k + len(SIZES)::len(SIZES)]) for k in range(len(SIZES))]


def packet_seconds() -> float:
    """
    Return the processor seconds that a packet costs the one that waits for it.

    Over a link packets come one by one, and each wakes the thread that
    receives; over the machine's own loopback those of a chunk come at once.
    """
    with socket(AF_INET, SOCK_DGRAM) as mine, socket(AF_INET, SOCK_DGRAM) as other:
        mine.bind(('127.0.0.1', 0))
        mine.settimeout(PATIENCE)
        other.connect(mine.getsockname())
        sender = threading.Thread(target=_send_packets, args=(other,))
        sender.start()
        start = time.thread_time()
        for _ in range(PACKETS):
            mine.recv(PACKET_BYTES)
        taken = time.thread_time() - start
        sender.join()
    return taken / PACKETS


def _send_packets(other: socket) -> None:
    for _ in range(PACKETS):
        time.sleep(PACKET_PAUSE)
        other.send(bytes(PACKET_BYTES))


def main() -> None:
    """Run the side that the command line names."""
    side, name = sys.argv[1:]
    prepare_process()
    with Computing() as computing:
        with standalone_channel(name, side) as channel:
            seconds = (send if side == 'robot' else receive)(channel, computing)
        packet = packet_seconds()
    print(json.dumps([*seconds, packet]), flush=True)


if __name__ == '__main__':
    main()
