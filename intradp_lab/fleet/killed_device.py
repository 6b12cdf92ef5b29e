# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A device killed with -9 and back, then a burst on the air: real processes over DDS.

Device nodes, a coordinator and an asker run a plan on frames of the video
with real computation; every answer is compared with the unsplit model's.
"""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
import json
import os
from pathlib import Path
import time

from intradp_lab.emulation.fleet_network import fleet_network, FleetNetwork
from intradp_lab.emulation.network import available
from intradp_lab.emulation.processes import Child
from intradp_lab.fleet.asking import SeenAnswer
from intradp_lab.fleet.fleet_figures import without_pipeline
from intradp_lab.fleet.fleet_scene import AIR, FleetScene, WIRED
from intradp_lab.fleet.node_fleet import NodeFleet, running, RunningFleet
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.graph.serialise import save_graph
from intradp_ros.schedule.stage_cuts import plan_without
from intradp_ros.schedule.stage_plan import StagePlan

#: Seconds between two frames, of which half the air still carries as many, and of quiet
#: before and after each fault.
INTERVAL, CALM = 0.25, 3.0


@dataclass(frozen=True)
class KilledDevice:
    """
    What a fleet answered while a device was killed, came back, and the air was halved.

    `recovered` is the longest time without a frame by the fleet after the
    kill (s); `network` says what carried it, `burst` the seconds of half the
    air, 0 where the network is not emulated.
    """

    device: str
    seen: tuple[SeenAnswer, ...]
    recovered: float
    network: str
    burst: float


def kill_and_return(scene: FleetScene, plan: StagePlan, folder: Path) -> KilledDevice | None:
    """
    Run a plan as nodes, kill a device of it and start it again; None if only the asker computes.

    :raises ChildError: if a process fails, or a new plan does not come.
    :raises NetworkError: if the system refuses namespaces after all.
    """
    victim = next((name for name in plan.devices if name != plan.source), None)
    if victim is None:
        return None
    with _network(scene) as (network, environment), \
            running(_fleet(scene, plan, folder, network, environment)) as run:
        asker, begin = run.asker(interval=INTERVAL, frames=1 << 20, video=True), time.monotonic()
        run.wait_for_plan(asker, ', '.join(plan.devices))
        time.sleep(CALM)
        killed = time.monotonic() - begin
        _kill(run, asker, plan, victim)
        time.sleep(CALM)
        back = time.monotonic() - begin
        burst = _burst(network, scene)
        seen = run.stop_asking(asker)
    carried = 'DDS between network namespaces behind one access point, emulated' if network \
        else f'DDS on the loopback; the access point is not emulated: {available()}'
    return KilledDevice(victim, tuple(seen), without_pipeline(seen, killed, back), carried, burst)


def _fleet(scene: FleetScene, plan: StagePlan, folder: Path, network: FleetNetwork | None,
           environment: Mapping[str, str]) -> NodeFleet:
    folder.mkdir()
    save_graph(scene.model.split.captured, folder / 'model.graph')
    write_atomically(folder / 'plan.json', json.dumps(plan.to_json()))
    return NodeFleet(
        str(folder / 'model.graph'), plan.source,
        {d.name: d.speed for d in scene.topology.devices}, folder,
        plan=str(folder / 'plan.json'), network=network, environment=environment)


@contextmanager
def _network(scene: FleetScene) -> Iterator[tuple[FleetNetwork | None, Mapping[str, str]]]:
    """Set up the access point; where that needs root and there is none, use the loopback."""
    if available():
        yield None, {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
                     'ROS_DOMAIN_ID': str(os.getpid() % 100 + 1), **transport_environment('air')}
        return
    with fleet_network(scene.topology.names, _mbit(scene), WIRED) as network:
        yield network, {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', **transport_environment('air')}


def _kill(run: RunningFleet, asker: Child, plan: StagePlan, victim: str) -> None:
    """Kill a device, wait for a plan without it, start it again and wait for the plan."""
    left = frozenset(run.fleet.speeds) - {victim}
    mark = len(asker.output())
    run.children[victim].kill()
    run.wait_for_plan(asker, ', '.join(plan_without(plan, left).devices), mark)
    time.sleep(CALM)
    mark = len(asker.output())
    run.start_device(victim)
    run.wait_for_plan(asker, ', '.join(plan.devices), mark)


def _burst(network: FleetNetwork | None, scene: FleetScene) -> float:
    """Halve the air for a while; return for how long (s)."""
    if network is None:
        return 0.0
    network.set_rate(_mbit(scene) / 2)
    time.sleep(CALM)
    network.set_rate(_mbit(scene))
    time.sleep(CALM / 2)
    return CALM


def _mbit(scene: FleetScene) -> float:
    return scene.topology.medium(AIR).bytes_per_second / 125e3
