# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A plan's figures as device nodes over DDS, each in a namespace behind one access point."""
from __future__ import annotations

import json
from pathlib import Path

from intradp_ros.cluster.fleet_file import Fleet, Network
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.graph.serialise import save_graph
from intradp_ros.lab.emulation.fleet_network import fleet_network
from intradp_ros.lab.fleet.asking import SeenAnswer
from intradp_ros.lab.fleet.fleet_figures import measured_nodes, PipelineFigures
from intradp_ros.lab.fleet.node_fleet import NodeFleet, running
from intradp_ros.profiling.profile import Profile
from intradp_ros.runtime.model import SharedModel
from intradp_ros.schedule.stage_plan import StagePlan

TIMEOUT = 300.0
#: Seconds: a full link is no fault, and who asks for figures does not mend anything.
SILENCE = 10.0


def run_nodes(model: SharedModel, fleet: Fleet, plan: StagePlan, profile: Profile,
              folder: Path, *, alone: int, frames: int, under_way: int,
              ) -> tuple[PipelineFigures, list[float]]:
    """
    Return the figures of emulated devices, and the differences of real inferences.

    Raises
    ------
    ValueError
        If the fleet is not joined by one access point without a delay, or
        frames did not go through the pipeline.

    """
    air, devices = access_point(fleet), fleet.topology.devices
    archive, profile_file = folder / 'model.graph', folder / 'profile.json'
    save_graph(model.split.captured, archive)
    profile_file.write_text(profile.to_json())
    plan_file = folder / 'plan.json'
    plan_file.write_text(json.dumps(plan.to_json()))
    with fleet_network(fleet.topology.names, air.rate / 125e3, air.wired) as network:
        seen = [_ask(NodeFleet(
            str(archive), plan.source, {d.name: d.speed for d in devices},
            folder / name, plan=str(plan_file), profile=emulated, network=network,
            environment={'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET',
                         **transport_environment('udp')}),
            alone, frames, under_way) for name, emulated in (
                ('real', ''), ('emulated', str(profile_file)))]
    if alone_ones := [s.reason for found in seen for s in found if not s.pipelined]:
        raise ValueError(f'{len(alone_ones)} frames were not computed by the fleet: '
                         f'{alone_ones[0]}')
    return measured_nodes(seen[1], alone, under_way), [s.difference for s in seen[0]]


def access_point(fleet: Fleet) -> Network:
    """Return the one network of a fleet; ValueError unless it is an access point without delay."""
    if len(fleet.networks) != 1 or fleet.networks[0].kind != 'access point' \
            or fleet.networks[0].delay:
        raise ValueError('nodes run behind one access point without a delay; this fleet is joined '
                         'otherwise')
    return fleet.networks[0]


def _ask(fleet: NodeFleet, alone: int, frames: int, under_way: int) -> list[SeenAnswer]:
    fleet.folder.mkdir()
    with running(fleet) as run:
        asker = run.asker(alone=alone, frames=alone + frames, under_way=under_way,
                          silence=SILENCE)
        return run.answers(asker, TIMEOUT)
