# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How the samples of a micro-batch are divided inside a group (Asteroid, Algorithm 1).

Blocks of samples go to devices by speed as far as their memory lets them; then from the slowest
device to whichever gets them done first, as long as the slowest gets faster.  The last, bad move
of the printed loop is not made.
"""
from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush

import numpy as np

from intradp_ros.planning.shares import largest_remainder
from intradp_ros.systems.training.plan.round_costs import RoundCosts, Shares


def allocate(costs: RoundCosts, names: Sequence[str], first: int, last: int, kept: int,
             ) -> Shares | None:
    """
    Return the samples of each device of a group for a stage; None where memory does not suffice.

    Devices that get nothing are left out.  `kept` micro-batches are kept at once.
    """
    blocks = len(costs.sizes) - 1
    if len(names) == 1:
        fits = costs.memory(first, last, costs.micro_batch, kept) <= (
            costs.topology.device(names[0]).memory_bytes)
        return ((names[0], costs.micro_batch),) if fits else None
    tables = [costs.dealing_seconds(name, first, last) for name in names]
    room = [costs.blocks(costs.most_samples(name, first, last, kept)) for name in names]
    if sum(room) < blocks:
        return None
    given = [0] * len(names)
    left = blocks
    while left:  # Alg. 1, step 1: by speed, what is left over among those with room
        open_ = [k for k in range(len(names)) if given[k] < room[k]]
        speeds = [1.0 / max(float(tables[k][-1]), 1e-12) for k in open_]
        for k, more in zip(open_, largest_remainder(speeds, left)):
            taken = min(more, room[k] - given[k])
            given[k] += taken
            left -= taken
    while True:  # step 2: from the straggler to who is done first with one more
        times = [float(table[count]) for table, count in zip(tables, given)]
        slowest = int(np.argmax(times))
        after, taker = min(((float(tables[k][given[k] + 1]), k) for k in range(len(names))
                            if k != slowest and given[k] < room[k]), default=(np.inf, -1))
        if not given[slowest] or after >= times[slowest]:
            break
        given[slowest] -= 1
        given[taker] += 1
    return as_shares(costs, names, given, costs.micro_batch)


def deal_round(costs: RoundCosts, names: Sequence[str]) -> Shares | None:
    """
    Return the samples of a round for each device that trains the whole network on its own.

    Block after block goes to whichever is done first with it; None where memory does not suffice,
    or a round of one micro-batch, or of broken blocks, is dealt alike anyway.
    """
    each, blocks = len(costs.sizes) - 1, -(-costs.samples // costs.grain)
    if costs.micro_batches == 1 or costs.micro_batch % costs.grain:
        return None
    tables = [costs.dealing_seconds(name, 0, costs.layers) for name in names]
    room = [costs.blocks(costs.most_samples(name, 0, costs.layers, 1)) for name in names]

    def seconds(k: int, count: int) -> float:
        if not count:
            return 0.0
        passes = -(-count // each)
        least, larger = divmod(count, passes)
        return float((passes - larger) * tables[k][least]
                     + (larger * tables[k][least + 1] if larger else 0.0))

    def fits(k: int, count: int) -> bool:
        return not count or -(-count // -(-count // each)) <= room[k]

    def more(k: int, count: int) -> list[tuple[float, int, int]]:
        """Return a device with the next count whose passes its memory holds, if there is one."""
        found = next((n for n in range(count + 1, min(blocks, count + each) + 1)
                      if fits(k, n)), None)
        return [] if found is None else [(seconds(k, found), k, found)]

    given, left = [0] * len(names), blocks
    next_ = [one for k in range(len(names)) for one in more(k, 0)]
    heapify(next_)
    while left and next_:
        _, k, count = heappop(next_)
        if count - given[k] <= left:
            left -= count - given[k]
            given[k] = count
            for one in more(k, count):
                heappush(next_, one)
    if left:
        return None
    while min(room) < each:  # where memory leaves out some counts: from the slowest to others
        slowest = max(range(len(names)), key=lambda k: seconds(k, given[k]))
        after, moved, taker = min(
            ((max(seconds(slowest, given[slowest] - n), seconds(k, given[k] + n)), n, k)
             for n in range(1, min(each, given[slowest]) + 1) if fits(slowest, given[slowest] - n)
             for k in range(len(names)) if k != slowest and fits(k, given[k] + n)),
            default=(np.inf, 0, 0))
        if after >= seconds(slowest, given[slowest]):
            break
        given[slowest] -= moved
        given[taker] += moved
    return as_shares(costs, names, given, costs.samples)


def in_proportion(costs: RoundCosts, names: Sequence[str]) -> Shares | None:
    """Return the samples of a round by the devices' speeds; None where `deal_round` has none."""
    if costs.micro_batches == 1 or costs.micro_batch % costs.grain:
        return None
    speeds = [1 / max(sum(costs.seconds(name, 0, costs.layers, costs.micro_batch)), 1e-12)
              for name in names]
    return as_shares(costs, names, largest_remainder(speeds, -(-costs.samples // costs.grain)),
                     costs.samples)


def as_shares(costs: RoundCosts, names: Sequence[str], blocks: Sequence[int], samples: int,
              ) -> Shares:
    """Return so many samples as blocks; where the last block is short, the last device has it."""
    short = sum(blocks) * costs.grain - samples
    shares = [(name, count * costs.grain) for name, count in zip(names, blocks) if count]
    shares[-1] = (shares[-1][0], shares[-1][1] - short)
    return tuple(shares)
