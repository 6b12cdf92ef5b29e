# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet to show: a network on a video, four devices behind one access point, and a target.

Devices are emulated: their operators take this machine's seconds in
proportion, so that the robot takes `ROBOT_SECONDS` for the whole network on
any machine.  Memory, power and speeds are declared.
"""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch

from intradp_lab.fleet.stage_order import seconds_by_speed
from intradp_lab.zoo.video import frames
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.planning.captured_model import captured_model, whole_seconds
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import coarsen, MOST_NODES, SMALL
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.placement_tasks import placement_tasks
from intradp_ros.planning.quality import Quality
from intradp_ros.planning.transfer_order import fair_sharing
from intradp_ros.power.power_states import PowerStates
from intradp_ros.profiling.profile import (
    Profile,
)
from intradp_ros.runtime.models.model import SharedModel

#: Height and width of the frames.
SIZE = 128
SOURCE, AIR = 'robot', 'air'
ROBOT_SECONDS = 0.4
#: Seconds from a frame to its result, and frames of the camera per second.
TARGET = Quality(latency=0.5, rate=8.0)
#: Plans are made for a target that is harder by this, as real machines are never on time.
LATENCY_MARGIN, RATE_MARGIN = 0.8, 1.1

DEVICES = (
    Device(SOURCE, 2e9, 1.0, power=PowerStates(13.35, 4.25, 4.04, 'declared')),
    Device('robot2', 2e9, 1.0, power=PowerStates(13.35, 4.25, 4.04, 'declared')),
    Device('laptop', 8e9, 2.0, power=PowerStates(25.0, 9.0, 6.0, 'declared')),
    Device('box', 4e9, 3.0, power=PowerStates(60.0, 20.0, 18.0, 'declared')))
WIRED = ('box',)


@dataclass(frozen=True)
class FleetScene:
    """A model, the profile of a device of speed 1, and the fleet that computes it."""

    model: SharedModel
    profile: Profile
    topology: Topology

    @cached_property
    def seconds(self) -> Mapping[str, Sequence[float]]:
        """Seconds of each operator by device."""
        return seconds_by_speed(self.model.split, self.profile, self.topology)

    @cached_property
    def costs(self) -> FleetCosts:
        """What plans are made for: the target with its margins."""
        nodes = coarsen(in_chain_order(captured_model(self.model.split, self.profile)), SMALL,
                        MOST_NODES)
        wanted = Quality(LATENCY_MARGIN * TARGET.latency, RATE_MARGIN * TARGET.rate)
        return FleetCosts(nodes, self.topology, SOURCE, wanted)

    def bound(self, placement: Sequence[int]) -> float:
        """Return seconds that a frame takes at least where it is alone (s)."""
        alone = replace(self.costs, quality=Quality())
        return fair_sharing(placement_tasks(alone, placement, 1, 0.0), self.topology).bound

    def with_air(self, share: float) -> FleetScene:
        """Return the same with a part of the air, as another one takes the rest."""
        media = tuple(replace(m, bytes_per_second=share * m.bytes_per_second)
                      if m.name == AIR else m for m in self.topology.media)
        return replace(self, topology=Topology(self.topology.devices, media,
                                               self.topology.paths))


def fleet_scene(model: SharedModel, profile: Profile, mbit: float) -> FleetScene:
    """Return the fleet of a model that was profiled here, with `mbit` Mbit/s of air."""
    whole = sum(whole_seconds(model.split, profile))
    robot = replace(profile, scale=profile.scale * ROBOT_SECONDS / whole)
    return FleetScene(model, robot, behind_access_point(DEVICES, mbit * 125e3, wired=WIRED))


def video_inputs(count: int, size: int = SIZE) -> list[tuple[torch.Tensor, ...]]:
    """
    Return frames of the video as inputs, uint8 ``1x3xHxW``.

    :raises MissingWheelError: if the wheel with the video is not installed.
    """
    return [(torch.from_numpy(picture).permute(2, 0, 1)[None].contiguous(),)
            for picture in frames(count, (size, size))]
