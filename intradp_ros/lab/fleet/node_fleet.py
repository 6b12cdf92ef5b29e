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

from intradp_ros.lab.emulation.fleet_network import FleetNetwork
from intradp_ros.lab.emulation.processes import (
    Child,
    Command,
    module_arguments,
    ros_arguments,
    starter,
)
from intradp_ros.lab.fleet.asking import Asking, load_answers, SeenAnswer

COORDINATOR = 'coordinator'
START_TIMEOUT = 90.0


@dataclass(frozen=True)
class NodeFleet:
    """
    What runs where: `speeds` by device, the `source` among them asks.

    The coordinator makes plans of `stages`, or takes that of a file, `plan`.

    With a `profile` (a file) operators are emulated.  Without a `network`
    all run on this machine's own.
    """

    model: str
    source: str
    speeds: Mapping[str, float]
    folder: Path
    stages: str = ''
    plan: str = ''
    profile: str = ''
    network: FleetNetwork | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    name: str = field(default_factory=lambda: f'fleet_{secrets.token_hex(4)}')

    def device_command(self, device: str) -> Command:
        """Return how a device's node starts."""
        given = {'fleet': self.name, 'device_name': device, 'models': [self.model],
                 'speed': self.speeds[device]}
        if self.profile:
            given['profile'] = self.profile
        module = 'intradp_ros.lab.fleet.emulated_device_node' if self.profile \
            else 'intradp_ros.nodes.device_node'
        return self._command(device, device, ros_arguments(
            module, node=device, parameters=given))

    def coordinator_command(self) -> Command:
        """Return how the coordinator's node starts; it lives beside the source."""
        return self._command(COORDINATOR, self.source, ros_arguments(
            'intradp_ros.nodes.coordinator_node', parameters={
                'fleet': self.name, 'model': self.model, 'source': self.source,
                'stages': self.stages, 'plan': self.plan, 'devices': list(self.speeds)}))

    def asker_command(self, **options: float) -> Command:
        """Return how the asker starts."""
        asking = replace(Asking(
            self.name, self.source, self.model, str(self.output), profile=self.profile,
            speed=self.speeds[self.source]), **options)  # type: ignore[arg-type]
        return self._command('asker', self.source, module_arguments(
            'intradp_ros.lab.fleet.asker', asking.to_json()))

    @property
    def output(self) -> Path:
        """Where the asker writes what it saw."""
        return self.folder / 'answers.json'

    def _command(self, name: str, device: str, words: Sequence[str]) -> Command:
        prefix = self.network.exec_prefix(device) if self.network else ()
        return Command(name, words, prefix, environment=self.environment)


@dataclass
class RunningFleet:
    """Processes of a `NodeFleet`; any may be killed and started again."""

    fleet: NodeFleet
    start: Callable[[Command], Child]
    children: dict[str, Child] = field(default_factory=dict)

    def begin(self) -> None:
        """Start all nodes but the asker, and wait until they are active."""
        for device in self.fleet.speeds:
            if device != self.fleet.source:
                self.start_device(device)
        self.start_coordinator()
        for child in self.children.values():
            child.wait_for_line('active', START_TIMEOUT)

    def start_device(self, device: str) -> None:
        """Start a device's node, perhaps again."""
        self.children[device] = self.start(self.fleet.device_command(device))

    def start_coordinator(self) -> None:
        """Start the coordinator's node, perhaps again."""
        self.children[COORDINATOR] = self.start(self.fleet.coordinator_command())

    def asker(self, **options: float) -> Child:
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
            raise asker.failure('failed')
        return load_answers(self.fleet.output)


@contextmanager
def running(fleet: NodeFleet) -> Iterator[RunningFleet]:
    """Run a fleet's nodes while the context lasts."""
    with starter(fleet.folder / 'logs') as start:
        run = RunningFleet(fleet, start)
        run.begin()
        yield run
