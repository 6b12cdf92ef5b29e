# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Random layer tables and fleets for plans of training, and every plan of a small one."""
from dataclasses import replace
from itertools import combinations, permutations, product

import numpy as np

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import (
    behind_access_point,
    dedicated_links,
    Medium,
    Topology,
)
from intradp_ros.systems.training.layers.layer_table import LayerTable, LayerTimes
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import judged
from intradp_ros.systems.training.plan.round_costs import RoundCosts


def random_costs(seed, layers, devices, micro_batches, half=None, images=False):
    """Return a round whose computing and communicating take about as long."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(max(2, layers // 2), layers + 1))
    work = rng.uniform(0.2, 2.0, count)
    weights = rng.uniform(0.1, 4.0, count) * 1e6
    names = [f'd{k}' for k in range(devices)]
    times = {}
    for name in names:
        speed = float(rng.uniform(0.5, 3.0))
        fixed = rng.uniform(0.0, 0.3)
        batches = (1, 4, 16)
        rows = [tuple((1e-3 * work * (fixed + b) / speed).tolist()) for b in batches]
        back = [tuple((1e-3 * work * (fixed + b) * 2 / speed).tolist()) for b in batches]
        times[name] = LayerTimes(batches, tuple(rows), tuple(back))
    kept = rng.uniform(0.1, 2.0, count) * 1e5
    borders = tuple((rng.uniform(0.1, 2.0, count + 1) * 1e4).tolist())
    table = LayerTable(tuple(f'l{k}' for k in range(count)), tuple(kept.tolist()),
                       tuple(weights.tolist()), tuple((2 * weights).tolist()), borders,
                       (0.0, *borders[1:]), times)
    whole = 4 * float(weights.sum()) + 8 * micro_batches * float(kept.sum())
    machines = [Device(name, memory_bytes=float(rng.uniform(0.3, 1.2)) * whole)
                for name in names]
    rate = 10 ** float(rng.uniform(6.5, 9))
    half = bool(rng.integers(2)) if half is None else half
    make = behind_access_point if half else dedicated_links
    lie = dict.fromkeys(names, 1 / devices) if images else {}
    return RoundCosts(table, make(machines, rate, 1e-4), 8, micro_batches, 1, lie)


def odd_costs(seed, layers=14, devices=8, most=16):
    """Return a round of any kind, of up to so many layers, devices and micro-batches."""
    rng = np.random.default_rng(seed)
    count, names = int(rng.integers(1, layers + 1)), [f'd{k}' for k in
                                                      range(int(rng.integers(1, devices + 1)))]
    work = rng.uniform(0, 2e-3, count) * (rng.random(count) < 0.85) * (rng.random() < 0.95)
    weights = 10 ** rng.uniform(3, 6.5, count) * (rng.random(count) < 0.8)
    weights[int(rng.integers(count))] *= rng.choice([1, 1, 100])
    batch, micro_batches = (int(n) for n in rng.integers(1, most + 1, 2))
    grain = int(rng.integers(1, batch + 1))
    grains = max(-(-batch * micro_batches // grain) - int(rng.integers(micro_batches)),
                 micro_batches)
    batch = grain * grains - int(rng.integers(grain))  # the last grain may be short
    micro_batch = min(batch, -(-grains // micro_batches) * grain)
    times = {}
    for name in names:
        each, fixed = work / 10 ** float(rng.uniform(-1.5, 1)), rng.choice([0.0, 0.3, 3.0, 10.0])
        batches = ((1,), (1, 4, 16), (2, 8))[int(rng.integers(3))]
        rows = [tuple((each * (fixed + b)).tolist()) for b in batches]
        times[name] = LayerTimes(batches, tuple(rows), tuple(rows), tuple(
            (1e-10 * weights).tolist()) if rng.integers(2) else ())
    kept, borders = 10 ** rng.uniform(2, 5.5, count), 10 ** rng.uniform(2, 5, count + 1)
    states = weights * rng.integers(3)
    table = LayerTable(tuple(map(str, range(count))), *(tuple(row.tolist()) for row in (
        kept, weights, states, borders, borders * (np.arange(count + 1) > 0))), times=times)
    whole = float((2 * weights + states).sum() + 2 * micro_batch * (kept.sum() + borders[0]))
    machines = [Device(name, float(rng.choice([np.inf, 0.0, rng.uniform(0.1, 1.5) * whole],
                                              p=[0.4, 0.05, 0.55]))) for name in names]
    parts = rng.random(len(names)) * (rng.random(len(names)) < 0.6) * (rng.random() < 0.3)
    lie = dict(zip(names, (parts / parts.sum()).tolist())) if parts.any() else {}
    return RoundCosts(table, odd_topology(rng, machines, 10 ** float(rng.uniform(5.5, 9))),
                      micro_batch, micro_batches, min(grain, micro_batch), lie, batch)


def odd_topology(rng, machines, rate):
    """Return links that differ, of one direction slow, of two cells; some devices not joined."""
    kind, names = int(rng.integers(6)), [d.name for d in machines]
    dedicated = dedicated_links(machines, rate, 1e-4)
    if kind == 0:
        return behind_access_point(machines, rate, 1e-3, names[::2], 3 * rate)
    if kind == 1:
        ports = behind_access_point(machines, rate, wired=names, port=rate)
        return replace(ports, media=tuple(replace(m, bytes_per_second=rate / 100)
                                          if m.name == 'd0.up' else m for m in ports.media))
    if kind == 2:
        return replace(dedicated, media=tuple(replace(m, bytes_per_second=rate * 10 ** float(
            rng.uniform(-1.5, 1))) for m in dedicated.media))
    if kind == 3:
        gone = {ends for ends in combinations(names, 2) if rng.random() < 0.3}
        return replace(dedicated, paths={ends: path for ends, path in dedicated.paths.items()
                                         if not gone & {ends, ends[::-1]}})
    homes = {name: int(rng.integers(2)) for name in names}
    media = (Medium('0', rate), Medium('1', rate / 2), Medium('cable', rate / 5))
    return Topology(tuple(machines), media, {
        (a, b): (str(homes[a]),) * 2 if homes[a] == homes[b] else
        (str(homes[a]), 'cable', str(homes[b])) for a, b in permutations(names, 2)
        if kind == 4 or homes[a] == homes[b]})


def every_shape(costs):
    """Yield every choice of cuts, and of an ordered group of devices for each stage."""
    names = costs.topology.names
    for stages in range(1, min(len(names), costs.layers) + 1):
        deals = {tuple(tuple(n for n, home in zip(names, homes) if home == k)
                       for k in range(stages))
                 for homes in product(range(-1, stages), repeat=len(names))}
        groups = [deal for deal in deals if all(deal)]
        for cuts in combinations(range(1, costs.layers), stages - 1):
            for deal in groups:
                yield tuple(zip((0, *cuts), deal))


def random_shape(costs, rng):
    """Return a random plan's shape."""
    names = list(rng.permutation(costs.topology.names))
    stages = int(rng.integers(1, min(len(names), costs.layers) + 1))
    cuts = sorted(rng.choice(np.arange(1, costs.layers), stages - 1, replace=False).tolist())
    ends = sorted(rng.choice(np.arange(1, len(names)), stages - 1, replace=False).tolist())
    return tuple((first, tuple(map(str, names[a:b]))) for first, a, b in zip(
        (0, *cuts), (0, *ends), (*ends, len(names))))


