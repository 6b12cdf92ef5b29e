# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node that keeps a fleet on a plan: who is there, and which stages run where."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray

from intradp_ros.dds.dds_peers import check_name, DdsPeers
from intradp_ros.msg import DeviceState, FleetState
from intradp_ros.nodes.device_node import DEVICES_TOPIC, FLEET
from intradp_ros.nodes.diagnostics import added, Diagnostics
from intradp_ros.nodes.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.nodes.receiving import Receiver
from intradp_ros.runtime.catalogue import ModelSpec
from intradp_ros.runtime.pipeline.coordinator import Coordinator, CoordinatorTimes
from intradp_ros.schedule.stage_cuts import (
    operator_weights,
    parse_stages,
    plan_of_cuts,
    plan_without,
    StageCut,
    without,
)
from intradp_ros.schedule.stage_plan import PlanError, StagePlan

#: Devices that are taken into the list of a fleet; more come only of strangers.
MAX_DEVICES = 64


class CoordinatorNode(ManagedNode):
    """
    Hears the devices of a fleet and gives them their stages of a model.

    Subscribes `<fleet>/devices`; publishes `<fleet>/state` (latched) and
    `diagnostics`.  Stages without a cut of their own are cut in proportion to
    the speed that the devices declare, by the operators' arithmetic.
    """

    PARAMETERS = (
        FLEET,
        Parameter('coordinator_name', 'coordinator', "This node's name in the fleet, unlike any "
                  'device.'),
        Parameter('model', 'intradp_ros.lab.zoo.mobilenet_v2:mobilenet_v2 1x3x224x224 uint8',
                  'The model that is run: as in the catalogue of the devices.'),
        Parameter('source', 'device', 'The device that asks for inferences.'),
        Parameter('stages', 'device', 'Stages in order: "a,b*2+c,d@30" are three, the second on '
                  'b and c (b takes two samples of three), the third up to operator 30.'),
        Parameter('plan', '', 'A file with a plan of stages (JSON), in place of `stages`.'),
        Parameter('devices', [''], 'Devices that the first plan waits for; others may join.'),
        Parameter('gone_ms', 1000.0, 'A device is left out when it was silent for so long.',
                  100.0, 60000.0),
        Parameter('probation_ms', 500.0, 'A device is taken in, or back, when it was heard for '
                  'so long.', 0.0, 60000.0),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('coordinator_node', **kwargs)
        self.coordinator: Coordinator | None = None
        self._receiver = Receiver(self)
        self._status = Diagnostics(self)
        self._speeds: dict[str, float] = {}

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load the model, for its operators, and read the stages."""
        self._settings = parameters
        self._cuts: tuple[StageCut, ...] = () if parameters['plan'] \
            else parse_stages(parameters['stages'])
        self._given = read_plan(parameters['plan']) if parameters['plan'] else None
        model = ModelSpec.parse(parameters['model']).load()
        self._digest = model.digest
        self._costs = operator_weights(model.split.graph)
        self._states = self.publish_on(
            FleetState, f'{parameters[FLEET.name]}/state', LATCHED)
        self._diagnostics = self.publish_on(DiagnosticArray, 'diagnostics', 10)
        self.call_every(1.0, self._diagnose, self.until_cleanup)

    def start(self) -> None:
        """Begin to hear devices."""
        given = self._settings
        channel = DdsPeers(self.context, given[FLEET.name], given['coordinator_name'],
                           namespace=self.get_namespace())
        self.until_deactivated.callback(channel.close)
        self.coordinator = Coordinator(
            channel, self._plan, self.info, changed=self._tell_state,
            times=CoordinatorTimes(gone=given['gone_ms'] / 1e3,
                                   probation=given['probation_ms'] / 1e3))
        self.until_deactivated.callback(self._stop, self.coordinator)
        self.coordinator.expect(check_name(name) for name in given['devices'] if name)
        devices = self._receiver.subscribe(
            DeviceState, f'{given[FLEET.name]}/{DEVICES_TOPIC}', self._take_device, LATCHED,
            'device')
        self.until_deactivated.callback(self.destroy_subscription, devices)

    def _stop(self, coordinator: Coordinator) -> None:
        self.coordinator = None
        coordinator.close()

    def _take_device(self, message: DeviceState) -> None:
        """Hear of a device."""
        name, coordinator = check_name(message.name), self.coordinator
        if not 0 < message.speed < 1e6:
            raise ValueError(f'device {name} says that its speed is {message.speed}')
        if name not in self._speeds and len(self._speeds) >= MAX_DEVICES:
            raise ValueError(f'device {name} is one too many, {MAX_DEVICES} are known')
        self._speeds[name] = message.speed
        if coordinator:
            coordinator.expect((name,))

    def _plan(self, alive: frozenset[str]) -> StagePlan | None:
        source = self._given.source if self._given else self._settings['source']
        if source not in alive:
            return None
        if self._given:
            return plan_without(self._given, alive)
        speeds = {name: self._speeds.get(name, 1.0) for name in alive}
        return plan_of_cuts(self._digest, source, without(self._cuts, alive, source), self._costs,
                            speeds)

    def _tell_state(self) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            return
        plan = coordinator.plan
        message = FleetState(
            term=coordinator.id.term, epoch=coordinator.id.epoch, alive=sorted(coordinator.alive),
            expected=list(coordinator.expected),
            plan=json.dumps(plan.to_json()) if plan else '')
        message.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(message)

    def _diagnose(self) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            self._diagnostics.publish(self._status.status('inactive', {}, {}))
            return
        missing = sorted(set(coordinator.expected) - coordinator.alive)
        self._diagnostics.publish(self._status.status(
            'a plan is in use' if coordinator.plan else 'no plan', {
                'plan': f'{coordinator.id.term:#x}.{coordinator.id.epoch}',
                'alive': ' '.join(sorted(coordinator.alive)), 'missing': ' '.join(missing)},
            added(coordinator.rejections.by_cause(), self._receiver.rejections.by_cause(),
                  *coordinator.channel.rejected().values()),
            well=bool(coordinator.plan) and not missing))


def read_plan(path: str) -> StagePlan:
    """Read a plan from a file; PlanError if it is none."""
    try:
        return StagePlan.from_json(json.loads(Path(path).read_text()))
    except json.JSONDecodeError as error:
        raise PlanError(f'{path} is no JSON: {error}') from error


def main(args: list[str] | None = None) -> None:
    """Run the coordinator node."""
    run_node(CoordinatorNode, args)


if __name__ == '__main__':
    main()
