# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The least seconds a token that memory, disks and links allow: for a plan, and for a fleet.

Each byte of weights is read once a token from memory, and what does not stay there from the
disk before; hidden states cross hop by hop.  Rates are those measured in the same run.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

from intradp_ros.systems.language.expert_reads import round_bytes
from intradp_ros.systems.language.manifest import Manifest
from intradp_ros.systems.language.segment_plan import SegmentPlan


@dataclass(frozen=True, slots=True)
class DeviceRates:
    """Bytes per second from memory and from disk, and the bytes that plans may use."""

    memory_rate: float
    disk_rate: float
    memory: float


@dataclass(frozen=True, slots=True)
class Limit:
    """Seconds a token, and what binds: "memory and hops", or "disk of NAME"."""

    seconds: float
    binds: str


def plan_limit(plan: SegmentPlan, manifest: Manifest, rates: Mapping[str, DeviceRates],
               hop: float, tokens: int) -> Limit:
    """
    Return the limit of a plan.

    `hop` are the seconds of one hop; `tokens` those that a request has so far, whose keys and
    values are read as well.
    """
    seconds = plan.hops * hop
    bound = 'memory and hops'
    disk = 0.0
    for name in plan.participants:
        weights = sum(manifest.read_bytes(b) for b in plan.blocks_of(name))
        cache = len(plan.layers(name)) * tokens * manifest.kv_bytes
        head = _matrix(manifest) if name == plan.head else 0
        seconds += (weights + cache + head) / rates[name].memory_rate
        streamed = round_bytes(plan, manifest, name)
        if streamed and streamed / rates[name].disk_rate > max(disk, seconds):
            disk, bound = streamed / rates[name].disk_rate, f'disk of {name}'
    if disk < seconds:
        return Limit(seconds, 'memory and hops')
    return Limit(disk, bound)


def fleet_limit(manifest: Manifest, rates: Mapping[str, DeviceRates], hop: float, head: str,
                tokens: int) -> Limit:
    """
    Return the limit of any plan on these devices: for some of them, each holds what it can.

    For a time T device i may read ``memory_i + disk_i T`` bytes in it; the fastest memories are
    filled first.
    """
    wanted = sum(manifest.read_bytes(block) for block in range(len(manifest.blocks)))
    cache = manifest.layers * tokens * manifest.kv_bytes
    best = Limit(float('inf'), '')
    for size in range(1, len(rates) + 1):
        for subset in combinations(rates, size):
            hops = 0 if subset == (head,) else max(2, size + (head not in subset))
            fixed = hops * hop + _matrix(manifest) / rates[head].memory_rate

            def needed(seconds: float, names: tuple[str, ...] = subset,
                       fixed: float = fixed) -> float:
                left, spent = float(wanted), fixed
                for name in sorted(names, key=lambda n: -rates[n].memory_rate):
                    own = rates[name]
                    room = own.memory - (manifest.head_bytes if name == head else 0)
                    part = min(left, max(0.0, room) + own.disk_rate * seconds)
                    left, spent = left - part, spent + part / own.memory_rate
                return spent + cache / min(r.memory_rate for r in rates.values()) \
                    if left <= 0 else float('inf')

            low, high = 0.0, 1e4
            if needed(high) > high:
                continue
            for _ in range(60):
                middle = (low + high) / 2
                low, high = (low, middle) if needed(middle) <= middle else (middle, high)
            if high < best.seconds:
                binds = 'disks' if needed(high * 1.0001) < 0.99 * high else 'memory and hops'
                best = Limit(high, binds)
    return best


def _matrix(manifest: Manifest) -> int:
    """Return the bytes of the matrix that makes logits."""
    own = [t.nbytes for t in manifest.head.tensors if t.name == 'lm_head.weight']
    return own[0] if own else manifest.embedding.nbytes
