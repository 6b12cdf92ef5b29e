# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The figures of one placement, written another way: sample by sample, without tables."""
from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from intradp_ros.planning.fleet_costs import FleetCosts, NO_POWER
from intradp_ros.planning.planning_model import SOURCE


@dataclass
class Figures:
    latency: float
    period: float
    joules: dict[str, float]
    memory: dict[str, float]


def slow_estimate(costs: FleetCosts, placement: Sequence[int]) -> Figures:
    topology, model = costs.topology, costs.model
    names = topology.names
    routes = [[name for name, share in zip(names, costs.groups[g]) for _ in range(share)]
              for g in placement]

    def route(node: int) -> list[str]:
        return [costs.source] * costs.samples if node == SOURCE else routes[node]

    free: dict[str, float] = defaultdict(float)
    busy: dict[str, float] = defaultdict(float)
    end: dict[tuple[int, str], float] = {(SOURCE, costs.source): 0.0}
    carried: dict[tuple[int, str, str], set[int]] = defaultdict(set)
    weights: dict[str, float] = defaultdict(float)
    working: dict[str, float] = defaultdict(float)

    def arrival(number: int, reader: int, device: str) -> float:
        flow, latest = model.flows[number], 0.0
        froms = Counter(a for a, b in zip(route(flow.maker), route(reader)) if b == device)
        for sample, (a, b) in enumerate(zip(route(flow.maker), route(reader))):
            if a != b and b == device:
                carried[number, a, b].add(sample)
        for origin, count in froms.items():
            path = topology.path(origin, device)
            slowest = max((times / topology.medium(m).bytes_per_second
                           for m, times in Counter(path).items()), default=0)
            latest = max(latest, end[flow.maker, origin] + count * flow.nbytes * slowest
                         + sum(topology.medium(m).delay for m in path))
        return latest

    for k, node in enumerate(model.nodes):
        for name, count in Counter(routes[k]).items():
            ready = max((arrival(f, k, name) for f, flow in enumerate(model.flows)
                         if k in flow.readers), default=0.0)
            taken = count * node.seconds / topology.device(name).speed
            free[name] = end[k, name] = max(free[name], ready) + taken
            busy[name] += taken
            weights[name] += node.weight_bytes
            working[name] = max(working[name], count * node.working_bytes)
    latency = max(free.values())
    for number, flow in enumerate(model.flows):
        if SOURCE in flow.readers:
            latency = max(latency, arrival(number, SOURCE, costs.source))
    media: dict[str, float] = defaultdict(float)
    sending: dict[str, float] = defaultdict(float)
    receiving: dict[str, float] = defaultdict(float)
    for (number, a, b), samples in carried.items():
        nbytes = len(samples) * model.flows[number].nbytes
        for medium in topology.path(a, b):
            media[medium] += nbytes / topology.medium(medium).bytes_per_second
        slowest = max(times / topology.medium(m).bytes_per_second
                      for m, times in Counter(topology.path(a, b)).items())
        sending[a] += nbytes * slowest
        receiving[b] += nbytes * slowest
    most = max(media.values(), default=0.0)
    latency, period = max(latency, most), max(most, *busy.values())
    waiting = costs.samples / costs.quality.rate if costs.quality.rate else latency
    joules = {}
    for device in topology.devices:
        power = device.power or NO_POWER
        takes_part = busy[device.name] > 0 or device.name == costs.source
        joules[device.name] = power.joules(
            waiting if takes_part else 0.0, busy[device.name], sending[device.name],
            receiving[device.name]) / costs.samples
    memory = {name: weights[name] + working[name] for name in names}
    return Figures(latency, period / costs.samples, joules, memory)
