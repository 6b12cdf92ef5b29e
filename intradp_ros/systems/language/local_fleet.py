# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A language model over devices of this process: on threads, joined by a network in memory."""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import queue
import time
from types import MappingProxyType, TracebackType
from typing import Any

from torch import Tensor

from intradp_ros.blobs.store import BlobStore
from intradp_ros.cluster.coordinator import CoordinatorTimes
from intradp_ros.runtime.member.fleet_coordinator import FleetCoordinator
from intradp_ros.runtime.member.fleet_member import FleetMember
from intradp_ros.runtime.member.heartbeats import Condition
from intradp_ros.runtime.member.planner import Planner
from intradp_ros.runtime.member.role import Host
from intradp_ros.runtime.requests.admission import Fate
from intradp_ros.runtime.requests.text_requests import Piece, TextEnd
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.runtime.weights.exchange import WeightPolicy
from intradp_ros.split.kernel_device import KernelDevice
from intradp_ros.systems.language.costs import LanguageCosts
from intradp_ros.systems.language.head import Head
from intradp_ros.systems.language.role import LanguageOptions, LanguageRole

COORDINATOR = 'coordinator'
_POLL = 0.005


class Answering:
    """A request in flight: its tokens as they come, and its end."""

    def __init__(self) -> None:
        self.tokens: list[int] = []
        self.pieces: queue.SimpleQueue[Piece | TextEnd] = queue.SimpleQueue()
        self.text = ''
        self.ended: TextEnd | None = None
        self.cancel: Callable[[Fate], None] = lambda fate: None

    def heard(self, item: Piece | TextEnd) -> None:
        """Take what the head says."""
        if isinstance(item, Piece):
            self.tokens += item.tokens
            self.text += item.text
        else:
            self.ended = item
        self.pieces.put(item)

    def wait(self, timeout: float) -> TextEnd:
        """Return the end; TimeoutError if it does not come."""
        end = time.monotonic() + timeout
        while self.ended is None:
            if time.monotonic() > end:
                raise TimeoutError(f'{len(self.tokens)} tokens after {timeout:g} s')
            time.sleep(_POLL)
        return self.ended


class LocalLanguage:
    """
    Devices of the costs' topology, each with the role of segments, and a coordinator.

    `stores` are the blobs of each device; one that is missing has those of the head.  Some devices
    compute on others than `options` say.
    """

    def __init__(self, costs: LanguageCosts, head: str, planner: Planner,
                 stores: Mapping[str, BlobStore], options: LanguageOptions = LanguageOptions(), *,
                 times: CoordinatorTimes = CoordinatorTimes(),
                 computes_on: Mapping[str, KernelDevice] = MappingProxyType({})) -> None:
        self.costs, self.head_name = costs, head
        self.network = MemoryNetwork(costs.topology)
        self._options = replace(options, names={
            costs.manifest.digest: costs.manifest.name, **options.names})
        self._stores, self._times = stores, times
        self._computes_on = computes_on
        self.roles: dict[str, LanguageRole] = {}
        self.memory: dict[str, float] = {}  # bytes for plans that a device has now; 0: no limit
        self.coordinator = FleetCoordinator(self.network.join(COORDINATOR), planner,
                                            lambda text: None, times=times, gathering=5.0)
        self.devices = {name: self._device(name) for name in costs.topology.names}
        self.coordinator.expect(costs.topology.names)

    def __enter__(self) -> LocalLanguage:
        """Use as a context that closes all."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        """Close all."""
        self.coordinator.close()
        for device in self.devices.values():
            device.close()
        self.network.close()

    @property
    def head(self) -> Head:
        """The head; RuntimeError without a plan."""
        found = self.roles[self.head_name].head
        if found is None:
            raise RuntimeError('no plan is in use')
        return found

    def wait_ready(self, timeout: float = 60.0) -> None:
        """Wait until a plan is in use; TimeoutError if none is in time."""
        end = time.monotonic() + timeout
        while self.coordinator.plan is None or self.roles[self.head_name].head is None:
            if time.monotonic() > end:
                raise TimeoutError('no plan is in use')
            time.sleep(_POLL)

    def ask(self, tokens: Sequence[int], count: int, logits: list[Tensor] | None = None,
            **how: Any) -> Answering:
        """Ask for tokens after a prompt."""
        answering = Answering()
        answering.cancel = self.head.submit_tokens(tokens, answering.heard, count, logits=logits,
                                                   **how)
        return answering

    def kill(self, name: str) -> None:
        """Let a device vanish with all that it holds."""
        self.network.cut(name)
        self.devices.pop(name).close()

    def _device(self, name: str) -> FleetMember:
        store = self._stores.get(name) or self._stores[self.head_name]

        def role(host: Host) -> LanguageRole:
            options = replace(self._options, device=self._computes_on.get(
                name, self._options.device))
            made = self.roles[name] = LanguageRole(host, store, options)
            return made

        self.memory.setdefault(name, 0.0)
        return FleetMember(self.network.channel(name), (role,), lambda text: None,
                           coordinators=(COORDINATOR,), heartbeat=self._times.members.heartbeat,
                           condition=lambda: Condition(self.memory[name]),
                           weights=WeightPolicy(store=store))
