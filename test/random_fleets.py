# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Random models and fleets, small enough to try every placement of."""
from __future__ import annotations

from dataclasses import replace

import numpy as np

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, ring, Topology
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.planning.quality import Quality
from intradp_ros.power.power_states import PowerStates


def random_model(rng: np.random.Generator, nodes: int, chain: bool = False) -> PlanningModel:
    parts = tuple(Node(f'n{k}', float(rng.uniform(0.5, 5) * 1e-2),
                       float(rng.choice([0, rng.uniform(0.1, 8)]) * 1e6),
                       float(rng.uniform(0.05, 1) * 1e6)) for k in range(nodes))
    readers: list[list[int]] = [[] for _ in range(nodes)]
    for k in range(1, nodes):
        reads = {k - 1} if chain else set(
            rng.choice(k, size=min(k, int(rng.integers(1, 3))), replace=False).tolist())
        for maker in reads:
            readers[maker].append(k)
    flows = [Flow(SOURCE, (0,), float(rng.uniform(0.05, 2) * 1e6))]
    flows += [Flow(k, tuple(r) or (SOURCE,), float(np.exp(rng.uniform(-4, 1)) * 1e6))
              for k, r in enumerate(readers)]
    return PlanningModel('random', parts, tuple(flows))


def random_power(rng: np.random.Generator) -> PowerStates:
    send, compute = sorted(rng.uniform(1, 20, 2))
    return PowerStates(compute, send, 0.5, 'random')


def random_topology(rng: np.random.Generator, devices: int) -> Topology:
    machines = [Device(f'd{k}', float('inf'), float(np.exp(rng.uniform(-1.5, 1.5))),
                       power=random_power(rng)) for k in range(devices)]
    rate = float(np.exp(rng.uniform(0, 4)) * 1e6)
    if rng.random() < 0.5:
        return behind_access_point(machines, rate, 1e-3, wired=['d1'])
    return ring(machines, rate, 1e-3)


def random_case(rng: np.random.Generator, nodes: int, devices: int = 3,
                samples: int = 1) -> FleetCosts:
    model = random_model(rng, nodes, chain=bool(rng.random() < 0.5))
    topology = random_topology(rng, devices)
    total = model.weight_bytes
    room = tuple(replace(d, memory_bytes=float(rng.uniform(0.3, 1.5) * total + 2e6 * samples))
                 for d in topology.devices)
    topology = Topology(room, topology.media, topology.paths)
    alone = sum(n.seconds for n in model.nodes)
    quality = Quality(latency=float(alone * rng.uniform(0.2, 2)),
                      rate=float(rng.choice([0, rng.uniform(0.5, 3) / alone])),
                      weight=float(rng.choice([0.3, 1, 100])),
                      energy={'d0': float(rng.uniform(5, 80) * alone)})
    if rng.random() < 0.3:
        quality = Quality(energy=quality.energy)
    return FleetCosts(model, topology, 'd0', quality, samples)
