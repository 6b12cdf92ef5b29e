# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The node of a machine in a fleet: offers it, and takes part in plans of systems."""
from __future__ import annotations

from functools import partial
import math
from pathlib import Path
from typing import Any, TYPE_CHECKING

from intradp_ros.cluster.plan_id import NO_PLAN
from intradp_ros.dds.dds_peers import check_name, DdsPeers
from intradp_ros.link.chunk_size import LEAST_CHUNK_BYTES, MAX_CHUNK_BYTES
from intradp_ros.msg import DeviceState
from intradp_ros.nodes.common.announcement_seals import sealed_name
from intradp_ros.nodes.common.device_parameter import DEVICE
from intradp_ros.nodes.common.diagnostics import added, SaidOnce, Status
from intradp_ros.nodes.common.key_parameter import KEY_FILE, key_of
from intradp_ros.nodes.common.lifecycle import LATCHED, ManagedNode, run_node
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.common.prometheus import Total
from intradp_ros.nodes.common.weight_parameters import WEIGHT_PARAMETERS, weight_policy
from intradp_ros.nodes.fleet.fleet_parameters import DEVICES_TOPIC, FLEET, FleetPlace
from intradp_ros.nodes.fleet.fleet_silence import FleetSilence
from intradp_ros.nodes.fleet.systems import (
    device_parameters,
    device_part,
    read_roles,
    RolePlace,
    ROLES,
)
from intradp_ros.profiling.kept_memory import KeptMemory
from intradp_ros.profiling.machine import prepare_process, settle_process
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.member.heartbeats import Condition

if TYPE_CHECKING:
    from intradp_ros.runtime.models.model import SharedModel

_SUPPLY = Path('/sys/class/power_supply')


