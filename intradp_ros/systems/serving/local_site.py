# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A site on this machine: its gateway and its executors, which are started anew when they die."""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
import logging
from pathlib import Path
import threading
from typing import Any

from intradp_ros.systems.serving.executor import (
    EmulatedExecutor,
    Executor,
    Opened,
    ProcessExecutor,
)
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.gateway import Gateway
from intradp_ros.systems.serving.service import Service

_LOG = logging.getLogger(__name__)
#: Seconds before an executor that died is started anew, doubled each time up to the most.
FIRST_WAIT, MOST_WAIT = 0.2, 30.0


@dataclass(frozen=True)
class SiteSettings:
    """
    `executors` processes of so many `threads`, on a `device` of PyTorch; logs in a folder.

    `ray`: the address of a Ray cluster whose actors they are, '' for processes of this machine.
    """

    executors: int = 1
    threads: int = 1
    device: str = 'cpu'
    logs: Path | None = None
    ray: str = ''


class LocalSite:
    """
    A gateway with its executors; also their listener.

    Services with times of their own are emulated, on as many further executors.
    """

    def __init__(self, site: str, services: Sequence[Service], sites: Sequence[str] = (),
                 settings: SiteSettings = SiteSettings(), *,
                 lanes: Sequence[Sequence[int]] | None = None, compiled: bool = True) -> None:
        """
        Start all; services are served as they are loaded.

        `lanes` are the numbers of the services of each executor; without them each has all.

        Raises
        ------
        ModuleNotFoundError, ConnectionError
            If there is no Ray, or no such cluster, where one is asked for.

        """
        self._cluster: Any = None
        if settings.ray:
            self._cluster = import_module('intradp_ros.systems.serving.ray_executor')
            self._cluster.join_cluster(settings.ray)
        self._services, self._settings = tuple(services), settings
        planned = [list(range(len(services)))] * settings.executors if lanes is None else lanes
        self._lanes = [numbers for emulated in (False, True) for lane in planned
                       if (numbers := [k for k in lane if bool(services[k].seconds) is emulated])]
        self.gateway = Gateway(site, services, self._lanes, sites, compiled=compiled)
        self._deaths = [0] * len(self._lanes)
        self._opened: list[set[int]] = [set() for _ in self._lanes]
        self._executors: dict[int, Executor] = {}
        self._closing = threading.Event()
        self._lock = threading.RLock()
        for number in range(len(self._lanes)):
            self._start(number)

    @property
    def executors(self) -> dict[int, Executor]:
        """Return the executors that run, by number."""
        return dict(self._executors)

    def close(self) -> None:
        """End all."""
        self._closing.set()
        self.gateway.close()
        with self._lock:
            executors = list(self._executors.values())
        for executor in executors:
            executor.close()

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear that a service is ready."""
        self._deaths[executor] = 0
        self._opened[executor].add(service)
        name = self._services[service].name
        sizes = ', '.join(f'{b}: {1e3 * seconds:.1f}'
                          for b, seconds in zip(found.sizes, found.seconds))
        _LOG.info('%s is ready on executor %d; ms by rows of a batch: %s%s', name, executor,
                  sizes, f'; no larger ones: {found.why}' if found.why else '')
        self.gateway.opened(executor, service, found)

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear that a service cannot be loaded."""
        self.gateway.failed(executor, service, why)

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""
        self.gateway.ended(executor, result)

    def lost(self, executor: int, why: str, which: Executor) -> None:
        """Hear that an executor is gone; another takes its place, if that has not happened."""
        with self._lock:
            if self._closing.is_set() or self._executors.get(executor) is not which:
                return
            del self._executors[executor]
        self.gateway.lost(executor, why, which)
        for service in set(self._lanes[executor]) - self._opened[executor]:
            self.gateway.failed(executor, service, f'its process {why}')
        wait = min(MOST_WAIT, FIRST_WAIT * 2 ** self._deaths[executor])
        self._deaths[executor] += 1
        _LOG.error('executor %d %s; another is started in %.1f s', executor, why, wait)
        timer = threading.Timer(wait, self._start, (executor,))
        timer.daemon = True
        timer.start()

    def _start(self, number: int) -> None:
        services = {k: self._services[k] for k in self._lanes[number]}
        settings = self._settings
        with self._lock:
            if self._closing.is_set():
                return
            # a service may be opened before joined() returns: nothing starts before that
            executor: Executor
            if all(service.seconds for service in services.values()):
                executor = EmulatedExecutor(number, services, self)
            elif self._cluster is not None:
                executor = self._cluster.RayExecutor(
                    number, services, self, site=self.gateway.site, threads=settings.threads,
                    device=settings.device)
            else:
                log = settings.logs / f'executor{number}.log' if settings.logs else None
                executor = ProcessExecutor(number, services, self, threads=settings.threads,
                                           device=settings.device, log=log)
            self._opened[number].clear()
            self._executors[number] = executor
            self.gateway.joined(number, executor)
