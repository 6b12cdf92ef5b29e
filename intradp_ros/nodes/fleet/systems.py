# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The table of systems: what a device or a coordinator of a fleet needs of each, by its name.

This is the one place that names them all.  To enter another system add a line
to `SYSTEMS`; its modules, and what they need in turn, are imported when a node
is ordered to use it (parameters `roles` and `system`).
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Protocol, TYPE_CHECKING

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.core.extras import pip_install
from intradp_ros.nodes.common.lifecycle import ManagedNode
from intradp_ros.nodes.common.parameters import Parameter
from intradp_ros.nodes.fleet.fleet_parameters import FleetPlace
from intradp_ros.runtime.member.planner import Planner
from intradp_ros.runtime.member.role import Host, Role

if TYPE_CHECKING:
    from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
    from intradp_ros.runtime.models.model import SharedModel


class DevicePart(Protocol):
    """
    A system's part in a device node: made when the node is configured, of the node and its values.

    `role` is called when the node is activated, and again after it was deactivated; what the role
    needs of ROS is undone by `node.until_deactivated`.
    """

    #: What is handed out to other devices, by digest.
    models: Mapping[str, SharedModel]

    def role(self, host: Host) -> Role:
        """Return the role, made anew."""

    def weight_bytes(self, plan: PlanId) -> int:
        """Return the bytes of weights that the plan in use reads here."""

    def status(self) -> Mapping[str, Any]:
        """Return values for diagnostics, while active; "trouble" says what is wrong, if it is."""

    def rejected(self) -> Mapping[str, int]:
        """Return what was rejected of what applications sent, by cause."""


class CoordinatorPart(Planner, Protocol):
    """
    A system's part in a coordinator node: its planner, and what it serves to operators.

    Made when the node is configured, of the node and its values.
    """

    def start(self, coordinator: FleetCoordinator) -> None:
        """Begin to work with a coordinator, at activation; `node.until_deactivated` undoes it."""


@dataclass(frozen=True)
class System:
    """
    One system as nodes see it; `device` and `coordinator` are "module:class", '' for none.

    `parameters` and `planning` name the parameters of these in the same way; their modules import
    little, as nodes declare the parameters of all systems.
    `extra` is the extra of this package that brings what it needs, '' if nothing more is needed.
    """

    device: str
    coordinator: str
    parameters: str = ''
    planning: str = ''
    extra: str = ''


SYSTEMS: Mapping[str, System] = {
    'stages': System('intradp_ros.nodes.fleet.stage_device:StageDevice',
                     'intradp_ros.nodes.fleet.stage_coordination:StageCoordination',
                     'intradp_ros.nodes.fleet.stage_parameters:STAGE_PARAMETERS',
                     'intradp_ros.nodes.fleet.stage_parameters:PLANNING_PARAMETERS'),
    'language': System('intradp_ros.nodes.language.language_device:LanguageDevice',
                       'intradp_ros.nodes.language.language_planning:LanguagePlanning',
                       'intradp_ros.nodes.language.language_parameters:LANGUAGE_PARAMETERS',
                       'intradp_ros.nodes.language.language_parameters:LANGUAGE_PLANNING_PARAMETERS',
                       extra='language'),
    'training': System('intradp_ros.nodes.training.training_device:TrainingDevice',
                       'intradp_ros.nodes.training.training_coordination:TrainingCoordination',
                       'intradp_ros.nodes.training.training_parameters:DEVICE_PARAMETERS',
                       'intradp_ros.nodes.training.training_parameters:COORDINATOR_PARAMETERS'),
}
ROLES = Parameter(
    'roles', ['stages'], 'Systems that this machine takes part in: "name", or "name@fleet:MB" for '
    'one in another fleet with so much memory (in 1e6 bytes; 0 or none: no limit). '
    f'There are: {", ".join(SYSTEMS)}.')
SYSTEM = Parameter('system', 'stages', 'What is planned.',
                   choices=tuple(name for name, system in SYSTEMS.items() if system.coordinator))


@dataclass(frozen=True, slots=True)
class RolePlace:
    """A system, the fleet that it takes part in, and the bytes of memory that it may use there."""

    system: str
    fleet: FleetPlace
    memory_bytes: float


def device_parameters() -> tuple[Parameter, ...]:
    """Return the parameters of all systems' device parts, each name once."""
    return _once(system.parameters for system in SYSTEMS.values())


def coordinator_parameters() -> tuple[Parameter, ...]:
    """Return the parameters of all systems' planners, each name once."""
    return _once(system.planning for system in SYSTEMS.values())


def read_roles(texts: Iterable[str], fleet: FleetPlace, memory_bytes: float,
               ) -> tuple[RolePlace, ...]:
    """
    Read which systems take part in which fleets.

    :raises ValueError: if a system is unknown, named twice, or a text is not of the form.
    """
    places = tuple(_role_place(text, fleet, memory_bytes) for text in texts if text)
    if not places:
        raise ValueError('parameter roles is empty: name at least one of ' + ', '.join(SYSTEMS))
    names = [place.system for place in places]
    if len(set(names)) < len(names):
        raise ValueError(f'parameter roles names a system twice: {", ".join(names)}; start '
                         'another device node for it')
    return places


def _role_place(text: str, fleet: FleetPlace, memory_bytes: float) -> RolePlace:
    name, at, where = text.partition('@')
    if name not in SYSTEMS or not SYSTEMS[name].device:
        raise ValueError(f'parameter roles: there is no system {name!r}; there are '
                         + ', '.join(key for key, found in SYSTEMS.items() if found.device))
    if not at:
        return RolePlace(name, fleet, memory_bytes)
    other, _, megabytes = where.partition(':')
    try:
        return RolePlace(name, FleetPlace.parse(other), 1e6 * float(megabytes or 0))
    except ValueError as error:
        raise ValueError(f'parameter roles: {text!r} is not "name@fleet" or "name@fleet:MB": '
                         f'{error}') from None


def device_part(name: str, node: ManagedNode, given: Mapping[str, Any]) -> DevicePart:
    """
    Return a system's part in a device node.

    :raises ValueError: if what it needs is not installed; the text names the command that brings
        it.
    """
    found: DevicePart = _load(name, SYSTEMS[name].device)(node, given)
    return found


def coordinator_part(name: str, node: ManagedNode, given: Mapping[str, Any]) -> CoordinatorPart:
    """Return a system's part in a coordinator node; ValueError as for `device_part`."""
    found: CoordinatorPart = _load(name, SYSTEMS[name].coordinator)(node, given)
    return found


def _load(name: str, entry: str) -> Callable[..., Any]:
    try:
        found: Callable[..., Any] = _named(entry)
    except ModuleNotFoundError as error:
        extra = SYSTEMS[name].extra
        if not extra or (error.name or '').startswith('intradp_ros'):
            raise
        raise ValueError(f'{name} needs {error.name}, which is not installed: run '
                         f'{pip_install(extra)}') from error
    return found


def _named(entry: str) -> Any:
    module, _, attribute = entry.partition(':')
    return getattr(import_module(module), attribute)


def _once(entries: Iterable[str]) -> tuple[Parameter, ...]:
    return tuple({parameter.name: parameter for entry in entries if entry
                  for parameter in _named(entry)}.values())