class DeviceNode(ManagedNode):
    """
    Takes part in the plans of coordinators while it is active, in one fleet or in several.

    What it takes part in are `roles` (see `systems.py`).  Publishes `<fleet>/devices`
    (latched) and `diagnostics`, and what its roles publish.
    """

    PARAMETERS: tuple[Parameter, ...] = (
        FLEET,
        KEY_FILE,
        Parameter('device_name', 'device', 'Name of this machine, unique in its fleet.',
                  check=check_name),
        Parameter('coordinators', ['coordinator'], 'Names of the coordinators to listen to.',
                  check=check_name),
        ROLES,
        *WEIGHT_PARAMETERS,
        Parameter('memory_mb', 0.0, 'Memory that plans may use, in 1e6 bytes; 0 for no limit.',
                  0.0, 1e7),
        Parameter('speed', 1.0, 'How many times as fast as the profile plans are made with.',
                  0.01, 1000.0),
        DEVICE,
        Parameter('threads', 1, 'CPU threads for operators.', 1, 256),
        Parameter('chunk_bytes', LEAST_CHUNK_BYTES,
                  'Least payload bytes of a chunk; fast links get larger ones.', 1024,
                  MAX_CHUNK_BYTES),
        *device_parameters(),
    )

    def __init__(self, *, name: str = 'device_node', **kwargs: Any) -> None:
        super().__init__(name, **kwargs)
        self._members: dict[FleetPlace, FleetMember] = {}
        self._channels: dict[FleetPlace, DdsPeers] = {}
        self._conflicts = SaidOnce(self.warn)

    @property
    def fetches(self) -> bool:
        """Whether weights may be fetched."""
        return self._weights.store is not None

    def setup(self, parameters: dict[str, Any]) -> None:
        """Make ready what the roles need, and say what this machine offers."""
        prepare_process(parameters['threads'])
        self._settings = parameters
        self._key = key_of(parameters, self.warn)
        self._weights = weight_policy(parameters, self._key is not None)
        places = read_roles(parameters[ROLES.name], FleetPlace.parse(parameters[FLEET.name]),
                            1e6 * parameters['memory_mb'])
        self._parts = {place.system: device_part(place.system, self, parameters)
                       for place in places}
        self._fleets = {fleet: [place for place in places if place.fleet == fleet]
                        for fleet in dict.fromkeys(place.fleet for place in places)}
        self._states = {fleet: self.publish_on(DeviceState, fleet.topic(DEVICES_TOPIC), LATCHED)
                        for fleet in self._fleets}
        self._silence = {fleet: FleetSilence(self, fleet, 'coordinator')
                         for fleet in self._fleets}
        self.diagnose(self._status)

    def load(self, text: str) -> SharedModel:
        """Load a model of the catalogue."""
        # Here: a device that holds no stages needs nothing that captures and splits models.
        from intradp_ros.runtime.models.catalogue import ModelSpec
        from intradp_ros.split.calls.accelerator import open_device
        spec = ModelSpec.parse(text)
        model = spec.load(device=open_device(self._settings[DEVICE.name]))
        self.info(f'model {spec.source}: {len(model.split.operators)} operators, '
                  f'digest {model.digest[:12]}')
        return model

    def start(self) -> None:
        """Take part."""
        settle_process()
        self._memory = KeptMemory()
        for fleet, places in self._fleets.items():
            self._join(fleet, places)

    def _join(self, fleet: FleetPlace, places: list[RolePlace]) -> None:
        given = self._settings
        parts = [self._parts[place.system] for place in places]
        channel = self._channels[fleet] = DdsPeers(
            self.context, fleet.name, given['device_name'],
            namespace=fleet.namespace_of(self), chunk_bytes=given['chunk_bytes'], key=self._key)
        self.until_deactivated.callback(channel.close)
        member = self._members[fleet] = FleetMember(
            channel, [part.role for part in parts], self.info, partial(self._report_state, fleet),
            models={digest: model for part in parts for digest, model in part.models.items()},
            coordinators=filter(None, given['coordinators']),
            condition=partial(_condition, places, given['speed']), weights=self._weights)
        self.until_deactivated.callback(self._stop, fleet, member)
        self._report_state(fleet)

    def _stop(self, fleet: FleetPlace, member: FleetMember) -> None:
        del self._members[fleet]
        member.close()

    def _report_state(self, fleet: FleetPlace) -> None:
        """Publish what this machine offers and does in a fleet."""
        member, given, places = self._members.get(fleet), self._settings, self._fleets[fleet]
        if member is None:
            return
        plan, parts = member.committed, [self._parts[place.system] for place in places]
        message = DeviceState(
            name=given['device_name'], models=[d for part in parts for d in part.models],
            speed=given['speed'], memory_bytes=_condition(places, 0.0).free_memory,
            threads=given['threads'], battery=battery_level(), term=plan.term, epoch=plan.epoch,
            weight_bytes=sum(part.weight_bytes(plan) for part in parts) if plan > NO_PLAN else 0)
        message.header.stamp = self.get_clock().now().to_msg()
        self._states[fleet].publish(sealed_name(self._key, fleet.name, message))

    def _silent(self, fleet: FleetPlace, member: FleetMember) -> list[str]:
        """Return who is not heard and should be: others of the plan, a coordinator."""
        channel = self._channels[fleet]
        met, plan = channel.met(), member.plan
        nobody = self._silence[fleet].look(
            not member.coordinators.isdisjoint(met),
            map(channel.way, sorted(member.coordinators)))
        lost = sorted({*plan.participants} - met - {channel.name}) if plan else []
        silent = f'{", ".join(lost)} of the plan {"is" if len(lost) == 1 else "are"} not heard'
        return [*([silent] if lost else []), *([nobody] if nobody else [])]

    def _status(self) -> Status:
        """Return what diagnostics say."""
        if not self._members:
            return Status('inactive')
        self._memory.look()
        members = tuple(self._members.items())
        found = [dict(part.status()) for part in self._parts.values()]
        trouble = '; '.join(filter(None, (
            *(status.pop('trouble', '') for status in found),
            *(text for fleet, member in members for text in self._silent(fleet, member)),
            *(text for _, member in members for text in member.trouble()))))
        self._conflicts.report([text for _, member in members
                              for text in member.channel.conflicts().values()])
        values: dict[str, Any] = {}
        for number, (fleet, member) in enumerate(members):
            plan = f'{member.committed.term:#x}.{member.committed.epoch}'
            values['plan' if number == 0 else f'plan of {fleet.name}'] = plan
        for status in found:
            values |= status
        values |= {'trouble': trouble, 'device_name': self._settings['device_name'],
                   'weight_bytes_served': Total(sum(m.weights.served for _, m in members)),
                   'authenticated': self._key is not None}
        rejected = added(*(part.rejected() for part in self._parts.values()),
                         *(m.rejections.by_cause() for _, m in members),
                         *(counts for _, m in members for counts in m.channel.rejected().values()))
        return Status(
            'taking part' if any(m.held() for _, m in members) else 'waiting for a plan', values,
            rejected, well=not trouble)


def _condition(places: list[RolePlace], speed: float) -> Condition:
    """Return the memory of some roles' plans, 0 where one has no limit, battery and speed."""
    limits = [place.memory_bytes for place in places]
    battery = battery_level()
    return Condition(max(limits) if all(limits) else 0.0,
                     None if math.isnan(battery) else battery, speed)


def battery_level() -> float:
    """Return the charge of this machine's battery as a share, nan without one."""
    for path in sorted(_SUPPLY.glob('*/capacity')):
        try:
            return float(path.read_text()) / 100
        except (OSError, ValueError):
            continue
    return math.nan


def main(args: list[str] | None = None) -> None:
    """Run the device node."""
    run_node(DeviceNode, args)


if __name__ == '__main__':
    main()