def best_of_all_shares(costs):
    """Return the shortest round of all plans and all ways to deal samples, within memory."""
    best = None
    for shape in every_shape(costs):
        ends = [*(first for first, _ in shape[1:]), costs.layers]
        dealt = []
        for k, ((first, names), last) in enumerate(zip(shape, ends)):
            kept = costs.kept(len(shape) - 1 - k)
            dealt.append([HybridStage(first, last, tuple(zip(names, samples)), kept)
                          for samples in product(range(1, costs.micro_batch + 1),
                                                 repeat=len(names))
                          if sum(samples) == costs.micro_batch and all(
                              costs.memory(first, last, n, kept)
                              <= costs.topology.device(name).memory_bytes
                              for name, n in zip(names, samples))])
        for stages in product(*dealt):
            seconds = judged(costs, stages).seconds
            best = seconds if best is None else min(best, seconds)
    rounds = [judged(costs, (stage,)).seconds for stage in rounds_dealt(costs)]
    return min([*rounds, *([] if best is None else [best])], default=None)


def rounds_dealt(costs):
    """Yield, for each group of devices, the deal of a round whose busiest device is done first."""
    samples, most = costs.micro_batch * costs.micro_batches, costs.micro_batch
    for count in range(2, len(costs.topology.names) + 1):
        for names in combinations(costs.topology.names, count):
            busy = {name: {0: 0.0} for name in names}
            for name, portions in busy.items():
                for n in range(1, samples + 1):
                    passes = -(-n // most)
                    sizes = [n // passes + (k < n % passes) for k in range(passes)]
                    if costs.memory(0, costs.layers, sizes[0], 1) <= \
                            costs.topology.device(name).memory_bytes:
                        portions[n] = sum(sum(costs.seconds(name, 0, costs.layers, one))
                                          for one in sizes)
            deals = [deal for deal in product(*busy.values())
                     if sum(deal) == samples and all(deal)]
            if deals:
                deal = min(deals, key=lambda d: max(busy[n][k] for n, k in zip(names, d)))
                yield HybridStage(0, costs.layers, tuple(zip(names, deal)), 1, of_round=True)
