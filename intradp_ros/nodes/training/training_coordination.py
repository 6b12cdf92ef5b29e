# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Training in a coordinator node: goals, and sessions of the devices that train for them."""
from __future__ import annotations

from collections.abc import Mapping
from functools import partial
import time
from typing import Any

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, Topology
from intradp_ros.nodes.common.key_parameter import KEY_FILE, open_key
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.fleet.fleet_parameters import read_topology
from intradp_ros.nodes.training.training_goals import TrainingGoals
from intradp_ros.nodes.training.training_parameters import TASKS, TRAINING_ADDRESS
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.systems.training.layers.checkpoint import Checkpoint
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.training_plan import Planner
from intradp_ros.systems.training.run.site_address import site_address
from intradp_ros.systems.training.service.live_planner import TrainingPlanner
from intradp_ros.systems.training.service.session_fleet import SessionFleet
from intradp_ros.systems.training.service.training_job import Fleet, FleetMaker, JobOptions

#: Bytes a second of the network that joins devices of which no file says more.
_RATE = 12.5e6
#: Seconds that a goal waits for the first device.
_PATIENCE = 10.0
#: Seconds within which devices say what they hold.
_GREETING = 3.0


class TrainingCoordination(TrainingPlanner):
    """
    Serves `~/train`, `~/pause` and `~/control_training` of the coordinator node, for its fleet.

    Devices are those of `fleet_file`; without one those that are there when a goal begins, and
    those that the parameter `devices` names.

    :raises ValueError: if there are no tasks, the address is none, or torch cannot talk to other
        processes.
    """

    def __init__(self, node: ManagedNode, given: Mapping[str, Any]) -> None:
        prepare_process(1)
        self._node = node
        self._given_address = given[TRAINING_ADDRESS.name]
        self._key = open_key(given[KEY_FILE.name], lambda text: None)  # the node has warned
        try:
            site_address(self._given_address)
        except ValueError as error:
            raise ValueError(f'parameter {TRAINING_ADDRESS.name}: {error}') from error
        self._expected = [name for name in given['devices'] if name]
        self._topology = read_topology(given['fleet_file']) if given['fleet_file'] else None
        self._coordinator: FleetCoordinator | None = None
        self._goals = TrainingGoals(node, self, given[TASKS.name], given['folder'],
                                    given['save_every'], given['timeout_s'], given['images'],
                                    key=self._key)
        if self._topology is not None:
            self._goals.check_images(self._topology)
        super().__init__(self._goals.take_over)

    def start(self, coordinator: FleetCoordinator) -> None:
        """Take goals, for the devices of a coordinator."""
        self._coordinator = coordinator
        self._goals.start()
        self._node.info(f'trains {", ".join(self._goals.tasks)} on the devices of the fleet; '
                        f'checkpoints in {self._goals.folder}')

    def status(self) -> Mapping[str, Any]:
        """Return what is trained, for diagnostics."""
        message, values, _ = self._goals.status()
        fleet, coordinator = self.fleet, self._coordinator
        others = sorted(coordinator.alive - fleet.names) if fleet and coordinator else []
        return {'training': message, **values, **({
            'not_counted_on': ', '.join(others)} if others else {})}

    # What goals are trained on (`Ground` in training_goals.py).

    def check(self) -> None:
        """Let a goal begin where this node coordinates; ValueError says that another does."""
        if self._coordinator is None or not self._coordinator.leads:
            holder = self._coordinator.holder if self._coordinator else ''
            raise ValueError(f'{holder or "another node"} coordinates this fleet: send the goal '
                             'to that one')

    def topology(self) -> Topology:
        """Return the devices that there are, and those that are expected."""
        if self._topology is not None:
            return self._topology
        assert self._coordinator is not None
        end = time.monotonic() + _PATIENCE
        while not (names := {*self._expected, *self._coordinator.alive}) and \
                time.monotonic() < end:
            time.sleep(0.1)
        if not names:
            raise ValueError('no device is there: start device nodes with the role "training" in '
                             'this fleet')
        devices = [Device(name, speed=self.speeds.get(name) or 1.0) for name in sorted(names)]
        return behind_access_point(devices, _RATE) if len(devices) > 1 else \
            Topology(tuple(devices), (), {})

    def held(self, task: str) -> tuple[int, bool] | None:
        """Return the training of a task that devices hold, of a coordinator that was lost."""
        coordinator = self._coordinator
        assert coordinator is not None
        names = {*self._expected, *(self._topology.names if self._topology else ())}
        end = time.monotonic() + _GREETING
        while True:
            alive = coordinator.alive
            if found := self.holds(alive, task):
                return found[1], found[0]
            if alive and alive >= names or time.monotonic() > end:
                return None
            time.sleep(0.1)

    def maker(self, number: int) -> FleetMaker:
        """Return what makes the sessions of a training."""
        return partial(self._made, number)

    def ended(self, number: int) -> None:
        """Let go of the devices: there is nothing to train, but for another coordinator."""
        self.fleet = None
        if self._coordinator and self._coordinator.leads:
            self.ended_trainings.add(number)

    def _made(self, number: int, prepared: Prepared, planner: Planner, options: JobOptions,
              progress: Any, base: Checkpoint | None) -> Fleet:
        coordinator = self._coordinator
        assert coordinator is not None
        self.fleet = SessionFleet(
            prepared, planner, options, progress, base, coordinator=coordinator,
            change=self._change, rejected=self._reject, log=self._node.warn,
            address=site_address(self._given_address), training=number,
            key=self._key)
        return self.fleet

    def _change(self) -> None:
        """Have the fleet change to the session as it is now."""
        coordinator = self._coordinator
        if coordinator and (found := self.plan(coordinator.alive, time.monotonic())):
            coordinator.propose(found.plan)

    def _reject(self, cause: str, text: str) -> None:
        coordinator = self._coordinator
        if coordinator and coordinator.rejections.count(cause, time.monotonic()):
            self._node.warn(f'rejected ({cause}): {text}')


