# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What moving an inference's bytes takes of a core on each side, thread by thread.

Two processes on a core each, with a shaped link between them (two network
namespaces: Linux, as root).  The robot sends frames, each as transfers of
some rows, and the server answers each with fewer bytes once it has all of
it; nothing is computed.  Processor seconds and wake-ups are the kernel's
account of every thread (schedstat), less those of as many seconds without
frames.  ``charged`` is what schedules are charged for these transfers, by
what was measured on this machine (`dds/transport_cost.py`).
"""
from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping
import json
import os
from pathlib import Path
import sys
import tempfile
import threading
import time
from typing import Any

from models import print_table
import torch

from intradp_lab.testbed.experiment import Place, place
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.processes import Command
from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.dds.standalone import standalone_channel
from intradp_ros.dds.transport_cost import measure_transport_cost
from intradp_ros.dds.transport_profile import TRANSPORTS
from intradp_ros.link.chunk_size import chunk_bytes_at
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.profiling.profile import TransportCost
from intradp_ros.split.regions.region import Region
from intradp_ros.wire.chunking import ExpectedTransfer, Reassembler
from intradp_ros.wire.cutting import cut_into_chunks
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

UP, DOWN, TRANSFER = 200_000, 50_000, 25_000
PERIOD, PATIENCE, WARM_UP = 0.4, 30.0, 5
NAME, SESSION = 'moving_bench', 1
SIDES = ('robot', 'server')
Account = Mapping[str, tuple[float, int]]


def threads() -> dict[str, tuple[float, int]]:
    """Return processor seconds and wake-ups of the threads of this process, by name."""
    seconds: dict[str, float] = defaultdict(float)
    wakes: Counter[str] = Counter()
    named = {str(thread.native_id): thread.name for thread in threading.enumerate()}
    for task in Path('/proc/self/task').iterdir():
        name = named.get(task.name) or (task / 'comm').read_text().strip()
        run, _, _ = (task / 'schedstat').read_text().split()
        status = (task / 'status').read_text().splitlines()
        seconds[name] += int(run) / 1e9
        wakes[name] += sum(int(line.split()[1]) for line in status
                           if line.startswith('voluntary_ctxt_switches'))
    return {name: (seconds[name], wakes[name]) for name in seconds}


def spent(before: Account, after: Account) -> dict[str, tuple[float, int]]:
    """Return what threads took between two accounts."""
    return {name: (run - before.get(name, (0.0, 0))[0], wakes - before.get(name, (0.0, 0))[1])
            for name, (run, wakes) in after.items()}


def send_bytes(channel: DdsChannel, inference: int, nbytes: int) -> None:
    """Send one way of an inference, as transfers of a few rows each."""
    for transfer, start in enumerate(range(0, nbytes, TRANSFER)):
        tensor = torch.zeros(min(TRANSFER, nbytes - start), dtype=torch.uint8)
        for chunk in cut_into_chunks(tensor, session=SESSION, epoch=0, inference=inference,
                                     schedule=0, transfer=transfer, value=0, region=Region(0, 1),
                                     chunk_bytes=channel.chunk_bytes):
            channel.send(chunk)


class Whole:
    """Puts transfers together, and calls `done` when all bytes of an inference are there."""

    def __init__(self, nbytes: int, done: Callable[[int], None]) -> None:
        self._nbytes, self._done, self._got = nbytes, done, Counter[int]()
        self._pieces = Reassembler(self._expected)
        self.controls: Callable[[], None] = lambda: None

    def _expected(self, chunk: Chunk) -> ExpectedTransfer:
        left = self._nbytes - chunk.transfer * TRANSFER
        return ExpectedTransfer(0, Region(0, 1), torch.uint8, (min(TRANSFER, left),))

    def take(self, frame: Frame) -> None:
        """Take a frame."""
        if isinstance(frame, Control):
            self.controls()
            return
        tensor = self._pieces.add(frame)
        if tensor is not None:
            self._got[frame.inference] += tensor.numel()
            if self._got[frame.inference] == self._nbytes:
                self._done(frame.inference)


def play(channel: DdsChannel, frames: int) -> dict[str, Any]:
    """Send frames; return what the threads of both sides took for each."""
    arrived = threading.Semaphore(0)
    whole = Whole(DOWN, lambda inference: arrived.release())
    greeted = threading.Event()
    whole.controls = greeted.set
    channel.listen(whole.take)
    while not greeted.wait(0.2):
        channel.send(Control(ControlKind.PING, SESSION))
    for inference in range(WARM_UP):
        _frame(channel, inference, arrived)
    before = threads()
    start = time.monotonic()
    for inference in range(WARM_UP, WARM_UP + frames):
        _frame(channel, inference, arrived)
    busy, seconds = spent(before, threads()), time.monotonic() - start
    before = threads()
    channel.send(Control(ControlKind.BYE, SESSION))
    time.sleep(seconds)
    idle = spent(before, threads())
    return {'frames': frames, 'busy': busy, 'idle': idle}


def _frame(channel: DdsChannel, inference: int, arrived: threading.Semaphore) -> None:
    begin = time.monotonic()
    send_bytes(channel, inference, UP)
    if not arrived.acquire(timeout=PATIENCE):
        raise TimeoutError('a frame was lost')
    time.sleep(max(0.0, begin + PERIOD - time.monotonic()))


def serve(channel: DdsChannel, frames: int) -> dict[str, Any]:
    """Answer frames; return what the threads took."""
    accounts: list[dict[str, tuple[float, int]]] = []
    times: list[float] = []
    over = threading.Event()

    def note() -> None:
        accounts.append(threads())
        times.append(time.monotonic())

    def answer(inference: int) -> None:
        if inference == WARM_UP - 1:
            threading.Timer(PERIOD / 2, note).start()
        threading.Thread(target=send_bytes, args=(channel, inference, DOWN)).start()

    whole = Whole(UP, answer)

    def control() -> None:
        if accounts:
            note()
            over.set()
        channel.send(Control(ControlKind.PONG, SESSION))

    whole.controls = control
    channel.listen(whole.take)
    if not over.wait(20 * PATIENCE):
        raise TimeoutError('no frames')
    busy = spent(accounts[0], accounts[1])
    time.sleep(times[1] - times[0])
    return {'frames': frames, 'busy': busy, 'idle': spent(accounts[1], threads())}


def run(where: Place, folder: Path, mbps: float, frames: int) -> dict[str, dict[str, Any]]:
    """Run both sides over a link; return what each printed."""
    where.link.set_rate(mbps)
    cores = sorted(os.sched_getaffinity(0))
    files = {side: folder / f'{side}.json' for side in SIDES}
    children = [where.start(Command(
        side, [sys.executable, __file__, '--side', side, '--frames', str(frames), '--json',
               str(files[side])], where.link.exec_prefix(side),
        cores[:1] if side == 'robot' else cores[1:2] or cores, where.environment))
        for side in SIDES]
    for child in children:
        if child.wait(20 * PATIENCE):
            raise child.failure('could not measure')
    return {side: json.loads(files[side].read_text()) for side in SIDES}


def figures(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return milliseconds and wake-ups of a frame, of each thread and of all."""
    frames, busy, idle = found['frames'], found['busy'], found['idle']
    lanes = {name: (1e3 * (run - idle.get(name, (0.0, 0))[0]) / frames,
                    (wakes - idle.get(name, (0.0, 0))[1]) / frames)
             for name, (run, wakes) in busy.items()}
    return {'ms': sum(ms for ms, _ in lanes.values()),
            'idle_ms': 1e3 * sum(run for run, _ in idle.values()) / frames,
            'wakes': sum(wakes for _, wakes in lanes.values()), 'threads': lanes}


