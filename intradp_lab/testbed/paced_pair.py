# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A network on emulated devices whose speeds are given: profiles, their book, and both sides.

Nothing in it depends on how fast the machine is that emulates.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from intradp_lab.emulation.emulated_device import DeviceClock, emulated
from intradp_lab.testbed.operator_costs import profile_from_costs, shipped_costs
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import book_from_profiles, PlanRequest
from intradp_ros.systems.sharing.judge.judge import Judge
from intradp_ros.systems.sharing.partition.partition import Partition

#: A network of which shares of both devices matter, in the size of a small camera.
HED = 'intradp_lab.zoo.hed:hed 1x3x144x336 uint8'


@dataclass(frozen=True)
class PacedPair:
    """
    A network that takes so many seconds on a robot, and so many on a server.

    Its operators take parts of them as those of the recorded devices do.
    """

    model: str = HED
    robot: float = 1.0
    server: float = 0.25

    @cached_property
    def shared(self) -> SharedModel:
        """The network, captured and split."""
        return ModelSpec.parse(self.model).load()

    @cached_property
    def profiles(self) -> Mapping[str, Profile]:
        """Profiles of both devices: what moves bytes takes nothing from their operators."""
        return {side: replace(profile_from_costs(
            self.shared.split, self.shared.digest, side, shipped_costs()['robot'],
            {ROBOT: self.robot, SERVER: self.server}[side]), cores=0) for side in SIDES}

    @cached_property
    def cost(self) -> CostModel:
        """What operators take on both devices."""
        return CostModel.from_profiles(self.shared.split, self.profiles)

    def book(self, low: float, high: float, points: int, *, delay: float = 0.0,
             workers: int = 2) -> ScheduleBook:
        """Return a book for rates between two (Mbit/s), from disk if it was made before."""
        return ScheduleBook.from_json(book_from_profiles(PlanRequest(
            graph_to_json(self.shared.split.captured), self.profiles[ROBOT].to_json(),
            self.profiles[SERVER].to_json(), low, high, points, delay=delay), workers=workers))

    def device(self, side: str, clock: DeviceClock | None = None) -> SharedModel:
        """Return the network on a device of its own, or on the one that has this clock."""
        return emulated(self.shared, self.cost.seconds[side], clock or DeviceClock())

    def simulated(self, partition: Partition, mbps: float, *, delay: float = 0.0,
                  server: float = 1.0) -> float:
        """Return the seconds of a schedule if the server takes `server` times as long."""
        return Judge(self.cost.scaled({SERVER: server}),
                     LinkModel.symmetric(mbps, delay))(partition).latency
