# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Heartbeats: which one of which life of a process this is, and what a device says in it."""
from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
import secrets
import time

from intradp_ros.cluster.fleet_messages import Heartbeat, LinkMeasurement
from intradp_ros.cluster.plan_holder import PlanHolder
from intradp_ros.core.steady import Steady
from intradp_ros.runtime.member.role import Computes, Role

_INCARNATION_BITS = 62


@dataclass(frozen=True, slots=True)
class Condition:
    """
    How a machine is: bytes of memory that plans may use, the battery's share (or None), and speed.

    The speed is that by which plans are made, 0 where nothing is said.
    """

    free_memory: float = 0.0
    battery: float | None = None
    speed: float = 0.0


class Beats:
    """The heartbeats of one life of a process, counted."""

    def __init__(self) -> None:
        self.incarnation, self.count = secrets.randbits(_INCARNATION_BITS), 0
        self.last = time.monotonic()

    def beat(self, now: float) -> int:
        """Return the number of the next one."""
        self.last, self.count = now, self.count + 1
        return self.count


class Vitals:
    """How a device is, from its machine's `condition` and what its roles do meanwhile."""

    def __init__(self, condition: Callable[[], Condition]) -> None:
        self._condition, self._last = condition, Condition()
        self._beats, self._computed = Beats(), 0.0

    def heartbeat(self, name: str, held: PlanHolder, roles: Collection[Role],
                  links: Callable[[], Mapping[str, LinkMeasurement]], steady: Steady,
                  ) -> Heartbeat:
        """Say that a device is there, with what can be known of it just now."""
        known, now, before = steady.do, time.monotonic(), self._beats.last
        computed = sum(known(role.busy, 0.0) for role in roles)
        load = (computed - self._computed) / max(1e-9, now - before)
        self._computed = computed
        condition = self._last = known(self._condition, self._last)
        none: Mapping[str, tuple[int, ...]] = {}
        nothing: tuple[float, ...] = ()
        latencies = [seconds for role in roles for seconds in known(role.latencies, nothing)]
        computes = [known(role.computes, Computes()) for role in roles]
        tags = {name_: found[-1] for role in roles
                for name_, found in known(role.state.tags, none).items()}
        return Heartbeat(
            name, self._beats.incarnation, self._beats.beat(now), min(1.0, max(0.0, load)),
            condition.free_memory or max((each.memory for each in computes), default=0.0),
            condition.battery, known(links, {}), held.term, held.committed,
            frozenset(held.held), tuple(latencies), tags, condition.speed,
            next((each.arithmetic for each in computes if each.arithmetic), ''))
