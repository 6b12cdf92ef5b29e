# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a model costs on a fleet, as tables: the one source of figures of the partitioner."""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.cluster.topology import Path, Topology
from intradp_ros.planning.planning_model import Flow, PlanningModel, SOURCE
from intradp_ros.planning.quality import Quality
from intradp_ros.planning.shares import replica_groups
from intradp_ros.power.power_states import PowerStates

Numbers = npt.NDArray[np.float64]

#: A device of which no power is known counts no joules.
NO_POWER = PowerStates(0.0, 0.0, 0.0, 'unknown')


@dataclass(frozen=True)
class FleetCosts:
    """
    Tables over nodes, groups (shares of a micro-batch) and devices.

    `source` is the device that has the inputs and takes the outputs;
    `samples` is the size of a micro-batch, `batches` the number of them in a
    round, which follow each other without end, or at the rate of the target
    where there is one.  `contended` says whether media
    are shared, as they are; without it every pair of devices has its peak
    rate for itself, as in Dora's phase 1 and in other planners.

    :raises ValueError: if the source is not a device of the topology, or a count is below 1.
    """

    model: PlanningModel
    topology: Topology
    source: str
    quality: Quality = field(default_factory=Quality)
    samples: int = 1
    batches: int = 1
    contended: bool = True

    def __post_init__(self) -> None:
        """Check the source and the samples."""
        self.topology.device(self.source)
        if self.samples < 1 or self.batches < 1:
            raise ValueError('a round has 1 micro-batch or more, of 1 sample or more, got '
                             f'{self.batches} of {self.samples}')

    @cached_property
    def home(self) -> int:
        """Index of the source, and of the group that is the source alone."""
        return self.topology.names.index(self.source)

    @cached_property
    def groups(self) -> npt.NDArray[np.int64]:
        """Shares of samples by device, shape (groups, devices); group d is device d alone."""
        speeds = [1 / max(float(self.model.seconds(device, 1).sum()), 1e-12)
                  for device in self.topology.devices]
        return replica_groups(speeds, self.samples)

    @cached_property
    def seconds(self) -> Numbers:
        """Seconds of each node for each group on each device, shape (nodes, groups, devices)."""
        table = np.zeros((len(self.model.nodes), *self.groups.shape))
        for d, device in enumerate(self.topology.devices):
            for share in np.unique(self.groups[:, d]):
                if share:
                    of = self.groups[:, d] == share
                    table[:, of, d] = self.model.seconds(device, int(share))[:, None]
        return table

    @cached_property
    def flow_bytes(self) -> tuple[float, ...]:
        """Bytes of each flow of a sample."""
        return tuple(flow.nbytes for flow in self.model.flows)

    @cached_property
    def weight_bytes(self) -> Numbers:
        """Bytes that the weights of each node hold."""
        return np.array([node.weight_bytes for node in self.model.nodes])

    @cached_property
    def moving(self) -> Numbers:
        """Samples that go between devices, or stay, shape (groups, groups, devices, devices)."""
        count, devices = self.groups.shape
        places = np.array([np.repeat(np.arange(devices), shares) for shares in self.groups])
        table = np.zeros((count, count, devices, devices))
        a, b = np.divmod(np.arange(count * count), count)
        for sample in range(self.samples):
            table[a, b, places[a, sample], places[b, sample]] += 1
        return table

    @cached_property
    def crossing(self) -> Numbers:
        """Samples that leave a device for another, shape (groups, groups, pairs)."""
        leaving = self.moving * ~np.eye(self.groups.shape[1], dtype=bool)
        return leaving.reshape(*leaving.shape[:2], -1)

    def travel(self, nbytes: float) -> Numbers:
        """
        Return seconds in which a value of so many bytes goes from group to group.

        Shape (groups, groups, devices, devices); -inf between devices that no
        sample goes between, so that it is never the latest.
        """
        if nbytes not in self._travel:
            goes = self.moving > 0
            with np.errstate(invalid='ignore'):
                taken = np.where(np.isfinite(self.per_byte),  # not even 0 bytes go no way
                                 self.moving * nbytes * self.per_byte + self.delay, np.inf)
                self._travel[nbytes] = np.where(goes, taken, -np.inf)
        return self._travel[nbytes]

    @cached_property
    def _travel(self) -> dict[float, Numbers]:
        return {}

    @cached_property
    def per_byte(self) -> Numbers:
        """Seconds for a byte between two devices alone, infinite where nothing joins them."""
        return self._pairs(lambda path: max((
            times / self.topology.medium(name).bytes_per_second
            for name, times in Counter(path).items()), default=0.0))

    @cached_property
    def delay(self) -> Numbers:
        """Seconds in addition to those of the bytes, shape (devices, devices)."""
        return self._pairs(lambda path: sum(self.topology.medium(name).delay for name in path))

    def _pairs(self, of_path: Callable[[Path], float]) -> Numbers:
        names = self.topology.names
        table = np.full((len(names), len(names)), math.inf)
        np.fill_diagonal(table, 0.0)
        for (a, one), (b, other) in product(enumerate(names), repeat=2):
            if a != b and (one, other) in self.topology.paths:
                table[a, b] = of_path(self.topology.path(one, other))
        return table

    @cached_property
    def media_seconds(self) -> Numbers:
        """Seconds that a byte between two devices takes of each medium, (pairs, media)."""
        names = self.topology.names
        media = {medium.name: k for k, medium in enumerate(self.topology.media)}
        table = np.zeros((len(names) ** 2, len(media)))
        for (one, other), path in self.topology.paths.items():
            pair = names.index(one) * len(names) + names.index(other)
            for name in path:
                rate = self.topology.medium(name).bytes_per_second
                table[pair, media[name]] += 1 / rate
        return table

    @cached_property
    def pair_seconds(self) -> Numbers:
        """Seconds for a byte between each two devices alone; 0 where it cannot go, (pairs,)."""
        return np.where(np.isfinite(self.per_byte), self.per_byte, 0.0).ravel()

    @cached_property
    def sending(self) -> Numbers:
        """Seconds that a byte between two devices takes of each as a sender, (pairs, devices)."""
        devices = len(self.topology.devices)
        return self.pair_seconds[:, None] * np.repeat(np.eye(devices), devices, axis=0)

    @cached_property
    def receiving(self) -> Numbers:
        """Seconds that it takes of each device as a receiver, (pairs, devices)."""
        devices = len(self.topology.devices)
        return self.pair_seconds[:, None] * np.tile(np.eye(devices), (devices, 1))

    @cached_property
    def watts(self) -> Numbers:
        """Power idle and beyond it for computing, sending and receiving, shape (4, devices)."""
        states = [device.power or NO_POWER for device in self.topology.devices]
        return np.array([(p.idle, p.compute - p.idle, p.send - p.idle,
                          (p.send if p.receive is None else p.receive) - p.idle)
                         for p in states]).T

    @cached_property
    def memory_limits(self) -> Numbers:
        """Bytes that plans may take of each device."""
        own = self.quality.memory
        return np.array([min(d.memory_bytes, own.get(d.name, math.inf))
                         for d in self.topology.devices])

    @cached_property
    def energy_limits(self) -> Numbers:
        """Joules that an inference may take of each device."""
        return np.array([self.quality.energy.get(d.name, math.inf)
                         for d in self.topology.devices])

    @cached_property
    def read(self) -> tuple[tuple[tuple[int, Flow], ...], ...]:
        """The flows that each node reads, with their numbers."""
        found: list[list[tuple[int, Flow]]] = [[] for _ in self.model.nodes]
        for number, flow in enumerate(self.model.flows):
            for reader in flow.readers:
                if reader != SOURCE:
                    found[reader].append((number, flow))
        return tuple(map(tuple, found))

    @cached_property
    def returned(self) -> tuple[tuple[tuple[int, Flow], ...], ...]:
        """The flows that each node makes for the source, with their numbers."""
        found: list[list[tuple[int, Flow]]] = [[] for _ in self.model.nodes]
        for number, flow in enumerate(self.model.flows):
            if SOURCE in flow.readers and flow.maker != SOURCE:
                found[flow.maker].append((number, flow))
        return tuple(map(tuple, found))
