# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a service needs: how large its batches are, with whom it shares, how many replicas."""
from __future__ import annotations

from collections.abc import Sequence
import math

from intradp_ros.systems.serving.service import Service
from intradp_ros.systems.serving.service_table import ServiceTable

#: Spread of the gaps between requests (deviation over mean) below which they are a sensor's.
STEADY = 0.5
ROUNDING = 1e-9


def category(service: Service, arrivals: Sequence[float]) -> str:
    """Return the declared kind, else guess it: requests at even times come from a sensor."""
    if service.kind:
        return service.kind
    gaps = [b - a for a, b in zip(arrivals, arrivals[1:])]
    mean = sum(gaps) / len(gaps) if gaps else 0.0
    if len(gaps) < 8 or mean <= 0:
        return 'frequency' if math.isfinite(service.rate) else 'latency'
    deviation = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / len(gaps))
    return 'frequency' if deviation < STEADY * mean else 'latency'


def largest_batch(table: ServiceTable, deadline: float, sizes: Sequence[int] = ()) -> int:
    """
    Return the largest batch of which two end within a deadline, 1 if there is none.

    A request waits for the rest of the batch that runs, and is computed in the next one.
    """
    allowed = sizes or range(1, table.most + 1)
    most = deadline / 2 + ROUNDING
    return max((b for b in allowed if b <= table.most and table.quantile(b) <= most), default=1)


def may_share(a: ServiceTable, largest_a: int, deadline_a: float,
              b: ServiceTable, largest_b: int, deadline_b: float) -> bool:
    """Say whether two services may share an executor: each may find the other's batch running."""
    together = a.quantile(largest_a) + b.quantile(largest_b)
    return together <= min(deadline_a, deadline_b) + ROUNDING


def frames_in_batch(largest: int, deadline: float, rate: float) -> int:
    """Return how many streams give frames to one batch (Eq. 5)."""
    frames = max(1, math.floor(deadline * rate)) if math.isfinite(rate) else 1
    return max(1, largest // frames)


def replicas(rate: float, table: ServiceTable, largest: int) -> int:
    """Return the executors that so many requests per second need (Eq. 4)."""
    return max(1, math.ceil(rate * table.quantile(largest) / largest))
