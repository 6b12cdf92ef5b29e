# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What tests of fleets have in common: a fleet of devices in this process."""
from __future__ import annotations

from collections.abc import Sequence
import math

import torch

from intradp_lab.fleet.local_fleet import LocalFleet, MakePlan
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.schedule.stage_cuts import parse_stages, plan_of_cuts, without

TIMEOUT = 60.0
DEVICES = ('a', 'b', 'c', 'd')
#: For tests of faults: short enough to see them, long enough for a busy machine.
QUICK = CoordinatorTimes(MemberTimes(0.1, 0.3, 0.6, 0.2), rest=0.2)
SHORT = FleetPatience(silence=0.4, late_slack=2.0)


def cell(mbit: float = math.inf, devices: Sequence[str] = DEVICES) -> Topology:
    """Return devices behind one access point, without a delay."""
    return behind_access_point([Device(name) for name in devices], mbit * 125e3)


def planner(model: SharedModel, stages: str, source: str = 'a') -> MakePlan:
    """Return what plans these stages for the devices that are there; none without the source."""
    costs = [1.0] * len(model.split.operators)

    def plan(alive: frozenset[str]):
        if source not in alive:
            return None
        cuts = without(parse_stages(stages), alive, source)
        return plan_of_cuts(model.digest, source, cuts, costs, dict.fromkeys(alive, 1.0))

    return plan


def fleet(model: SharedModel, stages: str, *, mbit: float = math.inf, source: str = 'a',
          **options: object) -> LocalFleet:
    """Return a fleet of four devices, in this process, that has agreed on a plan."""
    topology = cell(mbit)
    made = LocalFleet(topology, source, dict.fromkeys(topology.names, model),
                      planner(model, stages, source), patience=SHORT, times=QUICK,
                      gathering=5.0,
                      **options)
    assert made.wait_ready(TIMEOUT), made.client.unavailable_reason()
    return made


def images(count: int, shape: Sequence[int], dtype: torch.dtype = torch.float32,
           ) -> list[torch.Tensor]:
    """Return so many different inputs."""
    return [torch.randn(*shape, generator=torch.Generator().manual_seed(k)).to(dtype)
            for k in range(count)]
