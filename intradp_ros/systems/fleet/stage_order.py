# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""An order of transfers for stages that somebody chose, as the planner finds one for its own."""
from __future__ import annotations

from dataclasses import replace

from intradp_ros.cluster.topology import Topology
from intradp_ros.planning.transfer_order import order_transfers
from intradp_ros.schedule.event_simulator import FAIR
from intradp_ros.schedule.stage_plan import StagePlan, Turn
from intradp_ros.schedule.stage_tasks import DeviceSeconds, stage_tasks
from intradp_ros.split.local_operator import SplitGraph


def with_order(split: SplitGraph, plan: StagePlan, seconds: DeviceSeconds, topology: Topology,
               frames: int = 8, interval: float = 0.0, inflight: int | None = None) -> StagePlan:
    """
    Return a plan with the best order that was found for frames that arrive every `interval` (s).

    It is None, so that transfers take turns, where no order beats that.

    Raises
    ------
    PlanError, ValueError
        As `stage_tasks` does.

    """
    tasks = stage_tasks(split, replace(plan, order=()), seconds, topology, frames, interval,
                        inflight)
    found = order_transfers(tasks, topology)
    if found.discipline == FAIR:
        return replace(plan, order=None)
    values = {value.name: value.id for value in split.graph.values}
    return replace(plan, order=tuple(Turn(values[name], source, target, lead)
                                     for (name, source, target), lead in found.leads.items()
                                     if lead))
