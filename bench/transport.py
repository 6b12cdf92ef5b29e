# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Goodput and latency of the DDS channel, beside a plain TCP socket.

Sends tensors of several sizes from one process to another, one at a time,
and measures from the call of `send` to the complete tensor at the other side
(both processes share the machine's monotonic clock); then ten of the largest
without waiting, for the goodput.  `wire` is the bytes that crossed the
network device for each byte of tensor data; `measured` is the rate that the
channel itself reports after single tensors; `stall` is the longest time for
which sending kept another Python thread waiting.  With --mbit, as root, the two
processes stand in network namespaces with a link of that rate between them;
without, they talk over the loopback device, or, the DDS transports, through
shared memory (then `wire` is next to nothing).
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
import json
import os
from pathlib import Path
import socket
import statistics
import struct
import subprocess
import sys
import threading
import time
from typing import Any, Protocol

import torch

from intradp_ros.dds.transport import transport_environment, TRANSPORTS
from intradp_ros.emulation.network import ADDRESSES, available, DEVICE, shaped_link
from intradp_ros.operators.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import split
from intradp_ros.wire.frames import Control, ControlKind, Frame

TCP = 'tcp'
STREAMED = 10
_PAUSE = 0.15
_PORT = 47_613
_SIZE = struct.Struct('<QQ')  # number of the tensor, bytes
_DONE = struct.Struct('<Qd')  # number of the tensor, when it was complete
_PATIENCE = 60.0


class Carrier(Protocol):
    """A way to bring tensors to the other process."""

    def send(self, number: int, tensor: torch.Tensor) -> None:
        """Send a tensor without waiting for its arrival."""

    def arrived(self, number: int) -> float:
        """Wait until a tensor was complete at the other side; return when, in seconds."""

    def measured(self) -> float:
        """Return the rate that the carrier reports in bytes/s; 0.0 if none."""


class DdsCarrier:
    """Tensors over a DdsChannel."""

    def __init__(self, chunk_bytes: int) -> None:
        self._channel = dds_channel('robot', chunk_bytes)
        self._times: dict[int, float] = {}
        self._changed = threading.Condition()
        self._channel.listen(self._take)
        self._greet()

    def send(self, number: int, tensor: torch.Tensor) -> None:
        """Send a tensor without waiting for its arrival."""
        for chunk in split(tensor, session=1, epoch=1, inference=number, schedule=0, transfer=0,
                           value=tensor.numel(), region=Region(0, 1),
                           chunk_bytes=self._channel.chunk_bytes):
            self._channel.send(chunk)

    def arrived(self, number: int) -> float:
        """Wait until a tensor was complete at the other side; return when, in seconds."""
        with self._changed:
            if not self._changed.wait_for(lambda: number in self._times, _PATIENCE):
                raise TimeoutError(f'tensor {number} did not arrive: {self._channel.report()}')
            return self._times[number]

    def measured(self) -> float:
        """Return the rate that the other side measures, in bytes per second."""
        return self._channel.report().send_rate

    def _greet(self) -> None:
        """Ping until the other side answers: the first messages after discovery may be lost."""
        end = time.monotonic() + _PATIENCE
        while 0 not in self._times and time.monotonic() < end:
            self._channel.send(Control(ControlKind.PING))
            time.sleep(0.1)

    def _take(self, frame: Frame) -> None:
        if isinstance(frame, Control) and frame.kind is ControlKind.PONG:
            with self._changed:
                self._times.setdefault(frame.inference, frame.body['time'])
                self._changed.notify_all()


class TcpCarrier:
    """Tensors over a TCP socket, each after its size."""

    def __init__(self, host: str) -> None:
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                self._socket = socket.create_connection((host, _PORT))
                break
            except ConnectionRefusedError:
                if time.monotonic() > end:
                    raise
                time.sleep(0.05)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, number: int, tensor: torch.Tensor) -> None:
        """Send a tensor; waits while the socket is full."""
        self._socket.sendall(_SIZE.pack(number, tensor.numel()))
        self._socket.sendall(tensor.numpy().data)

    def arrived(self, number: int) -> float:
        """Wait until a tensor was complete at the other side; return when, in seconds."""
        while True:
            done, when = _DONE.unpack(receive_exactly(self._socket, _DONE.size))
            if done == number:
                return float(when)

    def measured(self) -> float:
        """Return 0.0: a plain socket measures nothing."""
        return 0.0


