# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Figures of placements, one after another: plain Python on arrays that numba compiles as it stands.

What is placed is kept node by node, so that a placement goes on from where
it differs from the one before it.  Callers put alike ones next to each other.
"""
from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


class Tables(NamedTuple):
    """
    What placements cost.  Lists of lists are flat: those of k begin at ``at[k]``.

    `seconds` by node, group and device; `shares` of each group.  By node the
    flows that it reads, and those that it makes for the source (`back`).  By
    flow its `maker`, its bytes, and its `readers` as they are placed (-1: the
    source).  By two groups (`pair_at`) between which devices how many samples
    go.  By two devices `per_byte` and `delay`.  By node `weights` and
    `working` bytes.  `media_seconds` by two devices and medium, `pair_seconds`
    by two devices.  `watts` as in `FleetCosts`.  The last five: the source's
    index, micro-batches, samples, the rate that is wanted (0: none), and
    whether media are shared.
    """

    seconds: Floats
    shares: Ints
    read_at: Ints
    read: Ints
    back_at: Ints
    back: Ints
    maker: Ints
    nbytes: Floats
    reader_at: Ints
    reader: Ints
    pair_at: Ints
    pair_from: Ints
    pair_to: Ints
    pair_samples: Ints
    per_byte: Floats
    delay: Floats
    weights: Floats
    working: Floats
    media_seconds: Floats
    pair_seconds: Floats
    watts: Floats
    home: int
    batches: int
    samples: int
    rate: float
    contended: int


class Figures(NamedTuple):
    """By placement, as in `estimate.Estimate`."""

    latency: Floats
    period: Floats
    joules: Floats
    memory: Floats
    busy: Floats
    media: Floats


class Placed(NamedTuple):
    """
    What the first nodes take, by how many there are; `finish` by node (0: the source).

    `arrived` is room for the times at which a node's inputs are there.
    """

    free: Floats
    busy: Floats
    moved: Floats
    weights: Floats
    working: Floats
    back: Floats
    finish: Floats
    arrived: Floats


def estimate_rows(t: Tables, placements: Ints, s: Placed, found: Figures) -> None:
    """Write the figures of placements of the first nodes."""
    rows, nodes = placements.shape
    for row in range(rows):
        same = 0
        if row > 0:
            while same < nodes and placements[row, same] == placements[row - 1, same]:
                same += 1
        for number in range(same, nodes):
            _place(t, s, placements[row], number)
        _figures(t, s, placements[row], row, found)


def nothing_placed(t: Tables, nodes: int) -> Placed:
    """Return room for so many nodes, none of them placed yet; no kernel."""
    devices = t.shares.shape[1]
    finish = np.full((nodes + 1, devices), -np.inf)
    finish[0, t.home] = 0.0
    by_device = (nodes + 1, devices)
    return Placed(np.zeros(by_device), np.zeros(by_device),
                  np.zeros((nodes + 1, devices * devices)), np.zeros(by_device),
                  np.zeros(by_device), np.zeros(nodes + 1), finish, np.zeros(devices))


def _place(t: Tables, s: Placed, placement: Ints, number: int) -> None:
    group, devices = placement[number], t.shares.shape[1]
    after = number + 1
    for pair in range(devices * devices):
        s.moved[after, pair] = s.moved[number, pair]
    for d in range(devices):
        s.arrived[d] = s.free[number, d]
    for k in range(t.read_at[number], t.read_at[number + 1]):
        _arrive(t, s, placement, t.read[k], number, group)
    for d in range(devices):
        taken, share = t.seconds[number, group, d], t.shares[group, d]
        s.busy[after, d] = s.busy[number, d] + taken
        s.free[after, d] = s.free[number, d]
        s.finish[after, d] = -np.inf
        s.weights[after, d] = s.weights[number, d]
        if share > 0:
            s.free[after, d] = s.arrived[d] + taken
            s.finish[after, d] = s.free[after, d]
            s.weights[after, d] += t.weights[number]
        s.working[after, d] = max(s.working[number, d], t.working[number] * share)
    s.back[after] = s.back[number]
    for k in range(t.back_at[number], t.back_at[number + 1]):
        s.arrived[t.home] = -np.inf
        _arrive(t, s, placement, t.back[k], number, t.home)
        s.back[after] = max(s.back[after], s.arrived[t.home])


def _arrive(t: Tables, s: Placed, placement: Ints, flow: int, number: int, group: int) -> None:
    """Let a flow come to a group, and count the bytes that were not there already."""
    maker, devices = t.maker[flow], t.shares.shape[1]
    origin = t.home if maker < 0 else placement[maker]
    between = origin * len(t.shares) + group
    for k in range(t.pair_at[between], t.pair_at[between + 1]):
        a, b, samples = t.pair_from[k], t.pair_to[k], t.pair_samples[k]
        then = s.finish[maker + 1, a] + t.delay[a, b]  # infinite where nothing joins them
        if t.nbytes[flow] > 0:
            then += samples * t.nbytes[flow] * t.per_byte[a, b]
        s.arrived[b] = max(s.arrived[b], then)
        if a != b:
            fresh = samples - _known(t, placement, flow, number, group, origin, a, b)
            if fresh > 0:
                s.moved[number + 1, a * devices + b] += fresh * t.nbytes[flow]


def _known(t: Tables, placement: Ints, flow: int, number: int, group: int, origin: int, a: int,
           b: int) -> int:
    """Return how many samples earlier readers have brought from one device to another."""
    most = 0
    for k in range(t.reader_at[flow], t.reader_at[flow + 1]):
        reader = t.reader[k]
        if reader >= number or (reader < 0 and t.maker[flow] == number):
            break
        there = origin * len(t.shares) + (t.home if reader < 0 else placement[reader])
        for p in range(t.pair_at[there], t.pair_at[there + 1]):
            if t.pair_from[p] == a and t.pair_to[p] == b:
                most = max(most, t.pair_samples[p])
    return most


def _figures(t: Tables, s: Placed, placement: Ints, row: int, found: Figures) -> None:
    nodes, devices = len(placement), t.shares.shape[1]
    latency = s.back[nodes]
    busiest = 0.0
    for d in range(devices):
        latency = max(latency, s.free[nodes, d])
        busiest = max(busiest, s.busy[nodes, d])
    links = _links(t, s, nodes, row, found)
    if t.contended != 0:
        latency = max(latency, links)
    period = max(busiest, links)
    if t.rate > 0:
        waiting = t.samples / t.rate
    else:
        latency += (t.batches - 1) * period
        waiting = latency / t.batches
    found.latency[row] = latency
    found.period[row] = period / t.samples
    for d in range(devices):
        found.memory[row, d] = s.weights[nodes, d] + s.working[nodes, d]
        found.busy[row, d] = s.busy[nodes, d]
        found.joules[row, d] = _joules(t, s, nodes, d, waiting)


def _links(t: Tables, s: Placed, nodes: int, row: int, found: Figures) -> float:
    """Return the seconds of the busiest medium, or pair, for a micro-batch."""
    links = 0.0
    pairs = s.moved.shape[1]
    for m in range(t.media_seconds.shape[1]):
        taken = 0.0
        for pair in range(pairs):
            taken += s.moved[nodes, pair] * t.media_seconds[pair, m]
        found.media[row, m] = taken
        if t.contended != 0:
            links = max(links, taken)
    if t.contended == 0:
        for pair in range(pairs):
            links = max(links, s.moved[nodes, pair] * t.pair_seconds[pair])
    return links


def _joules(t: Tables, s: Placed, nodes: int, device: int, waiting: float) -> float:
    devices = t.shares.shape[1]
    sends, receives = 0.0, 0.0
    for other in range(devices):
        out, back = device * devices + other, other * devices + device
        sends += s.moved[nodes, out] * t.pair_seconds[out]
        receives += s.moved[nodes, back] * t.pair_seconds[back]
    joules = (t.watts[1, device] * s.busy[nodes, device] + t.watts[2, device] * sends
              + t.watts[3, device] * receives)
    if s.busy[nodes, device] > 0 or device == t.home:
        joules += t.watts[0, device] * waiting
    return joules / t.samples  # type: ignore[no-any-return]
