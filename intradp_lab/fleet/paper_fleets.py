# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Dora's four settings and its models, imagined: ratios of speed, memory and rates as printed.

Devices' ratios of speed are those of the paper's Fig. 1b where it has them,
else declared here; memory and rates are the paper's.  Models are transformers
of the paper's sizes: layers with the work and weights of their shape, for
sequences of 128 tokens, two bytes a number; a round has 8 micro-batches.  Only ratios
mean something.
"""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
import time

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import (
    behind_access_point,
    dedicated_links,
    ring,
    Topology,
)
from intradp_ros.planning.baselines import asteroid
from intradp_ros.planning.chains import in_chain_order
from intradp_ros.planning.coarsening import coarsen
from intradp_ros.planning.estimate import estimate
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import Flow, Node, PlanningModel, SOURCE
from intradp_ros.planning.quality import Quality
from intradp_ros.power.power_states import PowerStates
from intradp_ros.systems.fleet.partitioner import NothingFits, reference_scale
from intradp_ros.systems.fleet.planner import (
    FAIR_SHARING,
    FleetPlan,
    FleetPlans,
    judge,
    plan_fleet,
)

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
          'Qwen 1.7B': (28, 2048, 6144, 151936), 'Omni 7B': (28, 3584, 18944, 152064)}
#: Layers, width and feed-forward width of the two encoders of Omni.
ENCODERS = ((32, 1280, 5120), (32, 1280, 3420))
DELAY = 1e-3
#: The paper's Fig. 2: two laptops and two phones on one Wi-Fi.
HOME = '4050 4050 S25 Mi15'
TOKENS, BATCHES = 128, 8
#: The planners that the paper compares with, of those that are here.
PAPERS = ('EdgeShard', 'Asteroid')


@dataclass(frozen=True)
class Row:
    """
    What one setting and model came to; nothing but names where nothing fits.

    `gain` is the best other planner's seconds through ours, `paper_gain` that
    of the best of those that the paper compares with.  `contention` is what
    the plan that ignores shared media takes, through what its planner
    believes; `energy_saved` the part of the joules at the target.
    """

    setting: str
    model: str
    planning_seconds: float = 0.0
    latency: float = 0.0
    gain: float = 0.0
    best_other: str = ''
    paper_gain: float | None = None
    contention: float | None = None
    contention_lost: float | None = None
    energy_saved: float | None = None
    latencies: Mapping[str, float | None] | None = None


def transformer(name: str) -> PlanningModel:
    """Return attention and feed-forward of every layer as nodes, for one sequence, two bytes."""
    layers, width, inner, words = MODELS[name]
    nodes: list[Node] = []
    flows: list[Flow] = []
    ends: list[int] = []
    for k, (count, wide, deep) in enumerate(ENCODERS if name.startswith('Omni') else ()):
        first = len(nodes)
        nodes += _layers(f'encoder {k} ', count, wide, deep)
        flows.append(Flow(SOURCE, (first,), 2.0 * TOKENS * wide))
        flows += [Flow(n, (n + 1,), 2.0 * TOKENS * wide) for n in range(first, len(nodes) - 1)]
        ends.append(len(nodes) - 1)
    embedding = len(nodes)
    nodes.append(_node('embedding', 0.0, words * width))
    nodes += _layers('', layers, width, inner)
    flows.append(Flow(SOURCE, (embedding,), 8.0 * TOKENS))
    flows += [Flow(end, (embedding,), 2.0 * TOKENS * width) for end in ends]
    flows += [Flow(n, (n + 1 if n + 1 < len(nodes) else SOURCE,), 2.0 * TOKENS * width)
              for n in range(embedding, len(nodes))]
    return PlanningModel(name, tuple(nodes), tuple(flows))


def _layers(name: str, layers: int, width: int, inner: int) -> list[Node]:
    return [node for k in range(layers) for node in (
        _node(f'{name}attention {k}', 1.0, 4 * width * width),
        _node(f'{name}forward {k}', 1.0, 3 * width * inner))]


def _node(name: str, share: float, weights: int) -> Node:
    return Node(name, share * 2 * weights * TOKENS, 2.0 * weights, 2e7)


def paper_fleet(setting: str) -> Topology:
    """Return the devices and media of a setting."""
    kinds, joined, rate = SETTINGS[setting]
    return (behind_access_point if joined == 'air' else ring)(_devices(kinds), rate / 8, DELAY)


def _devices(kinds: str) -> list[Device]:
    devices = []
    for k, kind in enumerate(kinds.split()):
        gigabytes, speed, busy, idle = KINDS[kind]
        devices.append(Device(f'{kind}.{k}', 1e9 * gigabytes, speed,
                              power=PowerStates(busy, 1.2 * idle, idle, 'declared')))
    return devices


def paper_costs(topology: Topology, name: str) -> FleetCosts:
    """Return what is planned for: the fastest round, by 29 nodes or fewer for one chain."""
    return FleetCosts(coarsen(in_chain_order(transformer(name))), topology, topology.names[0],
                      batches=BATCHES)


def measure(setting: str, name: str) -> tuple[Row, FleetPlans | None]:
    """Plan for speed, then for energy at the target that the paper takes."""
    costs = paper_costs(paper_fleet(setting), name)
    begun = time.process_time()
    try:
        plan_fleet(costs)
        seconds = time.process_time() - begun
        plans = plan_fleet(costs, compare=True)
    except NothingFits:
        return Row(setting, name), None
    rivals = {k: p for k, p in plans.others.items() if p is not None and k != FAIR_SHARING}
    best = min(rivals, key=lambda k: rivals[k].latency)
    theirs = [rivals[k].latency for k in PAPERS if k in rivals]
    lost = private = None
    if ignorant := rivals.get('contention-free'):
        believed = replace(costs, contended=False)
        private = float(ignorant.latency / estimate(believed, [ignorant.placement]).latency[0])
        lost = ignorant.latency / plans.best.latency
    return Row(setting, name, seconds, plans.best.latency,
               rivals[best].latency / plans.best.latency, best,
               min(theirs) / plans.best.latency if theirs else None, private, lost,
               _energy_saved(costs, rivals, rivals[best].latency / 0.8),
               {k: p.latency if p else None for k, p in plans.others.items()}), plans


@dataclass(frozen=True)
class ContentionRow:
    """
    Seconds of a round by Asteroid's plan for the paper's Fig. 2, and by ours.

    `dedicated`: that plan where every two devices have the rate for
    themselves, as it was made for; `shared`: the same plan on air that all
    share; `ours` is for that air.  `rate` in bits per second.
    """

    model: str
    rate: float
    dedicated: float
    shared: float
    ours: float


def contention(name: str, rate: float) -> ContentionRow | None:
    """Return what a plan for links of its own loses on shared air; None if there is none."""
    devices = _devices(HOME)
    alone = paper_costs(dedicated_links(devices, rate / 8, DELAY), name)
    costs = paper_costs(behind_access_point(devices, rate / 8, DELAY), name)
    placement = asteroid(alone)
    if placement is None:
        return None
    scale = reference_scale(costs)
    dedicated, shared = (judge(at, scale, 'Asteroid', placement.tolist()).latency
                         for at in (alone, costs))
    return ContentionRow(name, rate, dedicated, shared, plan_fleet(costs).best.latency)


def _energy_saved(costs: FleetCosts, rivals: Mapping[str, FleetPlan], latency: float,
                  ) -> float | None:
    """Return the part of the joules that the best other plan within a target takes, saved."""
    target = replace(costs, quality=Quality(latency=latency))
    meeting = [_joules(plan) for plan in rivals.values() if plan.latency <= latency]
    return 1 - _joules(plan_fleet(target).best) / min(meeting) if meeting else None


def _joules(plan: FleetPlan) -> float:
    return sum(plan.joules.values())
