# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A site on this machine: its gateway and its executors, which are restarted when they die."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
import logging
from pathlib import Path
import threading
from typing import Any

from intradp_ros.core.steady import Steady
from intradp_ros.systems.serving.executor import (
    EmulatedExecutor,
    Executor,
    Opened,
    ProcessExecutor,
)
from intradp_ros.systems.serving.executor_messages import BatchResult
from intradp_ros.systems.serving.gateway import Coming, Gateway, OTHER_MODEL
from intradp_ros.systems.serving.placement_plan import PlacementError, read_placement
from intradp_ros.systems.serving.service import Service

_LOG = logging.getLogger(__name__)
#: Seconds before an executor that died is restarted, doubled each time up to the most.
FIRST_WAIT, MOST_WAIT = 0.2, 30.0
#: Seconds between looks at the file of a plan.
LOOK = 1.0


@dataclass(frozen=True)
class SiteSettings:
    """
    `executors` processes of `threads` threads each, on a `device` of PyTorch; logs in a folder.

    `ray`: the address of a Ray cluster whose actors they are, '' for processes of this machine.
    """

    executors: int = 1
    threads: int = 1
    device: str = 'cpu'
    logs: Path | None = None
    ray: str = ''


@dataclass(eq=False)
class _Lane:
    """
    An executor of a site and its services; it listens to it.

    `found` is what the one that runs has loaded; `leaves`: no other takes its place.
    """

    site: LocalSite
    number: int
    services: tuple[int, ...]
    executor: Executor | None = None
    deaths: int = 0
    leaves: bool = False
    found: dict[int, Opened] = field(default_factory=dict)

    def opened(self, executor: int, service: int, found: Opened) -> None:
        """Hear that a service is ready."""
        self.site.opened(self, service, found)

    def failed(self, executor: int, service: int, why: str) -> None:
        """Hear that a service cannot be loaded."""
        self.site.failed(self, service, why)

    def ended(self, executor: int, result: BatchResult) -> None:
        """Hear of the end of a batch."""
        self.site.gateway.ended(self.number, result)

    def lost(self, executor: int, why: str, which: Executor) -> None:
        """Hear that the executor is gone."""
        self.site.lost(self, why, which)