def cost_on_one_core() -> TransportCost:
    """Return what moving bytes costs a device without a free core, as these sides are."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(cores)[:1])
    try:
        return measure_transport_cost()
    finally:
        os.sched_setaffinity(0, cores)


def charged(cost: TransportCost, side: str, mbps: float) -> float:
    """Return the milliseconds that the cost model charges a side for a frame."""
    piece = chunk_bytes_at(mbps * 125e3)
    out, back = (UP, DOWN) if side == 'robot' else (DOWN, UP)
    return 1e3 * (out // TRANSFER * cost.sending(TRANSFER, piece)
                  + back // TRANSFER * cost.receiving(TRANSFER, piece))


def main() -> None:
    """Parse arguments, run, and report."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('--mbps', type=float, default=20.0)
    parser.add_argument('--frames', type=int, default=25)
    parser.add_argument('--transports', nargs='+', choices=list(TRANSPORTS),
                        default=['udp', 'large_data'])
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    parser.add_argument('--side', choices=SIDES, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.side:
        prepare_process()
        with standalone_channel(NAME, args.side) as channel:
            found = (play if args.side == 'robot' else serve)(channel, args.frames)
        write_atomically(args.json, json.dumps(found))
        return
    results: dict[str, dict[str, dict[str, Any]]] = {}
    for transport in args.transports:
        with tempfile.TemporaryDirectory() as name, place(Path(name), transport) as where:
            found = run(where, Path(name), args.mbps, args.frames)
            os.environ.update(where.environment)
            cost = cost_on_one_core()
            results[transport] = {
                side: {**figures(found[side]), 'charged_ms': charged(cost, side, args.mbps)}
                for side in SIDES}
        show(transport, args.mbps, results[transport])
    if args.json:
        write_atomically(args.json, json.dumps(results, indent=2) + '\n')


def show(transport: str, mbps: float, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the figures of one transport."""
    rows = []
    for side, f in results.items():
        rows.append([side, 'all', f'{f["ms"]:.1f}', f'{f["wakes"]:.0f}', f'{f["charged_ms"]:.1f}',
                     f'{f["idle_ms"]:.1f}'])
        rows += [['', name, f'{ms:.2f}', f'{wakes:.0f}', '', '']
                 for name, (ms, wakes) in sorted(f['threads'].items(), key=lambda t: -t[1][0])
                 if ms >= 0.05]
    print_table(f'moving {UP / 1e3:g} kB up and {DOWN / 1e3:g} kB down, {transport}, '
                f'{mbps:g} Mbit/s', ['side', 'thread'],
                ['ms a frame', 'wake-ups', 'charged ms', 'without frames, ms'], rows)


if __name__ == '__main__':
    main()
