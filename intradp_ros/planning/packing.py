# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Placements for fleets with little memory: one device after another is filled."""
from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.shares import largest_remainder

Placement = npt.NDArray[np.int64]

_HALVINGS = 12


def packings(costs: FleetCosts) -> list[Placement]:
    """
    Return placements that fill devices in several orders, and equal splits, each once.

    Of every order devices are filled to the brim, evenly (all to the same
    share of their memory, the least that suffices), and half way between.
    """
    devices = len(costs.topology.devices)
    equal = np.repeat(np.arange(devices), largest_remainder([1.0] * devices,
                                                            len(costs.model.nodes)))
    found = {tuple(equal.tolist()): equal.astype(np.int64)}
    for order in _orders(costs):
        for placement in _filled_orders(costs, order):
            found[tuple(placement.tolist())] = placement
    return list(found.values())


def _orders(costs: FleetCosts) -> list[tuple[int, ...]]:
    """Return orders of the devices: of the file, by memory, by speed, the source first."""
    devices = range(len(costs.topology.devices))
    seconds = costs.seconds[:, devices, devices].sum(axis=0)
    by_speed = sorted(devices, key=lambda d: seconds[d])
    orders = (devices, sorted(devices, key=lambda d: -costs.memory_limits[d]), by_speed,
              [costs.home, *(d for d in by_speed if d != costs.home)])
    return list(dict.fromkeys(map(tuple, orders)))


def _filled_orders(costs: FleetCosts, order: Sequence[int]) -> Iterator[Placement]:
    brim = filled(costs, order, 1.0)
    if brim is None:
        return
    yield brim
    low, high = 0.0, 1.0
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (low, middle) if filled(costs, order, middle) is not None else (middle, high)
    for share in (high, (1 + high) / 2):
        if (placement := filled(costs, order, share)) is not None:
            yield placement


def filled(costs: FleetCosts, order: Sequence[int], share: float) -> Placement | None:
    """
    Return devices filled in an order, each to a share of its memory; None if it is not enough.

    A device holds the weights of its nodes and what the largest of them works with.
    """
    limits = share * costs.memory_limits
    placement, place, held, works = [], 0, 0.0, 0.0
    for node, own in zip(costs.model.nodes, costs.weight_bytes.tolist()):
        working = costs.samples * node.working_bytes
        while held + own + max(works, working) > limits[order[place]]:
            place, held, works = place + 1, 0.0, 0.0
            if place == len(order):
                return None
        held, works = held + own, max(works, working)
        placement.append(order[place])
    return np.array(placement, dtype=np.int64)
