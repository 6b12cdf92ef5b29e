# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The baseline that divides a model as phase 1 does, as if no transfers shared a medium."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intradp_ros.planning.baselines import Placement, quick_baselines
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.systems.fleet.partitioner import NothingFits, partition


def contention_free(costs: FleetCosts, kept: int) -> Placement | None:
    """Return what phase 1 alone chooses, every pair of devices at its peak rate."""
    try:
        best: Placement = partition(replace(costs, contended=False), kept).placements[0]
    except NothingFits:
        return None
    return best


def baselines(costs: FleetCosts, kept: int) -> Mapping[str, Placement | None]:
    """Return the placement of each other planner, None where it finds none that fits."""
    return {**quick_baselines(costs), **slow_baselines(costs, kept)}


def slow_baselines(costs: FleetCosts, kept: int) -> Mapping[str, Placement | None]:
    """Return the placement of who takes as long as phase 1."""
    return {'contention-free': contention_free(costs, kept)}
