# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node that keeps a fleet on a plan: who is there, and which stages run where."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
import math
from pathlib import Path
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray

from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.fleet_file import Fleet, read_fleet
from intradp_ros.cluster.fleet_messages import Heartbeat
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.dds.dds_peers import check_name, DdsPeers
from intradp_ros.msg import DeviceState, FleetQoe, FleetState
from intradp_ros.nodes.device_node import DEVICES_TOPIC, FLEET
from intradp_ros.nodes.diagnostics import added, Diagnostics
from intradp_ros.nodes.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.lifecycle import LATCHED, ManagedNode, RELIABLE, run_node
from intradp_ros.nodes.parameters import Parameter
from intradp_ros.nodes.receiving import Receiver
from intradp_ros.planning.captured_model import captured_model
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.quality import parse_quality
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.catalogue import ModelSpec
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.model import SharedModel
from intradp_ros.runtime.worker_thread import Worker
from intradp_ros.schedule.stage_cuts import (
    operator_weights,
    parse_stages,
    plan_of_cuts,
    plan_without,
    StageCut,
    without,
)
from intradp_ros.schedule.stage_plan import PlanError, StagePlan
from intradp_ros.srv import PlanModel
from intradp_ros.systems.fleet.live_planner import LivePlanner
from intradp_ros.wire.quoting import quoted

#: Devices that are taken into the list of a fleet; more come only of strangers.
MAX_DEVICES = 64
#: Seconds between two looks at what the network gives.
LOOK = 1.0


