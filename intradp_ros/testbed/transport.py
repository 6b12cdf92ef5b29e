# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the transport makes of a link: goodput, and the time that it adds to a tensor's own.

The sides are two processes at the ends of an emulated link:
``python -m intradp_ros.testbed.transport sink|source JOB``, with the job as JSON.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
import statistics
import sys
import time
from typing import Any

import torch

from intradp_ros.dds.transport import transport_environment
from intradp_ros.emulation.network import (
    ADDRESSES,
    burst_bytes,
    DEVICE,
    LinkSettings,
    shaped_link,
)
from intradp_ros.emulation.processes import Command, module_arguments, starter
from intradp_ros.profiling.device import prepare_process, settle_process
from intradp_ros.testbed.carriers import Carrier, carrier, MOST_TENSORS, sink, TCP

START_TIMEOUT, END_TIMEOUT = 120.0, 300.0
_STREAMED_BYTES = 250_000
_PAUSE = 0.05


@dataclass(frozen=True)
class Job:
    """
    What one carrier is to do: single tensors of some sizes, then a stream for about `seconds`.

    `kind` is `TCP` or a DDS transport.
    """

    kind: str
    mbit: float
    delay_ms: float = 0.0
    sizes: tuple[int, ...] = (30_000, 130_000, 300_000)
    repeat: int = 10
    seconds: float = 3.0
    chunk_bytes: int = 15_000

    @property
    def tensors(self) -> int:
        """Count of tensors in the stream."""
        count = round(self.seconds * self.mbit * 1e6 / 8 / _STREAMED_BYTES)
        return min(MOST_TENSORS // 2, max(8, count))


def run_job(job: Job, settings: LinkSettings, folder: Path) -> dict[str, Any]:
    """
    Run both sides of a job on a link, and return its figures.

    `goodput` is tensor data in Mbit/s and `share` that of the link's rate;
    `added_ms` is by how much a single tensor took longer than its bytes on
    the wire and the link's delay explain (median of all sizes), and
    `beyond_ms`, by size, longer than those of the tensor alone; `wire` is
    bytes on the wire by bytes of data.

    Raises
    ------
    NetworkError, ChildError
        If the link cannot be made, or a process fails.

    """
    environment = {} if job.kind == TCP else {
        'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp', **transport_environment(job.kind)}
    with shaped_link(settings, 'intradp-transport') as link, starter(folder) as start:
        def side(role: str, name: str) -> Command:
            words = module_arguments('intradp_ros.testbed.transport', role,
                                     json.dumps(asdict(job)))
            return Command(f'{job.kind}-{role}', words, link.exec_prefix(name),
                           environment=environment)

        receiving = start(side('sink', 'server'))
        receiving.wait_for_line('^ready$', START_TIMEOUT)
        sending = start(side('source', 'robot'))
        found = sending.wait_for_line('^result (.*)$', START_TIMEOUT + END_TIMEOUT)
        figures: dict[str, Any] = json.loads(found[1])
    return figures


def measure(job: Job, way: Carrier) -> dict[str, Any]:
    """Return the figures of a carrier."""
    singles = [measure_size(job, way, 1 + i * job.repeat, size)
               for i, size in enumerate(job.sizes)]
    goodput = stream(job, way, 1 + len(job.sizes) * job.repeat)
    return {'goodput': goodput, 'share': goodput / job.mbit,
            'added_ms': statistics.median(row['added_ms'] for row in singles),
            'beyond_ms': {row['size']: row['beyond_ms'] for row in singles},
            'wire': singles[-1]['wire']}


def measure_size(job: Job, way: Carrier, first: int, size: int) -> dict[str, float]:
    """Send tensors of one size, one at a time."""
    tensor = torch.randint(256, (size,), dtype=torch.uint8)
    latencies, wires = [], []
    for number in range(first, first + job.repeat):
        before, start = device_bytes(), time.monotonic()
        way.send(number, tensor)
        latencies.append(way.arrived.wait(number) - start)
        wires.append(device_bytes() - before)
        time.sleep(_PAUSE)
    latency, wire = statistics.median(latencies), statistics.median(wires)
    return {'size': size, 'wire': wire / size,
            'added_ms': 1e3 * latency - explained_ms(job, wire),
            'beyond_ms': 1e3 * latency - explained_ms(job, size)}


def explained_ms(job: Job, nbytes: float) -> float:
    """Return the milliseconds that bytes need on the idle link."""
    queued = max(0.0, nbytes - burst_bytes(job.mbit))  # a token bucket lets the first ones through
    return job.delay_ms + queued * 8e-3 / job.mbit


def stream(job: Job, way: Carrier, first: int) -> float:
    """Send tensors without waiting; return the Mbit/s from the first arrival to the last."""
    tensor = torch.randint(256, (_STREAMED_BYTES,), dtype=torch.uint8)
    numbers = range(first, first + job.tensors)
    for number in numbers:
        way.send(number, tensor)
    times = [way.arrived.wait(number, END_TIMEOUT) for number in numbers]
    return (len(times) - 1) * _STREAMED_BYTES * 8e-6 / (max(times) - min(times))


def device_bytes() -> int:
    """Return the bytes that this side sent so far."""
    return int(Path(f'/sys/class/net/{DEVICE}/statistics/tx_bytes').read_text())


def congestion_control() -> str:
    """Return how the kernel's TCP reacts to losses, which decides about TCP and large_data."""
    path = Path('/proc/sys/net/ipv4/tcp_congestion_control')
    return path.read_text().strip() if path.exists() else 'unknown'


def targets_missed(figures: Mapping[str, Any], loss: float) -> Sequence[str]:
    """Return which targets the figures miss: 90 % of the rate (80 % with losses), 2 ms."""
    wanted = 0.8 if loss else 0.9
    missed = []
    if figures['share'] < wanted:
        missed.append(f'below {wanted:.0%} of the rate')
    if not loss and figures['added_ms'] > 2.0:
        missed.append('adds more than 2 ms')
    return missed


def main() -> None:
    """Be the side that the command line names."""
    role, text = sys.argv[1:]
    data = json.loads(text)
    job = Job(**{**data, 'sizes': tuple(data['sizes'])})
    prepare_process()
    if role == 'sink':
        settle_process()
        sink(job.kind, job.chunk_bytes, lambda: print('ready', flush=True))
        return
    with carrier(job.kind, ADDRESSES['server'], job.chunk_bytes) as way:
        settle_process()
        print('result ' + json.dumps(measure(job, way)), flush=True)
        os._exit(0)  # nothing to save, and no time to lose on taking ROS down


if __name__ == '__main__':
    main()
