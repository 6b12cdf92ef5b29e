# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A fleet in one process: its devices on threads, its network in memory."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
import math
import queue
import time
from types import TracebackType

import torch

from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.plan_id import NO_PLAN
from intradp_ros.cluster.topology import Topology
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.member.planner import PlannerOf
from intradp_ros.runtime.member.role import Host
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.runtime.pipeline.fleet_patience import FleetPatience
from intradp_ros.runtime.pipeline.fleet_result import FleetResult
from intradp_ros.runtime.pipeline.stage_role import StageRole
from intradp_ros.runtime.pipeline.stage_worker import Log
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.runtime.weights.exchange import WeightPolicy
from intradp_ros.schedule.stage_plan import FORMAT, StagePlan

MakePlan = Callable[[frozenset[str]], StagePlan | None]
COORDINATOR = 'coordinator'
_POLL = 0.005
#: Refusals in a row after which a first plan is not waited for any more.
_REFUSED = 3


class LocalFleet:
    """
    Devices of a topology, with the role of stages, a coordinator, and the asker's client.

    :param topology, source: the network in memory; the device that has inputs and takes results.
    :param models: each device's own copy of the model; a device without one fetches it, if it may.
    :param make_plan: the plan for the devices that are there.
    :param inflight, waiting, patience, times, gathering, log: as for `PipelineClient` and
        `FleetCoordinator`.
    :param weights: what devices may fetch and hand out; nothing where nothing is said.
    :param standby: further candidates, which coordinate where the first one is gone.
    """

    def __init__(self, topology: Topology, source: str, models: Mapping[str, SharedModel],
                 make_plan: MakePlan, *, inflight: int = 0, waiting: int = 64,
                 patience: FleetPatience = FleetPatience(),
                 times: CoordinatorTimes = CoordinatorTimes(), gathering: float = 3.0,
                 weights: Mapping[str, WeightPolicy] | None = None, standby: int = 0,
                 log: Log = lambda text: None) -> None:
        self._topology, self.network = topology, MemoryNetwork(topology)
        self._models, self._log, self._times = models, log, times
        self._weights = weights or {}
        self._answers: queue.SimpleQueue[FleetResult] = queue.SimpleQueue()
        self._candidates = {COORDINATOR: 1, **{f'{COORDINATOR}{k}': 0
                                               for k in range(1, standby + 1)}}
        channels = [self.network.join(name) for name in self._candidates]
        self.coordinator, *self.standby = (FleetCoordinator(
            channel, PlannerOf(FORMAT, make_plan), log, times=times, gathering=gathering,
            candidates={n: p for n, p in self._candidates.items() if n != channel.name},
            priority=self._candidates[channel.name]) for channel in channels)
        self.stages: dict[str, StageRole] = {}
        self.devices = {name: self._device(name) for name in topology.names}
        self.client = self.stages[source].ask(
            models[source], self._answers.put, inflight=inflight, waiting=waiting,
            patience=patience)
        for coordinator in (self.coordinator, *self.standby):
            coordinator.expect(topology.names)

    def _device(self, name: str) -> FleetMember:
        models = {model.digest: model for model in (self._models.get(name),) if model}

        def stages(host: Host) -> StageRole:
            memory = self._topology.device(name).memory_bytes
            made = self.stages[name] = StageRole(
                host, models, memory=0 if math.isinf(memory) else int(memory))
            return made

        return FleetMember(self.network.channel(name), (stages,), self._log, models=models,
                           coordinators=self._candidates, heartbeat=self._times.members.heartbeat,
                           weights=self._weights.get(name, WeightPolicy()))

    def __enter__(self) -> LocalFleet:
        """Use as a context that closes all."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Close all."""
        for coordinator in (self.coordinator, *self.standby):
            coordinator.close()
        for device in self.devices.values():
            device.close()
        self.network.close()

    def wait_ready(self, timeout: float = 30.0) -> bool:
        """
        Wait until the asker has a plan and hears its devices; return whether it does.

        Where a device refuses the first plan again and again it does not wait any longer.
        """
        end = time.monotonic() + timeout
        while self.client.plan == NO_PLAN or self.client.unavailable_reason():
            refused = self.client.plan == NO_PLAN and self.coordinator.refused >= _REFUSED
            if refused or time.monotonic() > end:
                return False
            time.sleep(_POLL)
        return True

    def answers(self, count: int, timeout: float = math.inf) -> list[FleetResult]:
        """
        Return the next answers, in the order of asking.

        :raises queue.Empty: if one does not come within `timeout` (s).
        """
        limit = None if math.isinf(timeout) else timeout
        return [self._answers.get(timeout=limit) for _ in range(count)]

    def wait_for_room(self) -> None:
        """Wait until no request waits."""
        while self.client.counts()['waiting']:
            time.sleep(_POLL / 5)

    def run(self, frames: Sequence[Sequence[torch.Tensor]]) -> list[FleetResult]:
        """Ask for an inference of each frame as soon as there is room; return the answers."""
        for frame in frames:
            self.wait_for_room()
            self.client.ask(frame)
        return self.answers(len(frames))

    def kill(self, name: str) -> None:
        """Let a device vanish with all that it holds."""
        self.network.cut(name)
        self.devices[name].close()

    def revive(self, name: str) -> None:
        """Start a device that was killed anew; it holds nothing."""
        self.devices[name] = self._device(name)
        self.network.restore(name)
