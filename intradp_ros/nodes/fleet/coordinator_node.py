# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node that keeps a fleet on a plan: who is there, and who does what."""
from __future__ import annotations

from collections.abc import Sequence
import json
from typing import Any

from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.cluster.membership import MemberTimes
from intradp_ros.dds.dds_peers import check_name, DdsPeers
from intradp_ros.msg import DeviceState, FleetState
from intradp_ros.nodes.common.announcement_seals import check_sealed_name
from intradp_ros.nodes.common.diagnostics import added, SaidOnce, Status
from intradp_ros.nodes.common.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.common.receiving import Receiver
from intradp_ros.nodes.fleet.fleet_parameters import DEVICES_TOPIC, FLEET, FleetPlace, STATE_TOPIC
from intradp_ros.nodes.fleet.fleet_silence import FleetSilence
from intradp_ros.nodes.fleet.systems import coordinator_parameters, coordinator_part, SYSTEM
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.role import Plan

#: Bytes of what a device says of itself: it names its models by their digests.
MAX_DEVICE_STATE = 1 << 16


class CoordinatorNode(ManagedNode):
    """
    Hears the devices of a fleet and gives them plans of one system (see `systems.py`).

    Subscribes `<fleet>/devices`; publishes `<fleet>/state` (latched) and
    `diagnostics`, and what the system's planner publishes.
    """

    PARAMETERS = (
        FLEET,
        KEY_FILE,
        Parameter('coordinator_name', 'coordinator', "This node's name in the fleet, unlike any "
                  'device.', check=check_name),
        SYSTEM,
        Parameter('devices', [''], 'Devices that the first plan waits for; others may join.',
                  check=check_name),
        Parameter('candidates', [''], 'Other nodes that may coordinate, "name" or "name=priority".'
                  ' The one of the highest priority does, of equals the first by name.'),
        Parameter('priority', 0, "This node's own.", -1000, 1000),
        Parameter('gone_ms', 1000.0, 'A device is left out when it was silent for so long.',
                  500.0, 60000.0),
        Parameter('probation_ms', 500.0, 'A device is taken in, or back, when it was heard for '
                  'so long.', 0.0, 60000.0),
        *coordinator_parameters(),
    )

    def __init__(self, **kwargs: Any) -> None:
        super().__init__('coordinator_node', **kwargs)
        self.coordinator: FleetCoordinator | None = None
        self._receiver = Receiver(self)
        self._conflicts = SaidOnce(self.warn)

    def setup(self, parameters: dict[str, Any]) -> None:
        """Make ready what plans."""
        self._settings = parameters
        self._key = key_of(parameters, self.warn)
        self._candidates = read_candidates(parameters['candidates'])
        self._planner = coordinator_part(parameters[SYSTEM.name], self, parameters)
        self._reported = ''
        self._fleet = FleetPlace.parse(parameters[FLEET.name])
        self._states = self.publish_on(FleetState, self._fleet.topic(STATE_TOPIC), LATCHED)
        self.diagnose(self._status)

    def start(self) -> None:
        """Begin to hear devices."""
        given = self._settings
        channel = self._channel = DdsPeers(
            self.context, self._fleet.name, given['coordinator_name'],
            namespace=self._fleet.namespace_of(self), key=self._key)
        self.until_deactivated.callback(channel.close)
        gone = given['gone_ms'] / 1e3
        self.coordinator = FleetCoordinator(
            channel, self._planner, self.info, changed=self._report_state,
            times=CoordinatorTimes(MemberTimes(
                suspect=gone / 2, gone=gone, probation=given['probation_ms'] / 1e3)),
            candidates=self._candidates, priority=given['priority'])
        self.until_deactivated.callback(self._stop, self.coordinator)
        self.coordinator.expect(check_name(name) for name in given['devices'] if name)
        self._planner.start(self.coordinator)
        self._silence = FleetSilence(self, self._fleet, 'device')
        devices = self._receiver.subscribe(
            DeviceState, self._fleet.topic(DEVICES_TOPIC), self._take_device, LATCHED, 'device',
            MAX_DEVICE_STATE)
        self.until_deactivated.callback(self.destroy_subscription, devices)

    def _stop(self, coordinator: FleetCoordinator) -> None:
        self.coordinator = None
        coordinator.close()

    def _take_device(self, message: DeviceState) -> None:
        """Hear of a device: it is greeted, and taken for one when it answers."""
        name, coordinator = check_name(message.name), self.coordinator
        check_sealed_name(self._key, self._fleet.name, message)
        if coordinator:
            coordinator.invite(name)

    def _report_state(self) -> None:
        coordinator = self.coordinator
        if coordinator is None or not coordinator.leads:
            return
        plan = coordinator.plan
        message = FleetState(
            term=coordinator.id.term, epoch=coordinator.id.epoch, alive=sorted(coordinator.alive),
            expected=list(coordinator.expected),
            plan=json.dumps(plan.to_json()) if plan else '', text=self._text(plan),
            coordinator=self._settings['coordinator_name'], trouble=coordinator.trouble())
        message.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(message)

    def _text(self, plan: Plan | None) -> str:
        """Return the plan in use for people; log it when it is another."""
        text = self._planner.text(plan) if plan else ''
        if text and text != self._reported:
            self._reported = text
            self.info(f'plan:\n{text}')
        return text

    def _status(self) -> Status:
        """Return what diagnostics say."""
        coordinator = self.coordinator
        if coordinator is None:
            return Status('inactive')
        missing = sorted(set(coordinator.expected) - coordinator.alive)
        standing = 'another coordinates' if not coordinator.leads else \
            'a plan is in use' if coordinator.plan else 'no plan'
        self._conflicts.report(coordinator.channel.conflicts().values())
        others = self._channel.met() - self._candidates.keys()
        nobody = self._silence.look(bool(others), map(self._channel.way, coordinator.expected))
        trouble = '; '.join(filter(None, (nobody, *coordinator.trouble())))
        if trouble and standing == 'no plan':
            standing = trouble if trouble.startswith('no plan') else f'no plan: {trouble}'
        return Status(standing, {
                'plan': f'{coordinator.id.term:#x}.{coordinator.id.epoch}',
                'alive': ' '.join(sorted(coordinator.alive)), 'missing': ' '.join(missing),
                'trouble': trouble, 'authenticated': self._key is not None,
                **self._planner.status()},
            added(coordinator.rejections.by_cause(), self._receiver.rejections.by_cause(),
                  *coordinator.channel.rejected().values()),
            well=not missing and not trouble and bool(
                coordinator.plan or self._planner.rests or not coordinator.leads))


def read_candidates(texts: Sequence[str]) -> dict[str, int]:
    """
    Read names and priorities.

    :raises ValueError: if a text is not "name" or "name=priority".
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


def main(args: list[str] | None = None) -> None:
    """Run the coordinator node."""
    run_node(CoordinatorNode, args)


if __name__ == '__main__':
    main()