class CoordinatorNode(ManagedNode):
    """
    Hears the devices of a fleet and gives them their stages of a model.

    Subscribes `<fleet>/devices`; publishes `<fleet>/state` (latched) and
    `diagnostics`.  Stages without a cut of their own are cut in proportion to
    the speed that the devices declare, by the operators' arithmetic.  With a target
    (`qoe`) it plans by itself and goes on adapting, publishes `~/qoe`, and
    serves `~/plan_model`.
    """

    PARAMETERS = (
        FLEET,
        KEY_FILE,
        Parameter('coordinator_name', 'coordinator', "This node's name in the fleet, unlike any "
                  'device.'),
        Parameter('model', 'intradp_ros.lab.zoo.mobilenet_v2:mobilenet_v2 1x3x224x224 uint8',
                  'The model that is run: as in the catalogue of the devices.'),
        Parameter('source', 'device', 'The device that asks for inferences.'),
        Parameter('stages', 'device', 'Stages in order: "a,b*2+c,d@30" are three, the second on '
                  'b and c (b takes two samples of three), the third up to operator 30.'),
        Parameter('plan', '', 'A file with a plan of stages (JSON), in place of `stages`.'),
        Parameter('qoe', '', 'A target, such as "latency=200ms,rate=5Hz", in place of `stages`: '
                  'plan by it, and anew when rates or devices change.'),
        Parameter('fleet_file', '', 'The fleet (fleet.yaml) that is planned for; with `qoe`.'),
        Parameter('profile', '', 'File that `intradp profile -o` wrote on a device of speed 1; '
                  'with `qoe`.'),
        Parameter('devices', [''], 'Devices that the first plan waits for; others may join.'),
        Parameter('candidates', [''], 'Other nodes that may coordinate, "name" or "name=priority".'
                  ' The one of the highest priority does, of equals the first by name.'),
        Parameter('priority', 0, "This node's own.", -1000, 1000),
        Parameter('gone_ms', 1000.0, 'A device is left out when it was silent for so long.',
                  500.0, 60000.0),
        Parameter('probation_ms', 500.0, 'A device is taken in, or back, when it was heard for '
                  'so long.', 0.0, 60000.0),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('coordinator_node', **kwargs)
        self.coordinator: FleetCoordinator | None = None
        self._receiver = Receiver(self)
        self._status = Diagnostics(self)
        self._speeds: dict[str, float] = {}

    def setup(self, parameters: dict[str, Any]) -> None:
        """Load the model, for its operators, and read the stages."""
        self._settings = parameters
        self._key = key_of(parameters, self.warn)
        self._cuts: tuple[StageCut, ...] = () if parameters['plan'] or parameters['qoe'] \
            else parse_stages(parameters['stages'])
        self._given = read_plan(parameters['plan']) if parameters['plan'] else None
        model = ModelSpec.parse(parameters['model']).load()
        self._digest = model.digest
        self._costs = operator_weights(model.split.graph)
        self._live = live_planner(model, parameters) if parameters['qoe'] else None
        self._told = ''
        self._states = self.publish_on(
            FleetState, f'{parameters[FLEET.name]}/state', LATCHED)
        self._diagnostics = self.publish_on(DiagnosticArray, 'diagnostics', 10)
        self.call_every(1.0, self._diagnose, self.until_cleanup)
        if self._live:
            self._qoe = self.publish_on(FleetQoe, '~/qoe', RELIABLE)
            service = self.create_service(PlanModel, '~/plan_model', self._plan_model)
            self.until_cleanup.callback(self.destroy_service, service)

    def start(self) -> None:
        """Begin to hear devices."""
        given = self._settings
        channel = DdsPeers(self.context, given[FLEET.name], given['coordinator_name'],
                           namespace=self.get_namespace(), key=self._key)
        self.until_deactivated.callback(channel.close)
        gone = given['gone_ms'] / 1e3
        self.coordinator = FleetCoordinator(
            channel, self._plan, self.info, changed=self._tell_state,
            times=CoordinatorTimes(MemberTimes(
                suspect=gone / 2, gone=gone, probation=given['probation_ms'] / 1e3)),
            candidates=read_candidates(given['candidates']), priority=given['priority'],
            heard=self._heard)
        self.until_deactivated.callback(self._stop, self.coordinator)
        self.coordinator.expect(check_name(name) for name in given['devices'] if name)
        if self._live:
            self._adapter: Worker[FleetCoordinator] = Worker(self._look, self._adapter_failed, 1,
                                                             'adapter')
            self.until_deactivated.callback(self._adapter.close)
            self.call_every(LOOK, self._ask_for_look, self.until_deactivated)
        devices = self._receiver.subscribe(
            DeviceState, f'{given[FLEET.name]}/{DEVICES_TOPIC}', self._take_device, LATCHED,
            'device')
        self.until_deactivated.callback(self.destroy_subscription, devices)

    def _stop(self, coordinator: FleetCoordinator) -> None:
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

    def _heard(self, beat: Heartbeat) -> None:
        if self._live:
            self._live.heard(beat, time.monotonic())

    def _ask_for_look(self) -> None:
        if self.coordinator and self.coordinator.leads:
            self._adapter.put(self.coordinator)
            self._tell_qoe()

    def _look(self, coordinator: FleetCoordinator) -> None:
        """Change to another plan where one should be in use (on a thread of its own)."""
        plan = self._live.look(time.monotonic()) if self._live else None
        if plan and coordinator.plan and plan != coordinator.plan:
            coordinator.propose(plan)

    def _adapter_failed(self, error: Exception) -> None:
        self.get_logger().error(f'no plan: {type(error).__name__}: {quoted(error)}')

    def _plan_model(self, request: PlanModel.Request, response: PlanModel.Response,
                    ) -> PlanModel.Response:
        """Do what an operator says about the plan."""
        live, now = self._live, time.monotonic()
        if live is None:
            return response
        try:
            quality = parse_quality(request.qoe) if request.qoe else None
            if request.what == PlanModel.Request.HOLD:
                live.hold()
                plan, response.text = live.look(now), live.text(now)
            elif request.what == PlanModel.Request.TELL:
                response.text, plan = live.tell(quality, request.without, now)
            else:
                plan = live.adapt(quality, request.without, now)
                response.text = live.text(now)
                if plan and self.coordinator:
                    self.coordinator.propose(plan)
        except ValueError as error:
            response.text = quoted(error)
            return response
        response.ok, response.plan = plan is not None, json.dumps(plan.to_json()) if plan else ''
        return response

    def _tell_qoe(self) -> None:
        live = self._live
        if live is None:
            return
        seen, plan = live.statistics, live.predicted
        message = FleetQoe(
            latency_target=seen.quality.latency, frames=seen.frames, missed=seen.missed,
            missed_share=seen.missed_share, latency=seen.latency, joules=seen.joules,
            latency_expected=plan.latency if plan else math.nan, switches=seen.switches)
        message.header.stamp = self.get_clock().now().to_msg()
        self._qoe.publish(message)

    def _plan(self, alive: frozenset[str]) -> StagePlan | None:
        if self._live:
            return self._live.plan(alive, time.monotonic())
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
        if coordinator is None or not coordinator.leads:
            return
        plan = coordinator.plan
        message = FleetState(
            term=coordinator.id.term, epoch=coordinator.id.epoch, alive=sorted(coordinator.alive),
            expected=list(coordinator.expected),
            plan=json.dumps(plan.to_json()) if plan else '', text=self._text(plan))
        message.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(message)

    def _text(self, plan: StagePlan | None) -> str:
        """Return the plan in use for people; log it when it is another."""
        if plan is None:
            return ''
        text = self._live.text(time.monotonic()) if self._live else '\n'.join(
            f'{number}. {", ".join(m.device for m in stage.members)}: operators '
            f'{stage.operators[0]} to {stage.operators[-1]}'
            for number, stage in enumerate(plan.stages, 1))
        if text != self._told:
            self._told = text
            self.info(f'plan:\n{text}')
        return text

    def _diagnose(self) -> None:
        coordinator = self.coordinator
        if coordinator is None:
            self._diagnostics.publish(self._status.status('inactive', {}, {}))
            return
        missing = sorted(set(coordinator.expected) - coordinator.alive)
        standing = 'another coordinates' if not coordinator.leads else \
            'a plan is in use' if coordinator.plan else 'no plan'
        self._diagnostics.publish(self._status.status(standing, {
                'plan': f'{coordinator.id.term:#x}.{coordinator.id.epoch}',
                'alive': ' '.join(sorted(coordinator.alive)), 'missing': ' '.join(missing),
                'authenticated': self._key is not None},
            added(coordinator.rejections.by_cause(), self._receiver.rejections.by_cause(),
                  *coordinator.channel.rejected().values()),
            well=not missing and bool(coordinator.plan or not coordinator.leads)))


def read_candidates(texts: Sequence[str]) -> dict[str, int]:
    """
    Read names and priorities.

    Raises
    ------
    ValueError
        If a text is not "name" or "name=priority".

    """
    found = {}
    for text in filter(None, texts):
        name, equals, priority = text.partition('=')
        try:
            found[check_name(name)] = int(priority) if equals else 0
        except ValueError as error:
            raise ValueError(f'parameter candidates: {text!r} is not "name" or "name=priority" '
                             f'with a whole number: {error}') from None
    return found


def live_planner(model: SharedModel, parameters: Mapping[str, Any]) -> LivePlanner:
    """
    Return what plans for the fleet and the target that parameters name.

    Raises
    ------
    ValueError
        If a file is missing, or says something else.

    """
    for name in ('fleet_file', 'profile'):
        if not parameters[name]:
            raise ValueError(f'parameter {name} is empty: qoe plans with it')
    fleet: Fleet = read_fleet(Path(parameters['fleet_file']))
    profile = Profile.from_json(Path(parameters['profile']).read_text())
    own = {name: Profile.from_json(path.read_text()) for name, path in fleet.profiles.items()}
    planned = coarsen(in_chain_order(captured_model(model.split, profile, own)))
    return LivePlanner(FleetCosts(planned, fleet.topology, parameters['source'],
                                  parse_quality(parameters['qoe'])))


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
