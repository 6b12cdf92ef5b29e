# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Latency, period, joules and memory of many placements at once, without a simulation.

A placement names a group (`FleetCosts.groups`) for every node.  Nodes are
placed one after another, so that a partitioner can go on from what is placed
so far.  The latency is the longest way through computing and moving, devices
doing one thing at a time, and at least the time that any medium needs for
its bytes: media have no queue here, so that no plan is judged slower than it
can be run.
"""
from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np
import numpy.typing as npt

from intradp_ros.systems.fleet.fleet_costs import FleetCosts
from intradp_ros.systems.fleet.planning_model import Flow, SOURCE

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Estimate:
    """
    Figures of placements.

    `latency` is that of a round (of one micro-batch, where a rate is wanted),
    `period` the seconds from inference to inference if they follow each other
    without end, shape (placements,); `joules` of an inference, `memory`, and
    `busy` seconds for a micro-batch have shape (placements, devices), `media`
    the seconds of each medium.
    """

    latency: Numbers
    period: Numbers
    joules: Numbers
    memory: Numbers
    busy: Numbers
    media: Numbers

    def __getitem__(self, chosen: npt.NDArray[np.intp]) -> Estimate:
        return Estimate(*(getattr(self, item.name)[chosen] for item in fields(self)))


@dataclass
class Partial:
    """
    Placements of the first nodes; the first axis of every array is the placement.

    `free` and `busy` are seconds by device, `finish` those of the nodes that
    are still read; `moved` has bytes between each two devices, `known` the
    samples that a flow has brought from where to where.
    """

    placed: Indices
    free: Numbers
    busy: Numbers
    moved: Numbers
    weights: Numbers
    working: Numbers
    back: Numbers
    finish: dict[int, Numbers]
    known: dict[int, Numbers]

    def __len__(self) -> int:
        return len(self.placed)

    def take(self, rows: npt.NDArray[np.intp]) -> Partial:
        """Return some of the placements, in the order asked for, maybe several times."""
        return Partial(self.placed[rows], self.free[rows], self.busy[rows], self.moved[rows],
                       self.weights[rows], self.working[rows], self.back[rows],
                       {k: array[rows] for k, array in self.finish.items()},
                       {k: array[rows] for k, array in self.known.items()})


def nothing_placed(costs: FleetCosts, count: int = 1) -> Partial:
    """Return so many placements of no node."""
    devices = len(costs.topology.devices)
    by_device = (count, devices)
    ready = np.full(by_device, -np.inf)
    ready[:, costs.home] = 0.0
    return Partial(np.zeros((count, 0), dtype=np.int64), np.zeros(by_device), np.zeros(by_device),
                   np.zeros((count, devices ** 2)), np.zeros(by_device), np.zeros(by_device),
                   np.zeros(count), {SOURCE: ready}, {})


def place(costs: FleetCosts, partial: Partial, groups: Indices) -> None:
    """Place the next node of every placement on a group, in place."""
    number = partial.placed.shape[1]
    node = costs.model.nodes[number]
    shares = costs.groups[groups]
    member = shares > 0
    begin = partial.free
    for flow_number, flow in costs.read[number]:
        begin = np.maximum(begin, _arrivals(costs, partial, flow_number, flow, groups))
    taken = costs.seconds[number][groups]
    end = begin + taken
    partial.free = np.where(member, end, partial.free)
    partial.busy = partial.busy + taken
    partial.weights = partial.weights + node.weight_bytes * member
    partial.working = np.maximum(partial.working, node.working_bytes * shares)
    partial.finish[number] = np.where(member, end, -np.inf)
    partial.placed = np.column_stack([partial.placed, groups])
    home = np.full(len(groups), costs.home)
    for flow_number, flow in costs.returned[number]:
        arrived = _arrivals(costs, partial, flow_number, flow, home)
        partial.back = np.maximum(partial.back, arrived[:, costs.home])
    for old in [k for k in partial.finish if k != SOURCE and costs.last_reader[k] <= number]:
        del partial.finish[old]


def _arrivals(costs: FleetCosts, partial: Partial, number: int, flow: Flow,
              groups: Indices) -> Numbers:
    """Return when a flow is on each device of the groups that read it; counts its bytes."""
    makers = (np.full(len(groups), costs.home) if flow.maker == SOURCE
              else partial.placed[:, flow.maker])
    taken = costs.travel(flow.nbytes)[makers, groups]
    finish = partial.finish[flow.maker]
    arrived: Numbers = finish[:, :1] + taken[:, 0]
    for device in range(1, finish.shape[1]):
        np.maximum(arrived, finish[:, device:device + 1] + taken[:, device], out=arrived)
    new = costs.crossing[makers, groups]
    if len(flow.readers) > 1:
        known = partial.known.get(number)
        partial.known[number] = new if known is None else np.maximum(known, new)
        new = new if known is None else partial.known[number] - known
    partial.moved = partial.moved + new * flow.nbytes
    return arrived


def figures(costs: FleetCosts, partial: Partial) -> Estimate:
    """Return the figures of what is placed so far."""
    media = partial.moved @ costs.media_seconds
    latency = np.maximum(partial.back, partial.free.max(axis=1))
    if costs.contended:
        links = media.max(axis=1, initial=0.0)
        latency = np.maximum(latency, links)
    else:
        links = (partial.moved * costs.pair_seconds).max(axis=1)
    rate = costs.quality.rate
    period = np.maximum(partial.busy.max(axis=1), links)
    if rate:
        waiting = np.full(len(partial), costs.samples / rate)
    else:
        latency = latency + (costs.batches - 1) * period
        waiting = latency / costs.batches
    idle, compute, send, receive = costs.watts
    takes_part = partial.busy > 0
    takes_part[:, costs.home] = True
    joules = (idle * takes_part * waiting[:, None] + compute * partial.busy
              + send * (partial.moved @ costs.sending)
              + receive * (partial.moved @ costs.receiving)) / costs.samples
    return Estimate(latency, period / costs.samples, joules, partial.weights + partial.working,
                    partial.busy, media)


def estimate(costs: FleetCosts, placements: npt.ArrayLike) -> Estimate:
    """Return the figures of whole placements, shape (placements, nodes)."""
    placed = np.asarray(placements, dtype=np.int64)
    partial = nothing_placed(costs, len(placed))
    for node in range(len(costs.model.nodes)):
        place(costs, partial, placed[:, node])
    return figures(costs, partial)


def excess(costs: FleetCosts, found: Estimate) -> Numbers:
    """Return by how much placements are over the limits of memory and energy, 0 within them."""
    over = (np.maximum(0.0, found.memory / costs.memory_limits - 1)
            + np.maximum(0.0, found.joules / costs.energy_limits - 1))
    total: Numbers = over.sum(axis=1) + np.where(np.isfinite(found.latency), 0.0, 1e6)
    return total
