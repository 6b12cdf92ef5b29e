# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How the samples of a micro-batch are divided among the devices of a replica group."""
from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations

import numpy as np
import numpy.typing as npt

Shares = tuple[int, ...]
"""Samples of each device of the fleet; they add up to the micro-batch."""

#: More groups make planning slow and hardly better.
MOST_GROUPS = 40


def largest_remainder(weights: Sequence[float], total: int) -> Shares:
    """Divide `total` in proportion to weights: whole parts, then the largest remainders."""
    exact = total * np.asarray(weights, dtype=float) / sum(weights)
    parts = np.floor(exact).astype(int)
    for k in np.argsort(parts - exact, kind='stable')[:total - int(parts.sum())]:
        parts[k] += 1
    return tuple(int(part) for part in parts)


def replica_groups(speeds: Sequence[float], samples: int) -> npt.NDArray[np.int64]:
    """
    Return the shares that stages may have, shape (groups, devices); single devices first.

    For every set of devices: samples in proportion to speed; then those with
    one sample moved from any device to any other (which also gives devices with
    little memory less than their speed says).  Small sets come first, and at
    most `MOST_GROUPS` besides the single devices are kept.
    """
    count = len(speeds)
    single = [tuple(samples if k == d else 0 for k in range(count)) for d in range(count)]
    several = dict.fromkeys(shares for shares in _several(speeds, samples)
                            if sum(part > 0 for part in shares) > 1)
    return np.array(single + list(several)[:MOST_GROUPS], dtype=np.int64).reshape(-1, count)


def _several(speeds: Sequence[float], samples: int) -> Iterator[Shares]:
    sets = [members for size in range(2, min(len(speeds), samples) + 1)
            for members in combinations(range(len(speeds)), size)]
    balanced = []
    for members in sets:
        parts = np.zeros(len(speeds), dtype=int)
        parts[list(members)] = largest_remainder([speeds[d] for d in members], samples)
        balanced.append(parts)
        yield tuple(parts.tolist())
    for members, parts in zip(sets, balanced):
        for giver, taker in permutations(members, 2):
            if parts[giver] > 0:
                moved = parts.copy()
                moved[giver] -= 1
                moved[taker] += 1
                yield tuple(moved.tolist())
