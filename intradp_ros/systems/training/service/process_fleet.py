# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A training on processes of this machine, one for each device of a topology."""
from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
import secrets
import signal
from types import MappingProxyType
from typing import Any

from intradp_ros.cluster.topology import Topology
from intradp_ros.core.shared_key import KEY_BYTES
from intradp_ros.systems.training.base.task import TrainingTask
from intradp_ros.systems.training.layers.checkpoint import Checkpoint
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.layers.task_facts import task_facts
from intradp_ros.systems.training.plan.training_plan import Planner
from intradp_ros.systems.training.run.round_groups import check_distributed
from intradp_ros.systems.training.run.weight_exchange import Exchange
from intradp_ros.systems.training.run.worker_process import ProcessLink
from intradp_ros.systems.training.run.worker_settings import Emulation, Settings
from intradp_ros.systems.training.service.round_commit import RoundCommit
from intradp_ros.systems.training.service.trainer import trainer_of

#: No device is elsewhere.
NOWHERE: Mapping[str, tuple[str, tuple[str, ...]]] = MappingProxyType({})


class ProcessFleet:
    """
    Worker processes and their trainer; a context, at whose end all of them have ended.

    With `emulate` each takes the seconds of the table and sends at its path's rate.  Training
    begins with the checkpoint `base` where there is one.  All samples can be read `everywhere`, or
    each where it lies.  `places` has the address of a device
    and the words before its command, where they are not the settings' and none.  `wait` are the
    seconds that all may take to come.  What crosses the network is sealed by a key that processes
    get through their pipes, unless another number is given.
    """

    def __init__(self, name: str, task: TrainingTask, graph: LayerGraph, topology: Topology,
                 planner: Planner, table: LayerTable, settings: Settings, emulate: bool = False,
                 progress: Callable[[RoundCommit], None] = lambda commit: None,
                 logs: Path | None = None, threads: int = 1, base: Checkpoint | None = None,
                 places: Mapping[str, tuple[str, tuple[str, ...]]] = NOWHERE,
                 wait: float = 300.0, sealed: bool = True, everywhere: bool = True) -> None:
        check_distributed()
        self._name, self._settings, self._table = name, settings, table
        self._topology, self._emulate, self._logs = topology, emulate, logs
        self._facts, self._threads = task_facts(task, graph, everywhere), threads
        self._key = secrets.token_bytes(KEY_BYTES) if sealed else b''
        self._exchange = Exchange(settings.address, self._key)
        self.trainer = trainer_of(task, graph, planner, settings.timeout, self._exchange,
                                  progress, base)
        self.links: dict[str, ProcessLink] = {}
        self._places, self._wait = places, wait

    def start(self, device: str) -> None:
        """Start a device's process, ending one before; it takes part as soon as it is ready."""
        if device in self.links:
            self.links[device].kill()
        address, prefix = self._places.get(device, (self._settings.address, ()))
        settings = replace(self._settings, address=address)
        if self._emulate:
            times = self._table.times[device]
            others = [b for a, b in self._topology.paths if a == device]
            rate = min((self._topology.rate(device, name) for name in others), default=None)
            settings = replace(settings, emulation=Emulation(
                tuple(s / times.batches[-1] for s in times.forward[-1]),
                tuple(s / times.batches[-1] for s in times.backward[-1]), rate, times.step))
        events = self.trainer.events

        def take(name: str, report: Mapping[str, Any] | None) -> None:
            events.put((name, report))
        log = self._logs / f'{device}.log' if self._logs else None
        link = ProcessLink(device, self._name, self._exchange.place, settings, take,
                           self._threads, prefix, log, self._facts, self._key)
        self.links[device] = link

    def __enter__(self) -> ProcessFleet:
        """Start all devices and begin the first plan."""
        try:
            for device in self._topology.names:
                self.start(device)
            self.trainer.begin(len(self._topology.names), self._wait)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        """End all processes."""
        self.trainer.close()
        self._exchange.close()
        for link in self.links.values():
            try:
                link.process.send_signal(signal.SIGCONT)
                link.process.wait(1.0 if error and error[0] is None else 0.2)
            except Exception:
                link.kill()