class Ticker:
    """A thread that wakes every millisecond and notes the longest time it was kept from it."""

    def __init__(self) -> None:
        self.longest = 0.0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Ticker:
        """Start."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Stop."""
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            start = time.monotonic()
            time.sleep(0.001)
            self.longest = max(self.longest, time.monotonic() - start - 0.001)


def dds_channel(side: str, chunk_bytes: int) -> Any:
    """Return a channel in a fresh ROS context; the environment chose the transport."""
    import rclpy

    from intradp_ros.dds.channel import DdsChannel
    context = rclpy.Context()
    rclpy.init(context=context)
    return DdsChannel(context, 'bench', side, chunk_bytes=chunk_bytes)


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


def sink_dds(chunk_bytes: int) -> None:
    """Answer every complete tensor with its time; run until killed."""
    channel = dds_channel('server', chunk_bytes)
    pile = Reassembler(lambda chunk: ExpectedTransfer(
        chunk.value, Region(0, 1), torch.uint8, (chunk.value,)), max_inferences=STREAMED + 1)

    def take(frame: Frame) -> None:
        if isinstance(frame, Control):
            channel.send(Control(ControlKind.PONG, body={'time': time.monotonic()}))
        elif pile.add(frame) is not None:
            channel.send(Control(ControlKind.PONG, inference=frame.inference,
                                 body={'time': time.monotonic()}))

    channel.listen(take)
    threading.Event().wait()


def sink_tcp() -> None:
    """Answer every complete tensor with its time until the other side closes."""
    with socket.create_server(('0.0.0.0', _PORT)) as listener:
        connection, _ = listener.accept()
    with connection, suppress(ConnectionError):
        while True:
            number, size = _SIZE.unpack(receive_exactly(connection, _SIZE.size))
            receive_exactly(connection, size)
            connection.sendall(_DONE.pack(number, time.monotonic()))


