# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A plan's figures as device nodes over DDS, in namespaces behind an access point or in a ring."""
from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
import json
import os
from pathlib import Path

from intradp_lab.emulation.device_limits import DeviceLimits, limited_devices
from intradp_lab.emulation.fleet_network import fleet_network, FleetNetwork
from intradp_lab.emulation.ring_network import ring_network, RingNetwork
from intradp_lab.fleet.asking import SeenAnswer
from intradp_lab.fleet.fleet_figures import measured_nodes, PipelineFigures
from intradp_lab.fleet.node_fleet import NodeFleet, running
from intradp_ros.cluster.fleet_file import Fleet, Network
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.graph.serialise import save_graph
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.models.model import SharedModel
from intradp_ros.schedule.stage_plan import StagePlan

TIMEOUT = 300.0
TRANSPORT = 'air'
#: Seconds: a full link is not a fault, and who asks for figures does not fix anything.
SILENCE = 10.0
#: Bytes that a node takes in addition to what plans count: the interpreter, torch and DDS.
NODE_BYTES = 800_000_000
RING = 'ring'


def run_nodes(model: SharedModel, fleet: Fleet, plan: StagePlan, profile: Profile,
              folder: Path, *, alone: int, frames: int, inflight: int, limited: bool = False,
              own: Mapping[str, Profile] | None = None,
              ) -> tuple[PipelineFigures, list[float]]:
    """
    Return the figures of emulated devices, and the differences of real inferences.

    A device of which `own` has a profile takes its times, others those of `profile` by their
    speed.  Devices that are `limited` have no more of this machine than `device_limits` says.

    :raises ValueError: if the fleet is not joined by one access point or ring without a delay, or
        frames did not go through the pipeline.
    """
    joined, devices = only_network(fleet), fleet.topology.devices
    archive = folder / 'model.graph'
    save_graph(model.split.captured, archive)
    times = device_times(fleet, profile, own or {}, folder)
    plan_file = folder / 'plan.json'
    write_atomically(plan_file, json.dumps(plan.to_json()))
    limits = device_limits(fleet) if limited else {}
    with _network(fleet, joined) as network, limited_devices(limits, folder) as groups:
        seen = [_ask(NodeFleet(
            str(archive), plan.source, {d.name: times[d.name][1] for d in devices},
            folder / name, plan=str(plan_file), profiles=emulated, network=network,
            groups=groups,
            environment={**network.discovery, **transport_environment(TRANSPORT)}),
            alone, frames, inflight) for name, emulated in (
                ('real', {}), ('emulated', {n: path for n, (path, _) in times.items()}))]
    if alone_ones := [s.reason for found in seen for s in found if not s.pipelined]:
        raise ValueError(f'{len(alone_ones)} frames were not computed by the fleet: '
                         f'{alone_ones[0]}')
    return measured_nodes(seen[1], alone, inflight), [s.difference for s in seen[0]]


def device_times(fleet: Fleet, profile: Profile, own: Mapping[str, Profile], folder: Path,
                 ) -> dict[str, tuple[str, float]]:
    """Write the profiles of a fleet; return of each device its file, and its speed."""
    found = {}
    for number, device in enumerate(fleet.topology.devices):
        path = folder / f'profile{number}.json'
        write_atomically(path, own.get(device.name, profile).to_json())
        found[device.name] = str(path), 1.0 if device.name in own else device.speed
    return found


def only_network(fleet: Fleet) -> Network:
    """Return what joins all of a fleet, ValueError unless namespaces can be joined so."""
    if len(fleet.networks) != 1 or fleet.networks[0].kind not in ('access point', RING) \
            or fleet.networks[0].delay:
        raise ValueError('nodes run behind one access point, or in one ring, without a delay; '
                         'this fleet is joined otherwise')
    return fleet.networks[0]


def device_limits(fleet: Fleet) -> Mapping[str, DeviceLimits]:
    """
    Return what the devices of a fleet may have of this machine.

    That is the memory of the file and what a node takes by itself, the disk's rate, and a
    part of the processor by speed, so that all have the machine together.
    """
    topology = fleet.topology
    speeds = sum(device.speed for device in topology.devices)
    most = os.sysconf('SC_PAGE_SIZE') * os.sysconf('SC_PHYS_PAGES')
    return {device.name: DeviceLimits(
        (os.cpu_count() or 1) * device.speed / speeds,
        int(min(most, device.memory_bytes + NODE_BYTES)),
        topology.medium(device.disk).bytes_per_second if device.disk else 0.0)
        for device in topology.devices}


def _network(fleet: Fleet, joined: Network,
             ) -> AbstractContextManager[FleetNetwork | RingNetwork]:
    if joined.kind == RING:
        return ring_network(joined.members, joined.rate / 125e3)
    return fleet_network(fleet.topology.names, joined.rate / 125e3, joined.wired)


def _ask(fleet: NodeFleet, alone: int, frames: int, inflight: int) -> list[SeenAnswer]:
    fleet.folder.mkdir()
    with running(fleet) as run:
        asker = run.asker(alone=alone, frames=alone + frames, inflight=inflight,
                          silence=SILENCE)
        return run.answers(asker, TIMEOUT)
