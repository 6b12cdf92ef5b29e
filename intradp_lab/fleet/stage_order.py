# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans that somebody chose: what they take by devices' speeds, and an order of transfers."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from intradp_ros.cluster.topology import Topology
from intradp_ros.planning.transfer_order import order_transfers
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.transport.memory_network import CHUNK_BYTES
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.event_simulator import Chunks, Discipline, FAIR
from intradp_ros.schedule.stage_plan import StagePlan, Turn
from intradp_ros.schedule.stage_tasks import DeviceSeconds, stage_tasks, whole_seconds
from intradp_ros.split.local_operator import SplitGraph


def with_order(split: SplitGraph, plan: StagePlan, seconds: DeviceSeconds, topology: Topology,
               frames: int = 8, interval: float = 0.0) -> StagePlan:
    """
    Return a plan with the best order that was found for frames that arrive every `interval` (s).

    It is None, so that transfers take turns, where no order beats that.

    :raises PlanError, ValueError: as `stage_tasks` does.
    """
    tasks = stage_tasks(split, replace(plan, order=()), seconds, topology, frames, interval)
    found = order_transfers(tasks, topology)
    if found.discipline == FAIR:
        return replace(plan, order=None)
    values = {value.name: value.id for value in split.graph.values}
    return replace(plan, order=tuple(Turn(values[name], source, target, lead)
                                     for (name, source, target), lead in found.leads.items()
                                     if lead))


def seconds_by_speed(split: SplitGraph, profile: Profile, topology: Topology,
                     own: Mapping[str, Profile] | None = None) -> dict[str, tuple[float, ...]]:
    """
    Return the seconds of each operator whole on each device.

    A device in `own` has its own profile; the others take the seconds of
    `profile` by their speed.

    :raises ValueError: if a profile was measured on another graph.
    """
    profiles = {d.name: (own or {}).get(d.name, profile) for d in topology.devices}
    speeds = {d.name: 1.0 if d.name in (own or {}) else d.speed for d in topology.devices}
    seconds = whole_seconds(CostModel.from_profiles(split, profiles))
    return {name: tuple(s / speeds[name] for s in found) for name, found in seconds.items()}


def discipline_of(plan: StagePlan) -> Discipline:
    """Return how media serve the transfers of a plan: in its order, or all at once."""
    return FAIR if plan.order is None else Chunks(CHUNK_BYTES)
