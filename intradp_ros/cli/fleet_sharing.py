# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What `shared` takes where a fleet is one robot and one server, next to the fleet's plan."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from intradp_ros.cli.books import Grid, make_plan
from intradp_ros.cli.output import Output
from intradp_ros.cli.subject import Subject
from intradp_ros.cluster.topology import Topology
from intradp_ros.profiling.drift import slowed
from intradp_ros.profiling.profile import Profile
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.strategies import SHARED

_MBIT = 125e3


@dataclass(frozen=True, slots=True)
class SharedSeconds:
    """Seconds of an inference by `intradp plan`, and of its lower bound (modelled)."""

    latency: float
    bound: float


def shared_seconds(subject: Subject, profile: Profile, own: Mapping[str, Profile],
                   topology: Topology, source: str, out: Output) -> SharedSeconds | None:
    """
    Return what sharing rows of every layer takes; None unless two devices reach each other.

    Devices take the seconds of `profile` by their speed, or those of their `own`.
    """
    if len(topology.names) != 2 or len(topology.paths) != 2:
        return None
    [other] = set(topology.names) - {source}
    up, down = topology.path(source, other), topology.path(other, source)
    profiles = {side: own.get(name) or slowed(profile, 1 / topology.device(name).speed)
                for side, name in ((ROBOT, source), (SERVER, other))}
    rate = topology.rate(source, other)
    mbps = rate / _MBIT
    plan = make_plan(
        subject, profiles, Grid(mbps, mbps, 1), out, delay=topology.delay(source, other),
        overhead=0.0, seed=0, shared_air=bool(set(up) & set(down)),
        down_ratio=topology.rate(other, source) / rate)
    return SharedSeconds(plan.entries(mbps)[SHARED].predicted, plan.book.bound(mbps) or 0.0)
