# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a service needs: which operators, how large its batches are, with whom it shares."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
import math

import numpy as np

from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import ServiceTable

#: Spread of the gaps between requests (deviation over mean) below which they are a sensor's, and
#: how many gaps tell.
STEADY, LEAST_GAPS = 0.5, 8
#: What rounding of products may amount to, so that 0.1 s at 30 frames/s are 3 frames.
ROUNDING = 1e-9


def category(service: Service, arrivals: Sequence[float], streams: Sequence[int] = ()) -> str:
    """
    Return the declared kind, else guess it: requests at even times come from a sensor.

    `streams` says of which stream each request is, -1 for none; many sensors together look like
    people.  Most requests decide.
    """
    if service.kind:
        return service.kind
    times = np.asarray(arrivals, float)
    of = np.asarray(streams, np.int64) if len(streams) else np.zeros(len(times), np.int64)
    counts = {True: 0, False: int((of < 0).sum())}
    for stream in np.unique(of[of >= 0]):
        gaps = np.diff(times[of == stream])
        if len(gaps) >= LEAST_GAPS and gaps.mean() > 0:
            counts[bool(gaps.std() < STEADY * gaps.mean())] += len(gaps) + 1
    if not any(counts.values()):
        return 'frequency' if math.isfinite(service.rate) else 'latency'
    return 'frequency' if counts[True] > counts[False] else 'latency'


def operators(kind: str, several: bool) -> tuple[str, ...]:
    """
    Return the operators for a kind: batching, tasks side by side, frames, replicas, parts.

    `several`: a model that one device does not hold.
    """
    frames = () if kind != 'frequency' else ('MF', 'DP') if several else ('MF',)
    return ('BS', 'MT', *frames, *(('MP',) if several else ()))


def largest_batch(table: ServiceTable, deadline: float, sizes: Sequence[int] = ()) -> int:
    """
    Return the largest batch of which two end within a deadline, 1 if there is none.

    A request waits for the rest of the batch that runs, and is computed in the next one.  A
    larger batch that makes fewer rows per second is not taken.
    """
    best = 1
    for b in sorted(sizes or range(1, table.most + 1)):
        if b <= table.most and 2 * table.quantile(b) <= deadline + ROUNDING \
                and b * table.quantile(best) >= best * table.quantile(b) * (1 - ROUNDING):
            best = b
    return best


def may_share(a: ServiceTable, largest_a: int, deadline_a: float,
              b: ServiceTable, largest_b: int, deadline_b: float) -> bool:
    """Say whether two services may share an executor: each may find the other's batch running."""
    together = a.quantile(largest_a) + b.quantile(largest_b)
    return together <= min(deadline_a, deadline_b) + ROUNDING


def frames_in_batch(budget: float, rate: float, largest: int) -> int:
    """
    Return MF: how many frames of one stream a batch may hold, at least 1.

    The first of them waits for the last, `budget` seconds at most: what the deadline leaves after
    computing.  `rate` is that of the stream, frames per second.
    """
    if not 0 < rate < math.inf:
        return 1
    return max(1, min(largest, math.floor(max(0.0, budget) * rate + ROUNDING)))


def streams_in_batch(largest: int, frames: int) -> int:
    """Return of how many streams a batch holds so many frames each (Eq. 5), at least 1."""
    return max(1, largest // max(1, frames))


def replicas(rate: float, table: ServiceTable, largest: int) -> int:
    """Return the executors that so many requests per second need (DP, Eq. 4)."""
    return max(1, math.ceil(rate * table.quantile(largest) / largest - ROUNDING))


def tasks_side_by_side(tables: Mapping[int, ServiceTable], deadline: float,
                       sizes: Sequence[int] = ()) -> tuple[int, int]:
    """
    Return MT and BS: how many executors of a device run a service at once, and their batch.

    `tables[k]` was measured with k executors at once.  Most rows per second win, of equals fewer
    executors; (0, 0) where no batch fits the deadline.
    """
    best, most = (0, 0), 0.0
    for tasks, table in sorted(tables.items()):
        batch = largest_batch(table, deadline, sizes)
        made = tasks * batch / table.quantile(batch)
        if table.quantile(batch) <= deadline + ROUNDING and made > most * (1 + ROUNDING):
            best, most = (tasks, batch), made
    return best


@dataclass(frozen=True, slots=True)
class Allocation:
    """The operators of a service and their sizes; `rate` of one group, requests per second."""

    operators: tuple[str, ...]
    batch: int
    tasks: int
    frames: int
    streams: int
    groups: int
    rate: float


def allocate(service: Service, kind: str, several: bool, tables: Mapping[int, ServiceTable],
             stream_rate: float = 0.0) -> Allocation | None:
    """
    Return the sizes for a service; None where no batch fits its deadline.

    `tables` as for `tasks_side_by_side`, of a group of devices where it needs several.
    `stream_rate` is what a stream sends, frames per second; where not given, what is declared.
    """
    tasks, batch = tasks_side_by_side(tables, service.deadline, service.batches)
    if not batch:
        return None
    table, rate = tables[tasks], stream_rate or service.rate
    frames, groups = 1, 1
    if kind == 'frequency' and math.isfinite(rate):
        frames = frames_in_batch(service.deadline - 2 * table.quantile(batch), rate, batch)
        groups = replicas(rate / tasks, table, batch) if several else 1
    return Allocation(operators(kind, several), batch, tasks, frames,
                      streams_in_batch(batch, frames), groups,
                      tasks * batch / table.quantile(batch))
