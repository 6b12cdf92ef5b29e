# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans for a fleet beside those of other planners, in the paper's four settings (modelled).

Devices are imagined: their ratios of speed are those of Dora's Fig. 1b where
it has them, else declared here; memory and rates are the paper's.  Models are
transformers of the paper's sizes: layers with the work and weights of their
shape, for sequences of 128 tokens; a round has 8 micro-batches.  Only ratios
mean something.  Then seconds of planning by nodes and devices.
"""
from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
import json
from pathlib import Path
import time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, ring, Topology
from intradp_ros.profiling.profile import PowerStates
from intradp_ros.systems.fleet.estimate import estimate
from intradp_ros.systems.fleet.fleet_costs import FleetCosts
from intradp_ros.systems.fleet.partitioner import partition
from intradp_ros.systems.fleet.planner import FleetPlan, plan_fleet
from intradp_ros.systems.fleet.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.systems.fleet.quality import Quality

#: Memory (GB), operations per second (ratios of Fig. 1b; Genio declared), watts busy and idle.
KINDS = {
    '4060ti': (8, 1.13e12, 160, 15), '4050': (6, 1.0e12, 95, 10), 'Mi15': (12, 0.85e12, 9, 1),
    'S25': (12, 0.9e12, 8, 1), 'Genio720': (16, 0.3e12, 10, 2), 'Genio520': (16, 0.2e12, 8, 2),
    'A40': (16, 2.83e12, 300, 30), 'V100': (16, 1.55e12, 250, 30)}
SETTINGS = {
    'smart home 1': ('4050 4050 4050 4060ti 4060ti', 'air', 900e6),
    'smart home 2': ('S25 Mi15 Mi15 4050 4050', 'air', 600e6),
    'traffic monitor': ('Genio720 Genio720 Genio520 Genio520', 'ring', 200e6),
    'edge cluster': ('A40 A40 V100 V100', 'ring', 4e9)}
#: Layers, width, feed-forward width, vocabulary.
MODELS = {'BERT 0.1B': (12, 768, 3072, 30522), 'Qwen 0.6B': (28, 1024, 3072, 151936),
          'Qwen 1.7B': (28, 2048, 6144, 151936)}
TOKENS, BATCHES = 128, 8


@dataclass(frozen=True)
class Row:
    """What one setting and model came to."""

    setting: str
    model: str
    planning_seconds: float
    latency: float
    gain: float
    best_other: str
    contention_loss: float
    energy_saved: float


def transformer(name: str) -> PlanningModel:
    """Return attention and feed-forward of every layer as nodes, for one sequence, two bytes."""
    layers, width, inner, words = MODELS[name]
    nodes = [_node('embedding', 0.0, words * width)]
    for k in range(layers):
        nodes += [_node(f'attention {k}', 1.0, 4 * width * width),
                  _node(f'forward {k}', 1.0, 3 * width * inner)]
    ends = [*range(1, len(nodes)), SOURCE]
    flows = [Flow(SOURCE, (0,), 8.0 * TOKENS)]
    flows += [Flow(k, (end,), 2.0 * TOKENS * width) for k, end in enumerate(ends)]
    return PlanningModel(name, tuple(nodes), tuple(flows))


def _node(name: str, share: float, weights: int) -> Node:
    return Node(name, share * 2 * weights * TOKENS, 2.0 * weights, 2e7)


def fleet(setting: str) -> Topology:
    """Return the devices and media of a setting."""
    kinds, joined, rate = SETTINGS[setting]
    devices = []
    for k, kind in enumerate(kinds.split()):
        gigabytes, speed, busy, idle = KINDS[kind]
        devices.append(Device(f'{kind}.{k}', 1e9 * gigabytes, speed,
                              power=PowerStates(busy, 1.2 * idle, idle, 'declared')))
    return (behind_access_point if joined == 'air' else ring)(devices, rate / 8, 1e-3)


def measure(setting: str, name: str) -> Row:
    """Plan for speed, then for energy at the target that the paper takes."""
    topology = fleet(setting)
    costs = FleetCosts(transformer(name), topology, topology.names[0], batches=BATCHES)
    begun = time.process_time()
    plans = plan_fleet(costs)
    seconds = time.process_time() - begun
    rivals = {k: p for k, p in plans.others.items() if p is not None and k != 'fair sharing'}
    best = min(rivals, key=lambda k: rivals[k].latency)
    ignorant = rivals['contention-free']
    private = estimate(replace(costs, contended=False), [ignorant.placement]).latency[0]
    target = replace(costs, quality=Quality(latency=rivals[best].latency / 0.8))
    frugal = plan_fleet(target).best
    meeting = [_joules(p) for p in rivals.values() if p.latency <= target.quality.latency]
    return Row(setting, name, seconds, plans.best.latency,
               rivals[best].latency / plans.best.latency, best, float(ignorant.latency / private),
               1 - _joules(frugal) / min(meeting))


def _joules(plan: FleetPlan) -> float:
    return sum(plan.joules.values())


def growth() -> list[dict[str, Any]]:
    """Return the seconds of phase 1, and of planning in all, by nodes and devices."""
    rows = []
    for nodes in (15, 30, 60):
        for devices in (2, 3, 5):
            rng = np.random.default_rng(nodes)
            parts = tuple(Node(f'n{k}', float(rng.uniform(1, 5)) * 1e-2, 1e6)
                          for k in range(nodes))
            flows = [Flow(SOURCE, (0,), 1e5)]
            flows += [Flow(k, (end,), float(rng.uniform(1, 9)) * 1e5)
                      for k, end in enumerate([*range(1, nodes), SOURCE])]
            machines = [Device(f'd{k}', speed=1.0 + k) for k in range(devices)]
            costs = FleetCosts(PlanningModel('chain', parts, tuple(flows)),
                               behind_access_point(machines, 1e7), 'd0')
            begun = time.process_time()
            partition(costs)
            middle = time.process_time()
            plan_fleet(costs)
            rows.append({'nodes': nodes, 'devices': devices, 'phase_1': middle - begun,
                         'all': time.process_time() - middle})
    return rows


def main() -> None:
    """Plan, print tables, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--json', type=Path, help='write the figures here')
    arguments = parser.parse_args()
    measure('traffic monitor', 'BERT 0.1B')  # compiles the simulator
    rows = [measure(setting, name) for setting in SETTINGS for name in MODELS]
    table = Table('setting', 'model', 'planned, s', 'round, s', 'gain', 'over', 'contention',
                  'energy saved')
    for r in rows:
        table.add_row(r.setting, r.model, f'{r.planning_seconds:.2f}', f'{r.latency:.3f}',
                      f'{r.gain:.2f}', r.best_other, f'{r.contention_loss:.2f}',
                      f'{r.energy_saved:.0%}')
    grown = growth()
    times = Table('nodes', 'devices', 'phase 1, s', 'all, s')
    for g in grown:
        times.add_row(str(g['nodes']), str(g['devices']), f'{g["phase_1"]:.2f}',
                      f'{g["all"]:.2f}')
    console = Console(width=110)
    console.print(table)
    console.print(times)
    if arguments.json:
        arguments.json.write_text(json.dumps(
            {'settings': [vars(r) for r in rows], 'growth': grown}, indent=1))


if __name__ == '__main__':
    main()