def device_bytes(device: str) -> int:
    """Return the bytes that this side sent over a device so far."""
    return int(Path(f'/sys/class/net/{device}/statistics/tx_bytes').read_text())


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which that part of the values lies."""
    return sorted(values)[round(part * (len(values) - 1))]


def measure_source(carrier: Carrier, sizes: Sequence[int], repeat: int, device: str,
                   ) -> dict[str, Any]:
    """Return the figures of one carrier."""
    numbers = iter(range(1, 10**9))
    singles = {size: measure_singles(carrier, size, repeat, numbers, device) for size in sizes}
    tensor = torch.randint(256, (max(sizes),), dtype=torch.uint8)
    start, last = time.monotonic(), 0
    with Ticker() as ticker:
        for last in (next(numbers) for _ in range(STREAMED)):
            carrier.send(last, tensor)
        seconds = carrier.arrived(last) - start
    return {'single': singles, 'stream_mbit': STREAMED * max(sizes) * 8e-6 / seconds,
            'stall_ms': 1e3 * ticker.longest}


def measure_singles(carrier: Carrier, size: int, repeat: int, numbers: Iterator[int],
                    device: str) -> dict[str, float]:
    """Send tensors of one size one at a time."""
    tensor = torch.randint(256, (size,), dtype=torch.uint8)
    latencies, rates, before = [], [], device_bytes(device)
    for number in (next(numbers) for _ in range(repeat)):
        start = time.monotonic()
        carrier.send(number, tensor)
        latencies.append(1e3 * (carrier.arrived(number) - start))
        time.sleep(_PAUSE)
        rates.append(8e-6 * carrier.measured())
    return {
        'median_ms': statistics.median(latencies), 'p95_ms': percentile(latencies, 0.95),
        'goodput_mbit': size * 8e-3 / statistics.median(latencies),
        'wire': (device_bytes(device) - before) / (size * repeat),
        'measured_mbit': statistics.median(rates)}


@contextmanager
def process(arguments: Sequence[str], prefix: Sequence[str], environment: dict[str, str],
            ) -> Iterator[subprocess.Popen[str]]:
    """Run this script in another role, and kill it afterwards."""
    command = [*prefix, sys.executable, __file__, *arguments]
    child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def run_one(kind: str, args: argparse.Namespace) -> dict[str, Any]:
    """Start both processes of one carrier and return what the source measured."""
    environment = dict(os.environ, ROS_DOMAIN_ID=str(args.domain))
    if not args.mbit:
        environment.setdefault('ROS_AUTOMATIC_DISCOVERY_RANGE', 'LOCALHOST')
    if kind != TCP:
        environment.update(transport_environment(kind, environment))
    link = shaped_link(args.mbit, prefix='intradp-bench') if args.mbit else nullcontext(None)
    common = ['--carriers', kind, '--chunk-bytes', str(args.chunk_bytes), '--repeat',
              str(args.repeat), '--sizes', *map(str, args.sizes), '--mbit', str(args.mbit)]
    with link as shaped:
        robot, server = ([], []) if shaped is None else map(
            shaped.exec_prefix, ('robot', 'server'))
        with process([*common, '--role', 'sink'], server, environment), \
                process([*common, '--role', 'source'], robot, environment) as source:
            output, _ = source.communicate()
    if source.returncode:
        raise SystemExit(f'{kind}: the source failed')
    return dict(json.loads(output.splitlines()[-1]))


def act(args: argparse.Namespace) -> None:
    """Be the sink or the source."""
    torch.set_num_threads(1)
    kind = args.carriers[0]
    host = ADDRESSES['server'] if args.mbit else '127.0.0.1'
    if args.role == 'sink':
        return sink_tcp() if kind == TCP else sink_dds(args.chunk_bytes)
    carrier = TcpCarrier(host) if kind == TCP else DdsCarrier(args.chunk_bytes)
    device = DEVICE if args.mbit else 'lo'
    print(json.dumps(measure_source(carrier, args.sizes, args.repeat, device)), flush=True)
    os._exit(0)  # nothing to save, and no time to lose on taking ROS down


def table(results: dict[str, dict[str, Any]]) -> str:
    """Return the figures as text."""
    lines = [f'{"carrier":12}{"bytes":>9}{"median ms":>11}{"p95 ms":>9}{"Mbit/s":>9}{"wire":>7}'
             f'{"measured":>10}']
    for kind, result in results.items():
        for size, f in result['single'].items():
            lines.append(f'{kind:12}{size:>9}{f["median_ms"]:11.2f}{f["p95_ms"]:9.2f}'
                         f'{f["goodput_mbit"]:9.2f}{f["wire"]:7.3f}{f["measured_mbit"]:10.2f}')
        lines.append(f'{kind:12}{"stream":>9}{result["stream_mbit"]:29.2f}'
                     f'   stall {result["stall_ms"]:.1f} ms')
    return '\n'.join(lines)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    kinds = [*(name for name in TRANSPORTS), TCP]
    parser.add_argument('--carriers', nargs='+', choices=kinds, default=['udp', TCP],
                        help='DDS transports, or tcp for the plain socket')
    parser.add_argument('--mbit', type=float, default=0.0,
                        help='rate of the emulated link, Mbit/s each way (as root); 0: loopback')
    parser.add_argument('--sizes', type=int, nargs='+', default=[30_000, 130_000, 300_000,
                                                                 1_000_000], help='bytes')
    parser.add_argument('--chunk-bytes', type=int, default=30_000)
    parser.add_argument('--repeat', type=int, default=8)
    parser.add_argument('--domain', type=int, default=87, help='ROS domain of both processes')
    parser.add_argument('--json', type=Path, help='write the figures here too')
    parser.add_argument('--role', choices=['sink', 'source'], help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.role:
        return act(args)
    if args.mbit and (reason := available()):
        parser.error(f'no emulated link: {reason}')
    results = {kind: run_one(kind, args) for kind in args.carriers}
    print(table(results))
    if args.json:
        args.json.write_text(json.dumps({'mbit': args.mbit, 'chunk_bytes': args.chunk_bytes,
                                         'carriers': results}, indent=2) + '\n')


if __name__ == '__main__':
    main()
