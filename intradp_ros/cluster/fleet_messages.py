# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What devices and coordinators of a fleet send each other about who is there and which plan holds.

Plain data; a transport carries them.  A message may be lost, come twice, or
come late: nothing here depends on it.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from intradp_ros.cluster.plan_id import NO_PLAN, PlanId


@dataclass(frozen=True, slots=True)
class LinkMeasurement:
    """What a device measured of its path to another: bytes per second and seconds one way."""

    bytes_per_second: float
    delay: float


@dataclass(frozen=True)
class Heartbeat:
    """
    A device is there, and how it is; sent every 0.2 s.

    `incarnation` is drawn anew when the process starts; `sequence` counts its
    heartbeats, so that a late one is known.  `load` is the share
    of its processor in use, `free_memory` bytes, `battery` the share that is
    left (None: no battery).  `term` is the highest that it has heard of;
    `held` are the plans that it could run, `committed` the one that it does.
    `answers` are the latencies (s) of what it asked for and got since the last
    heartbeat, infinite without results.  `tags` are the newest of the state that it
    keeps, by name.  `speed` is how many times as fast as the profile it computes (0: not said);
    `computes` what it computes with, as planners call it.
    """

    device: str
    incarnation: int
    sequence: int
    load: float = 0.0
    free_memory: float = 0.0
    battery: float | None = None
    links: Mapping[str, LinkMeasurement] = field(default_factory=dict)
    term: int = 0
    committed: PlanId = NO_PLAN
    held: frozenset[PlanId] = frozenset()
    answers: tuple[float, ...] = ()
    tags: Mapping[str, int] = field(default_factory=dict)
    speed: float = 0.0
    computes: str = ''


@dataclass(frozen=True, slots=True)
class Goodbye:
    """A device leaves."""

    device: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A candidate coordinates the fleet in this term; sent again while it does."""

    name: str
    priority: int
    term: int


@dataclass(frozen=True, slots=True)
class Resign:
    """A candidate does not coordinate any more."""

    name: str
    term: int


@dataclass(frozen=True, slots=True)
class Prepare:
    """Get ready for a plan, in the background."""

    id: PlanId  # noqa: A003
    plan: Any


@dataclass(frozen=True, slots=True)
class Commit:
    """Use a plan from a boundary (frame, token, round) on."""

    id: PlanId  # noqa: A003
    boundary: int = 0


@dataclass(frozen=True, slots=True)
class Abort:
    """Forget a plan that was being prepared."""

    id: PlanId  # noqa: A003


@dataclass(frozen=True, slots=True)
class Ready:
    """A device could run a plan now."""

    device: str
    id: PlanId  # noqa: A003


@dataclass(frozen=True, slots=True)
class Committed:
    """A device runs a plan."""

    device: str
    id: PlanId  # noqa: A003


@dataclass(frozen=True, slots=True)
class Refused:
    """
    A device does not take a plan; `term` is the highest that it has heard of.

    It is `unable` where it tried and could not: such a device rests before it is asked again.
    """

    device: str
    id: PlanId  # noqa: A003
    reason: str
    term: int
    unable: bool = False


Order = Prepare | Commit | Abort
Reply = Ready | Committed | Refused


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to a peer; to everyone where `target` is empty."""

    target: str
    message: Claim | Resign | Order | Reply
