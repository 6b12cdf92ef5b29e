# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The figures of `planning/estimate.py` written another way: all placements at once, by numpy."""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, SOURCE

Numbers = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]


@dataclass
class _Partial:
    """
    Placements of the first nodes; the first axis of every array is the placement.

    `free` and `busy` are seconds by device, `finish` those of the nodes that
    are still read; `moved` has bytes between each two devices,
    `known` the samples that a flow has brought from where to where.
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


def _nothing_placed(costs: FleetCosts, count: int = 1) -> _Partial:
    """Return so many placements of no node."""
    devices = len(costs.topology.devices)
    by_device = (count, devices)
    ready = np.full(by_device, -np.inf)
    ready[:, costs.home] = 0.0
    return _Partial(np.zeros((count, 0), dtype=np.int64), np.zeros(by_device),
                    np.zeros(by_device), np.zeros((count, devices ** 2)), np.zeros(by_device),
                    np.zeros(by_device), np.zeros(count), {SOURCE: ready}, {})


def _place(costs: FleetCosts, partial: _Partial, groups: Indices) -> None:
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
    partial.weights = partial.weights + costs.weight_bytes[number] * member
    partial.working = np.maximum(partial.working, node.working_bytes * shares)
    partial.finish[number] = np.where(member, end, -np.inf)
    partial.placed = np.column_stack([partial.placed, groups])
    home = np.full(len(groups), costs.home)
    for flow_number, flow in costs.returned[number]:
        arrived = _arrivals(costs, partial, flow_number, flow, home)
        partial.back = np.maximum(partial.back, arrived[:, costs.home])
    for old in [k for k in partial.finish if k != SOURCE and _last_reader(costs, k) <= number]:
        del partial.finish[old]


def _last_reader(costs: FleetCosts, node: int) -> int:
    """Return the last node that reads what a node makes; itself if only the source does."""
    return max((node, *(reader for flow in costs.model.flows if flow.maker == node
                        for reader in flow.readers)))


def _arrivals(costs: FleetCosts, partial: _Partial, number: int, flow: Flow,
              groups: Indices) -> Numbers:
    """Return when a flow is on each device of the groups that read it; counts its bytes."""
    makers = (np.full(len(groups), costs.home) if flow.maker == SOURCE
              else partial.placed[:, flow.maker])
    taken = costs.travel(costs.flow_bytes[number])[makers, groups]
    finish = partial.finish[flow.maker]
    arrived: Numbers = finish[:, :1] + taken[:, 0]
    for device in range(1, finish.shape[1]):
        np.maximum(arrived, finish[:, device:device + 1] + taken[:, device], out=arrived)
    new = costs.crossing[makers, groups]
    if len(flow.readers) > 1:
        known = partial.known.get(number)
        partial.known[number] = new if known is None else np.maximum(known, new)
        new = new if known is None else partial.known[number] - known
    partial.moved = partial.moved + new * costs.flow_bytes[number]
    return arrived


def plain_figures(costs: FleetCosts, placed: Indices) -> tuple[Numbers, ...]:
    """Return latency, period, joules, memory, busy seconds and those of media."""
    partial = _nothing_placed(costs, len(placed))
    for node in range(placed.shape[1]):
        _place(costs, partial, placed[:, node])
    media = partial.moved @ costs.media_seconds
    latency = np.maximum(partial.back, partial.free.max(axis=1))
    links = (media if costs.contended else partial.moved * costs.pair_seconds).max(
        axis=1, initial=0.0)
    if costs.contended:
        latency = np.maximum(latency, links)
    period = np.maximum(partial.busy.max(axis=1), links)
    if costs.quality.rate:
        waiting = np.full(len(partial), costs.samples / costs.quality.rate)
    else:
        latency = latency + (costs.batches - 1) * period
        waiting = latency / costs.batches
    return (latency, period / costs.samples, _joules(costs, partial, waiting),
            partial.weights + partial.working, partial.busy, media)


def _joules(costs: FleetCosts, partial: _Partial, waiting: Numbers) -> Numbers:
    idle, compute, send, receive = costs.watts
    takes_part = partial.busy > 0
    takes_part[:, costs.home] = True
    joules: Numbers = (idle * takes_part * waiting[:, None] + compute * partial.busy
                       + send * (partial.moved @ costs.sending)
                       + receive * (partial.moved @ costs.receiving))
    return joules / costs.samples
