# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet with a language model on this machine: device processes in namespaces, with limits.

Each has its own network namespace behind one access point, its memory, its rate of disk
reads and its part of the processor.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
import json
from pathlib import Path
import queue
import subprocess
import threading
import time
from typing import Any

from intradp_lab.emulation.device_limits import DeviceLimits, limited_devices
from intradp_lab.emulation.fleet_network import fleet_network
from intradp_lab.emulation.processes import child_error, ChildError
from intradp_lab.language.settings import DeviceSettings
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.patience import Patience
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.systems.language.drafts import DRAFTS

TRANSPORT = 'air'
#: Seconds until a fleet has a plan, and that an answer may take.
START, ANSWER = 300.0, 900.0
#: Seconds between two looks at whether patience is over.
_LOOK = 0.2


@dataclass(frozen=True, slots=True)
class EmulatedDevice:
    """
    A device: bytes for plans, bytes that its process may have in all, bytes per second of disk.

    `cpus` are cores; 0 is for all.
    """

    name: str
    memory: int
    limit: int
    disk: float
    cpus: float = 0.0


class Talking:
    """A child process that takes and says a JSON object a line."""

    def __init__(self, command: Command, log: Path) -> None:
        self.name, self.log = command.name, log
        self._watch = command.watch()
        self._log = log.open('wb')
        self.process = subprocess.Popen(
            command.line(), env=command.variables(), stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=self._log, text=True, start_new_session=True)
        self._said: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def ask(self, **what: Any) -> None:
        """Write an object; ChildError if the process has ended."""
        assert self.process.stdin
        try:
            self.process.stdin.write(json.dumps(what) + '\n')
            self.process.stdin.flush()
        except OSError:
            raise self._ended(f'before it was asked {json.dumps(what)[:80]}') from None

    def hear(self, key: str, timeout: float) -> dict[str, Any]:
        """
        Return the next object that has a key; those before it are dropped.

        :raises ChildError: if none comes within so many seconds (`Patience`), or the process ends.
        """
        patience = Patience(timeout)
        while not patience.over:
            try:
                found = self._said.get(timeout=_LOOK)
            except queue.Empty:
                continue
            if found is None:
                raise self._ended(f'before it said {key!r}')
            if key in found:
                return found
        raise child_error(self.name, f'did not say {key!r} within {timeout:g} s', self.log)

    def _ended(self, when: str) -> ChildError:
        end = self._watch.end(self.process.wait())
        return child_error(self.name, f'{end} {when}', self.log, end)

    def check(self) -> None:
        """Raise ChildError if it has ended."""
        if self.process.poll() is not None:
            raise self._ended('before it was to')

    def kill(self) -> None:
        """End it at once, as a power cut would."""
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """Let it end, and kill it if it does not."""
        assert self.process.stdin
        if self.process.poll() is None:
            try:
                self.process.stdin.close()
                self.process.wait(5.0)
            except (OSError, subprocess.TimeoutExpired):
                self.process.kill()
                self.process.wait()
        self._log.close()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            try:
                self._said.put(json.loads(line))
            except ValueError:  # a library prints, too
                self._log.write(line.encode())
                self._log.flush()
        self._said.put(None)


@dataclass(frozen=True)
class LanguageFleet:
    """Processes that have agreed on a plan; the first device is the head."""

    devices: Mapping[str, Talking]
    coordinator: Talking
    network: Any

    @property
    def head(self) -> Talking:
        """Return the head's process."""
        return next(iter(self.devices.values()))

    def states(self) -> dict[str, dict[str, Any]]:
        """Return the state of each device that still runs."""
        running = {n: d for n, d in self.devices.items() if d.process.poll() is None}
        for device in running.values():
            device.ask(ask='state', id=0)
        return {name: device.hear('state', 20.0) for name, device in running.items()}

    def check(self) -> None:
        """Raise ChildError if one of the processes has ended."""
        for process in (*self.devices.values(), self.coordinator):
            process.check()

    def rates(self) -> dict[str, dict[str, Any]]:
        """Return what each device measures of its memory and its disk, one after another."""
        found = {}
        for name, device in self.devices.items():
            device.ask(ask='rates')
            found[name] = device.hear('memory_rate', 60.0)
        return found

    def answer(self, **asked: Any) -> dict[str, Any]:
        """
        Ask the head, and return the end of the request; what was said before is dropped.

        A request is refused as long as no plan is in use, and is made again then.
        """
        patience = Patience(START)
        while True:
            self.head.ask(ask='text', id=1, **asked)
            end = self.head.hear('fate', ANSWER)
            if end['fate'] != 'refused' or patience.over:
                return end
            time.sleep(_LOOK)


@contextmanager
def language_fleet(folder: Path, devices: Sequence[EmulatedDevice], store: Path, mbit: float,
                   planning: Mapping[str, Any], patience: float = 10.0,
                   ) -> Iterator[LanguageFleet]:
    """
    Run a fleet until the context is left; it has a plan when the context begins.

    `planning` is what the coordinator is given in addition to devices and store.

    :raises ChildError: if a process ends, or there is no plan in time.
    :raises NetworkError, LimitError: if the system refuses namespaces or limits.
    """
    folder.mkdir(parents=True, exist_ok=True)
    names = [device.name for device in devices]
    limits = {d.name: DeviceLimits(d.cpus, d.limit, d.disk) for d in devices}
    limits = {name: limit for name, limit in limits.items() if limit.kinds}
    started: list[Talking] = []
    with fleet_network([*names, 'coordinator'], mbit, wired=('coordinator',)) as network, \
            limited_devices(limits, store) as groups:
        environment = {**network.discovery, **transport_environment(TRANSPORT),
                       'MALLOC_ARENA_MAX': '2'}

        def start(name: str, module: str, settings: Mapping[str, Any]) -> Talking:
            path = folder / f'{name}.json'
            write_atomically(path, json.dumps(settings))
            started.append(Talking(Command(
                name, module_arguments(f'intradp_lab.language.{module}', str(path)),
                prefix=network.exec_prefix(name), environment=environment,
                groups=groups.of(name)), folder / f'{name}.log'))
            return started[-1]
        try:
            running = {d.name: start(d.name, 'device_process', asdict(DeviceSettings(
                d.name, str(store), d.memory, chunk=int(planning['lane']), patience=patience,
                drafts=int(planning.get('drafts', DRAFTS)))))
                for d in devices}
            coordinator = start('coordinator', 'coordinator_process', {
                **planning, 'store': str(store), 'mbit': mbit, 'head': names[0],
                'devices': [{'name': d.name, 'memory': d.memory, 'disk': d.disk or 1e9}
                            for d in devices]})
            for process in running.values():
                process.hear('ready', START)
            running[names[0]].hear('plan', START)  # a plan may have no part for another device
            yield LanguageFleet(running, coordinator, network)
        finally:
            for process in reversed(started):
                process.stop()
