# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A fleet of real nodes as processes, on this machine: device nodes, a coordinator, an asker."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
import secrets
import signal
from typing import Any

from intradp_lab.emulation.device_limits import LimitedDevices
from intradp_lab.emulation.fleet_network import FleetNetwork
from intradp_lab.emulation.processes import Child, ros_arguments, starter
from intradp_lab.emulation.ring_network import RingNetwork
from intradp_lab.fleet.asking import Asking, load_answers, SeenAnswer
from intradp_ros.core.processes import Command, module_arguments

COORDINATOR = 'coordinator'
#: Seconds, as `Patience` counts them.
START_TIMEOUT = 180.0


@dataclass(frozen=True)
class NodeFleet:
    """
    What runs where: `speeds` by device, the `source` among them asks.

    The coordinator makes plans of `stages`, or takes that of a file, `plan`; `standby`
    others may take its place.  With a target, `qoe`, it plans itself, for the fleet of
    `fleet_file` and by the profile `measured`.

    `parameters` are further ones of some devices' nodes, `modules` other executables of theirs.
    With `profiles` (files by device) operators are emulated.  Without a `network`
    all run on this machine's own; devices in `groups` are limited in what they may have.
    With a `key_file` all seal what they say.  Devices in `later` are not started with the others.
    """

    model: str
    source: str
    speeds: Mapping[str, float]
    folder: Path
    stages: str = ''
    plan: str = ''
    profiles: Mapping[str, str] = field(default_factory=dict)
    network: FleetNetwork | RingNetwork | None = None
    groups: LimitedDevices | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    standby: int = 0
    qoe: str = ''
    fleet_file: str = ''
    measured: str = ''
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    modules: Mapping[str, str] = field(default_factory=dict)
    key_file: str = ''
    later: tuple[str, ...] = ()
    name: str = field(default_factory=lambda: f'fleet_{secrets.token_hex(4)}')

    def device_command(self, device: str) -> Command:
        """Return how a device's node starts."""
        given = {'fleet': self.name, 'device_name': device, 'models': [self.model],
                 'speed': self.speeds[device], 'coordinators': list(self.coordinators),
                 'key_file': self.key_file, **self.parameters.get(device, {})}
        if device in self.profiles:
            given['profile'] = self.profiles[device]
        module = 'intradp_lab.fleet.emulated_device_node' if device in self.profiles \
            else 'intradp_ros.nodes.fleet.device_node'
        return self._command(device, device, ros_arguments(
            self.modules.get(device, module), node=device, parameters=given), limited=True)

    @property
    def coordinators(self) -> dict[str, int]:
        """The candidates with their priorities, the first the best."""
        names = (COORDINATOR, *(f'{COORDINATOR}{k}' for k in range(1, self.standby + 1)))
        return {name: len(names) - k for k, name in enumerate(names)}

    def coordinator_command(self, name: str = COORDINATOR) -> Command:
        """Return how a coordinator's node starts; it lives next to the source."""
        others = [f'{other}={priority}' for other, priority in self.coordinators.items()
                  if other != name]
        return self._command(name, self.source, ros_arguments(
            'intradp_ros.nodes.fleet.coordinator_node', node=name, parameters={
                'fleet': self.name, 'coordinator_name': name, 'model': self.model,
                'source': self.source, 'stages': self.stages, 'plan': self.plan,
                'qoe': self.qoe, 'fleet_file': self.fleet_file, 'profile': self.measured,
                'devices': list(self.speeds), 'candidates': others or [''],
                'priority': self.coordinators[name], 'key_file': self.key_file}))

    def asker_command(self, **options: Any) -> Command:
        """Return how the asker starts."""
        asking = replace(Asking(
            self.name, self.source, self.model, str(self.output),
            profile=self.profiles.get(self.source, ''),
            speed=self.speeds[self.source], coordinators=tuple(self.coordinators),
            key_file=self.key_file), **options)
        return self._command('asker', self.source, module_arguments(
            'intradp_lab.fleet.asker', asking.to_json()), limited=True)

    @property
    def output(self) -> Path:
        """Where the asker writes what it saw."""
        return self.folder / 'answers.json'

    def _command(self, name: str, device: str, words: Sequence[str], limited: bool = False,
                 ) -> Command:
        return Command(name, words, self.network.exec_prefix(device) if self.network else (),
                       environment=self.environment,
                       groups=self.groups.of(device) if self.groups and limited else ())


@dataclass
class RunningFleet:
    """Processes of a `NodeFleet`; any may be killed and started again."""

    fleet: NodeFleet
    start: Callable[[Command], Child]
    children: dict[str, Child] = field(default_factory=dict)

    def begin(self) -> None:
        """Start all nodes but the asker, and wait until they are active."""
        for device in self.fleet.speeds:
            if device not in (self.fleet.source, *self.fleet.later):
                self.start_device(device)
        for name in self.fleet.coordinators:
            self.start_coordinator(name)
        for child in self.children.values():
            child.wait_for_line('active', START_TIMEOUT)

    def start_device(self, device: str) -> None:
        """Start a device's node, perhaps again."""
        self.children[device] = self.start(self.fleet.device_command(device))

    def start_coordinator(self, name: str = COORDINATOR) -> None:
        """Start a coordinator's node, perhaps again."""
        self.children[name] = self.start(self.fleet.coordinator_command(name))

    def asker(self, **options: Any) -> Child:
        """Start asking, and wait until a plan is in use; options are those of `Asking`."""
        child = self.start(self.fleet.asker_command(**options))
        child.wait_for_line('^asking', START_TIMEOUT)
        return child

    def wait_for_plan(self, asker: Child, devices: str, since: int = 0) -> None:
        """Wait until the asker uses a plan on just these devices ("a, b"), later in its log."""
        asker.wait_for_line(f'stages on {devices};', START_TIMEOUT, since)

    def stop_asking(self, asker: Child) -> list[SeenAnswer]:
        """Let the asker ask no more; return what it saw."""
        asker.signal(signal.SIGUSR1)
        return self.answers(asker, START_TIMEOUT)

    def answers(self, asker: Child, timeout: float) -> list[SeenAnswer]:
        """Wait for the asker's end and return what it saw; ChildError if it fails."""
        if asker.wait(timeout):
            raise asker.ended('')
        return load_answers(self.fleet.output)


@contextmanager
def running(fleet: NodeFleet) -> Iterator[RunningFleet]:
    """Run a fleet's nodes while the context lasts."""
    with starter(fleet.folder / 'logs') as start:
        run = RunningFleet(fleet, start)
        run.begin()
        yield run