class LocalSite:
    """
    A gateway with its executors.

    Services with times of their own are emulated, on as many further executors.
    """

    def __init__(self, site: str, services: Sequence[Service], sites: Sequence[str] = (),
                 settings: SiteSettings = SiteSettings(), *,
                 lanes: Sequence[Sequence[int]] | None = None, compiled: bool = True) -> None:
        """
        Start all; services are served as they are loaded.

        `lanes` are the numbers of the services of each executor; without them each has all.

        :raises ModuleNotFoundError, ConnectionError: if there is no Ray, or no such cluster, where
            one is asked for.
        """
        self._cluster: Any = None
        if settings.ray:
            self._cluster = import_module('intradp_ros.systems.serving.ray_executor')
            self._cluster.join_cluster(settings.ray)
        self._services, self._settings = tuple(services), settings
        planned = self._real_and_emulated(
            [range(len(services))] * settings.executors if lanes is None else lanes)
        self.gateway = Gateway(site, services, planned, sites, compiled=compiled)
        self._lanes = {number: _Lane(self, number, numbers)
                       for number, numbers in enumerate(planned)}
        #: Those of a plan that is being loaded, which the gateway does not know yet.
        self._coming: list[_Lane] = []
        self._leaving: list[_Lane] = []
        self._ends: set[threading.Thread] = set()
        self._closing = threading.Event()
        self._lock = threading.RLock()
        for lane in list(self._lanes.values()):
            self._start(lane)

    def _real_and_emulated(self, lanes: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
        return [numbers for emulated in (False, True) for lane in lanes if (numbers := tuple(
            k for k in lane if bool(self._services[k].seconds) is emulated))]

    @property
    def executors(self) -> dict[int, Executor]:
        """Return the executors that run, by number."""
        with self._lock:
            return {number: lane.executor for number, lane in self._lanes.items() if lane.executor}

    @property
    def missing(self) -> int:
        """Return how many executors have died and are about to be restarted."""
        with self._lock:
            return sum(lane.executor is None and not lane.leaves for lane in self._lanes.values())

    def close(self) -> None:
        """End all."""
        self._closing.set()
        self.gateway.close()
        with ThreadPoolExecutor(64) as pool:  # each may take its seconds to end
            list(pool.map(lambda executor: executor.close(), self.executors.values()))
        for thread in list(self._ends):
            thread.join()

    # ---- another plan ----

    def watch(self, plan: Path) -> None:
        """Apply the plan of a file now and whenever that changes, on a thread of its own."""
        threading.Thread(target=self._watch, args=(plan,), name='plan', daemon=True).start()

    def _watch(self, plan: Path) -> None:
        steady = Steady(f'the plan of site {self.gateway.site}')
        names = [service.name for service in self._services]
        seen: tuple[int, ...] | None = ()

        def look() -> None:
            nonlocal seen
            try:
                there = plan.stat()
                now = there.st_mtime_ns, there.st_ino, there.st_size
            except OSError:
                now = None
            if now == seen:
                return
            seen = now
            try:
                self.apply(read_placement(plan).lanes(self.gateway.site, names))
            except PlacementError as error:
                self.refuse(str(error))
        while not self._closing.is_set():
            steady.do(look, None)
            self._closing.wait(LOOK)

    def apply(self, lanes: Sequence[Sequence[int]]) -> None:
        """
        Load another plan in the background, and go over to it once all of it is loaded.

        Executors stay whose services are those of one of the new plan.  A plan that cannot be
        loaded, or that another one follows first, changes nothing.
        """
        wanted = Counter(map(frozenset, self._real_and_emulated(lanes)))
        with self._lock:
            self._drop('another plan came')
            if self._closing.is_set():
                return
            self._leaving = []
            for lane in self._lanes.values():
                if lane.leaves:
                    continue
                if wanted[frozenset(lane.services)] > 0 \
                        and not self.gateway.lacks(lane.number):
                    wanted[frozenset(lane.services)] -= 1
                else:
                    self._leaving.append(lane)
            for services in wanted.elements():
                number = self.gateway.numbers.take()
                lane = self._lanes[number] = _Lane(self, number, tuple(sorted(services)))
                self._coming.append(lane)
            self.gateway.plan = {'state': 'loading', 'why': ''}
            try:
                for lane in list(self._coming):
                    self._start(lane)
            except OSError as error:
                self.refuse(f'its executors cannot be started: {error}')
                return
            self._switch()

    def refuse(self, why: str) -> None:
        """Say why another plan is not loaded."""
        with self._lock:
            self._drop(why)
            self.gateway.plan = {'state': 'not used', 'why': why}
        _LOG.error('the new plan is not used: %s', why)

    def _switch(self) -> None:
        """Go over to the new plan, if all of it is loaded."""
        for lane in self._coming:
            if len(lane.found) < len(lane.services):
                return
            for number, found in lane.found.items():
                known = self.gateway.specs(name := self._services[number].name)
                if known and not known.same(found):
                    self.refuse(f'{name}: {OTHER_MODEL}; start the site anew')
                    return
        coming = [Coming(lane.number, lane.executor, dict(lane.found)) for lane in self._coming
                  if lane.executor]
        leaving, self._coming, self._leaving = self._leaving, [], []
        for lane in leaving:
            lane.leaves = True
        self.gateway.plan = {'state': 'used', 'why': ''}
        if coming or leaving:
            _LOG.info('another plan is used: %d executors come, %d leave', len(coming),
                      len(leaving))
        self.gateway.changed(coming, {lane.number: partial(self._over, lane) for lane in leaving})

    def _drop(self, why: str) -> None:
        """Give up a plan that is being loaded."""
        coming, self._coming = self._coming, []
        if coming:
            _LOG.warning('the plan that was being loaded is given up: %s', why)
        for lane in coming:
            lane.leaves = True
            self._over(lane)

    def _over(self, lane: _Lane) -> None:
        """End an executor that has left; its number is free once its process has ended."""
        def end() -> None:
            with self._lock:
                executor = lane.executor
            if executor is not None:
                executor.close()
            with self._lock:
                self._lanes.pop(lane.number, None)
                self.gateway.numbers.give(lane.number)
                self._ends.discard(threading.current_thread())
        thread = threading.Thread(target=end, name=f'end of executor {lane.number}')
        with self._lock:
            self._ends.add(thread)
        thread.start()

    # ---- what executors say ----

    def opened(self, lane: _Lane, service: int, found: Opened) -> None:
        """Hear that a service is ready."""
        name = self._services[service].name
        sizes = ', '.join(f'{b}: {1e3 * seconds:.1f}'
                          for b, seconds in zip(found.sizes, found.seconds))
        _LOG.info('%s is ready on executor %d; ms by rows of a batch: %s%s', name, lane.number,
                  sizes, f'; no larger ones: {found.why}' if found.why else '')
        with self._lock:
            if lane.leaves:
                return
            lane.deaths = 0
            lane.found[service] = found
            if lane in self._coming:
                self._switch()
                return
        self.gateway.opened(lane.number, service, found)

    def failed(self, lane: _Lane, service: int, why: str) -> None:
        """Hear that a service cannot be loaded."""
        with self._lock:
            if lane in self._coming:
                self.refuse(f'{self._services[service].name} cannot be loaded: {why}')
                return
        if not lane.leaves:
            self.gateway.failed(lane.number, service, why)

    def lost(self, lane: _Lane, why: str, which: Executor) -> None:
        """Hear that an executor is gone; another takes its place, if that has not happened."""
        with self._lock:
            if self._closing.is_set() or lane.executor is not which:
                return
            lane.executor = None
            if lane in self._coming:
                self.refuse(f'the process of executor {lane.number} {why}')
                return
        self.gateway.lost(lane.number, why, which)
        if lane.leaves:
            return
        for service in set(lane.services) - set(lane.found):
            self.gateway.failed(lane.number, service, f'its process {why}')
        self._start_later(lane, why)

    def _start_later(self, lane: _Lane, why: str) -> None:
        wait = min(MOST_WAIT, FIRST_WAIT * 2 ** lane.deaths)
        lane.deaths += 1
        _LOG.error('executor %d %s; another is started in %.1f s', lane.number, why, wait)

        def start() -> None:
            try:
                self._start(lane)
            except OSError as error:  # such as of too many processes
                self._start_later(lane, f'cannot be started: {error}')
        timer = threading.Timer(wait, start)
        timer.daemon = True
        timer.start()

    def _start(self, lane: _Lane) -> None:
        services = {k: self._services[k] for k in lane.services}
        settings, number = self._settings, lane.number
        with self._lock:
            if self._closing.is_set() or lane.leaves:
                return
            # a service may be opened before joined() returns: nothing starts before that
            executor: Executor
            if all(service.seconds for service in services.values()):
                executor = EmulatedExecutor(number, services, lane)
            elif self._cluster is not None:
                executor = self._cluster.RayExecutor(
                    number, services, lane, site=self.gateway.site, threads=settings.threads,
                    device=settings.device)
            else:
                log = settings.logs / f'executor{number}.log' if settings.logs else None
                executor = ProcessExecutor(number, services, lane, threads=settings.threads,
                                           device=settings.device, log=log)
            lane.found.clear()
            lane.executor = executor
            if lane not in self._coming:
                self.gateway.joined(number, executor)
