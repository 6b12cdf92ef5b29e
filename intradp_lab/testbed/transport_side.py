# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
One end of a measurement of the transport as a process.

``python -m intradp_lab.testbed.transport_side sink|source JOB``, with the job
as JSON.
"""
from __future__ import annotations

import json
import os
from pathlib import Path
import statistics
import sys
import time
from typing import Any

import torch

from intradp_lab.emulation.network import ADDRESSES, burst_bytes, DEVICE
from intradp_lab.testbed.carriers import Carrier, carrier, sink
from intradp_lab.testbed.transport_bench import END_TIMEOUT, Job, STREAMED_BYTES
from intradp_ros.profiling.machine import prepare_process, settle_process

_PAUSE = 0.05


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
    tensor = torch.randint(256, (STREAMED_BYTES,), dtype=torch.uint8)
    numbers = range(first, first + job.tensors)
    for number in numbers:
        way.send(number, tensor)
    times = [way.arrived.wait(number, END_TIMEOUT) for number in numbers]
    return (len(times) - 1) * STREAMED_BYTES * 8e-6 / (max(times) - min(times))


def device_bytes() -> int:
    """Return the bytes that this side sent so far."""
    return int(Path(f'/sys/class/net/{DEVICE}/statistics/tx_bytes').read_text())


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
