# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a placement takes of each device's memory while all its frames are in flight."""
from __future__ import annotations

from collections.abc import Sequence
import math

from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.placement_tasks import held_tasks
from intradp_ros.schedule.event_simulator import simulate


def frames_in_flight(placement: Sequence[int]) -> int:
    """Return how many frames a pipeline takes at a time unless told: two a stage and one more."""
    return 2 * (1 + sum(a != b for a, b in zip(placement, placement[1:]))) + 1


def held_memory(costs: FleetCosts, placement: Sequence[int]) -> dict[str, float]:
    """
    Return the most bytes that each device holds, by the event simulator; without training.

    All frames that a pipeline takes at a time are asked for at once.  A device holds its
    weights, what a node works with, and of every frame each value that it was sent until its
    last reader has run, and each that others read until it was sent.
    """
    batches = math.ceil(frames_in_flight(placement) / costs.samples)
    tasks = held_tasks(costs, placement, batches)
    return dict(simulate(tasks.graph, costs.topology).peak_memory)
