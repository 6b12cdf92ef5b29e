# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the transport makes of a link: goodput, and the time that it adds to a tensor's own.

The sides are two processes at the ends of an emulated link (`transport_side`).
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
from typing import Any

from intradp_lab.emulation.network import LinkSettings, shaped_link
from intradp_lab.emulation.processes import starter
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES

TCP = 'tcp'
START_TIMEOUT, END_TIMEOUT = 120.0, 300.0
#: Bytes of a tensor in the stream, and how many may be in flight at a time.
STREAMED_BYTES, MOST_TENSORS = 250_000, 2000


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
    chunk_bytes: int = LEAST_CHUNK_BYTES

    @property
    def tensors(self) -> int:
        """Count of tensors in the stream."""
        count = round(self.seconds * self.mbit * 1e6 / 8 / STREAMED_BYTES)
        return min(MOST_TENSORS // 2, max(8, count))


def run_job(job: Job, settings: LinkSettings, folder: Path) -> dict[str, Any]:
    """
    Run both sides of a job on a link, and return its figures.

    `goodput` is tensor data in Mbit/s and `share` that of the link's rate;
    `added_ms` is by how much a single tensor took longer than its bytes on
    the wire and the link's delay explain (median of all sizes), and
    `beyond_ms`, by size, longer than those of the tensor alone; `wire` is
    bytes on the wire by bytes of data.

    :raises NetworkError, ChildError: if the link cannot be made, or a process fails.
    """
    environment = {} if job.kind == TCP else {
        'RMW_IMPLEMENTATION': 'rmw_fastrtps_cpp', **transport_environment(job.kind)}
    with shaped_link(settings, 'intradp-transport') as link, starter(folder) as start:
        def side(role: str, name: str) -> Command:
            words = module_arguments('intradp_lab.testbed.transport_side', role,
                                     json.dumps(asdict(job)))
            return Command(f'{job.kind}-{role}', words, link.exec_prefix(name),
                           environment=environment)

        receiving = start(side('sink', 'server'))
        receiving.wait_for_line('^ready$', START_TIMEOUT)
        sending = start(side('source', 'robot'))
        found = sending.wait_for_line('^result (.*)$', START_TIMEOUT + END_TIMEOUT,
                                      others=[receiving])
        figures: dict[str, Any] = json.loads(found[1])
    return figures


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
