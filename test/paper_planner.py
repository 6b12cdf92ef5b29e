# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The offline planner as the paper prints it (Alg. 1, Eq. 1 to 4), to compare with.

Devices are filled with whole layers; what is left over is divided over the dynamic slots by
the printed recursion, which adds the uncovered loads of devices though they happen at once.  Its
assignment is then judged by the same costs as ours.  Misprints that make it infeasible are
resolved so that a plan comes out: slots absorb ``S - 1`` layers each.
"""
from __future__ import annotations

import math

from intradp_ros.systems.language.memory import SLOT_MARGIN
from intradp_ros.systems.language.plan_search import fixed_bytes
from intradp_ros.systems.language.planner import _pages, hop_seconds, ring_order


def paper_plan(given, head):
    """Return the seconds of the paper's plan by our costs; None if it finds none."""
    manifest, names = given.manifest, ring_order(given.topology.names, head)
    layers = manifest.layers
    cache = _pages(given) * 16 * manifest.kv_bytes
    size = sum(block.nbytes + SLOT_MARGIN for block in manifest.blocks[:2]) + cache
    room = [int(max(0, given.topology.device(n).memory_bytes
                    - fixed_bytes(given, head, n)) // size) for n in names]
    layer = [given.block(n, 0) + given.block(n, 1) for n in names]
    load = [given.load(n, 0) + given.load(n, 1) for n in names]
    if sum(room) >= layers:  # a plain pipeline
        left, seconds = layers, given.head_seconds(head) + hop_seconds(given, head, names, 1)
        for k, most in enumerate(room):
            taken = min(left, most)
            left, seconds = left - taken, seconds + taken * layer[k]
        return seconds
    best = None
    for segments in range(2, max(2, -(-layers // len(names))) + 1):
        slots = -(-(layers - sum(room)) // (segments - 1))
        if any(most < 1 for most in room) or slots > sum(room):
            continue
        spread = _recursion(slots, room, load, layer, segments)
        if spread is None:
            continue
        # each slot stands for `segments` layers in the place of one
        counts = [most + o * (segments - 1) for most, o in zip(room, spread)]
        extra = sum(counts) - layers
        for k in sorted(range(len(names)), key=lambda k: -layer[k]):
            less = min(extra, counts[k] - 1 if not spread[k] else spread[k] * (segments - 1) - 1)
            less = max(0, less)
            counts[k], extra = counts[k] - less, extra - less
        if extra or any(count < segments and o for count, o in zip(counts, spread)):
            continue
        streamed = [min(o * segments, count) for o, count in zip(spread, counts)]
        if any(count * cache + (count - n + o) * (size - cache) + fixed_bytes(given, head, name)
               > given.topology.device(name).memory_bytes
               for name, count, n, o in zip(names, counts, streamed, spread)):
            continue  # keys and values of what is streamed were forgotten
        computing = given.head_seconds(head) + hop_seconds(given, head, names, segments) \
            + sum(c * one for c, one in zip(counts, layer))
        seconds = max(computing, *(n * (a + b) for n, a, b in zip(streamed, load, layer)))
        best = seconds if best is None else min(best, seconds)
    return best


def _recursion(slots, room, load, layer, segments):
    """Return the slots of each device by Eq. 3 and 4, sums where a maximum belongs."""
    count, hidden = len(room), sum(m * one for m, one in zip(room, layer)) / segments
    table = {(-1, 0): (0.0, ())}
    for k in range(count):
        for taken in range(slots + 1):
            options = []
            for own in range(min(taken, room[k]) + 1):
                before = table.get((k - 1, taken - own))
                if before:
                    options.append((before[0] + max(0.0, own * load[k] - hidden),
                                    (*before[1], own)))
            if options:
                table[k, taken] = min(options)
    found = table.get((count - 1, slots), (math.inf, None))
    return found[1]
