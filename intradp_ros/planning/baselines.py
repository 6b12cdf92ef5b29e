# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How other planners would divide a model, as placements that the same simulator judges.

Each follows its published rule, with what its authors left open resolved in
the plainest way; none of them knows a shared medium or a target.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
import math

import numpy as np
import numpy.typing as npt

from intradp_ros.planning.estimate import estimate, excess
from intradp_ros.planning.fleet_costs import FleetCosts
from intradp_ros.planning.planning_model import SOURCE
from intradp_ros.planning.quality import Quality
from intradp_ros.planning.shares import largest_remainder

Placement = npt.NDArray[np.int64]


def one_device(costs: FleetCosts) -> Placement | None:
    """Return everything on the device on which that is fastest, of those that it fits."""
    devices = len(costs.topology.devices)
    every = np.repeat(np.arange(devices)[:, None], len(costs.model.nodes), axis=1)
    found = estimate(costs, every)
    latency = np.where(excess(costs, found) <= 0, found.latency, np.inf)
    best = int(np.argmin(latency))
    return every[best] if np.isfinite(latency[best]) else None


def equal_split(costs: FleetCosts) -> Placement | None:
    """Return as many nodes in a row for each device, in the order of the fleet."""
    return _in_parts(costs, range(len(costs.topology.devices)),
                     [1.0] * len(costs.topology.devices))


def by_memory(costs: FleetCosts) -> Placement | None:
    """Return nodes in proportion to the memory of the devices, largest remainder (exo)."""
    limits = np.where(np.isfinite(costs.memory_limits), costs.memory_limits, 0.0)
    if not limits.all():  # what has no limit counts as the largest that has one
        limits[limits == 0] = max(float(limits.max()), 1.0)
    order = sorted(range(len(limits)), key=lambda d: -limits[d])
    return _in_parts(costs, order, [float(limits[d]) for d in order])


def _in_parts(costs: FleetCosts, order: Sequence[int], weights: Sequence[float],
              ) -> Placement | None:
    counts = largest_remainder(weights, len(costs.model.nodes))
    return _if_fits(costs, np.repeat(np.asarray(order, dtype=np.int64), counts))


def edgeshard(costs: FleetCosts) -> Placement | None:
    """
    Return the placement with the least latency of one inference (EdgeShard).

    Its dynamic program places layer after layer on any device, and adds the
    seconds of computing and of the value that crosses at its peak rate.
    """
    nodes, devices = len(costs.model.nodes), len(costs.topology.devices)
    crossing = _crossing_bytes(costs)
    first = sum(f.nbytes for f in costs.model.flows if f.maker == SOURCE)
    last = _output_bytes(costs)
    reached = costs.seconds[0, range(devices), range(devices)] + _moved(costs, first, costs.home)
    came = np.zeros((nodes, devices), dtype=np.int64)
    # Weights and working bytes on each device, by the device of the last node.
    held = np.diag([costs.weight_bytes[0]] * devices)
    works = np.diag([costs.samples * costs.model.nodes[0].working_bytes] * devices)
    reached = np.where((held + works > costs.memory_limits).any(axis=1), np.inf, reached)
    for k in range(1, nodes):
        step = reached[:, None] + _moving_seconds(costs, crossing[k])
        node = costs.model.nodes[k]
        working = np.maximum(works, costs.samples * node.working_bytes)
        step = np.where(held + costs.weight_bytes[k] + working > costs.memory_limits, np.inf, step)
        came[k] = np.argmin(step, axis=0)
        reached = step[came[k], range(devices)] + costs.seconds[k, range(devices), range(devices)]
        held = held[came[k]] + np.diag([costs.weight_bytes[k]] * devices)
        works = np.maximum(works[came[k]], np.diag([costs.samples * node.working_bytes] * devices))
    end = int(np.argmin(reached + _moving_seconds(costs, last)[:, costs.home]))
    if not math.isfinite(reached[end]):
        return None
    placement = [end]
    for k in range(nodes - 1, 0, -1):
        placement.append(int(came[k, placement[-1]]))
    return _if_fits(costs, np.array(placement[::-1]))


def pipedream(costs: FleetCosts) -> Placement | None:
    """
    Return stages whose slowest one is as quick as possible, devices taken as equal (PipeDream).

    Stages and the values between them count alike; devices are used in the
    order of the fleet, and have the mean of their speeds and rates.
    """
    devices = len(costs.topology.devices)
    seconds = costs.seconds[:, range(devices), range(devices)].mean(axis=1)
    rates = costs.per_byte[~np.eye(devices, dtype=bool)]
    per_byte = float(rates[np.isfinite(rates)].mean()) if len(rates) else 0.0
    crossing = _crossing_bytes(costs) * costs.samples * per_byte

    def stage(a: int, b: int, position: int) -> float:
        return float(seconds[a:b].sum())

    return _stages(costs, range(devices), stage, lambda cut: float(crossing[cut]),
                   lambda total, slowest: slowest)


def asteroid(costs: FleetCosts) -> Placement | None:
    """
    Return stages of replica groups with the least latency of a round (Asteroid, Alg. 2).

    Devices stand in order of memory, largest first, as there, and a group is
    neighbours of that order; the round is the way of the first micro-batch
    and the slowest step for each further one, and the longest sum of gradients.
    Fewer devices may be used, the first ones.
    """
    order = _by_memory_and_speed(costs)
    table = _GroupTable(costs, order)
    found: list[tuple[float, tuple[tuple[int, int], ...]]] = []
    for stages in range(1, min(len(order), len(costs.model.nodes)) + 1):
        found += table.best(stages)
    for seconds, parts in sorted(found):
        placement = np.repeat([group for _, group in parts],
                              np.diff([0, *(end for end, _ in parts)]))
        if math.isfinite(seconds) and _if_fits(costs, placement) is not None:
            return placement
    return None


def _by_memory_and_speed(costs: FleetCosts) -> list[int]:
    devices = range(len(costs.topology.devices))
    speed = costs.seconds[:, devices, devices].sum(axis=0)
    return sorted(devices, key=lambda d: (-costs.memory_limits[d], speed[d]))


#: Seconds of a round, of a micro-batch alone, of the slowest stage; end and group of each stage.
_Row = tuple[float, float, float, tuple[tuple[int, int], ...]]


class _GroupTable:
    """Asteroid's dynamic program: what stages of groups of neighbours cost, and the best row."""

    def __init__(self, costs: FleetCosts, order: Sequence[int]) -> None:
        self._costs, self._devices = costs, len(order)
        peak = costs.per_byte[np.isfinite(costs.per_byte) & (costs.per_byte > 0)]
        self._per_byte = float(peak.min()) if len(peak) else 0.0
        self._crossing = _crossing_bytes(costs) * costs.samples * self._per_byte
        nodes = costs.model.nodes
        self._held = np.concatenate([[0.0], np.cumsum(costs.weight_bytes)])
        self._working = np.array([n.working_bytes for n in nodes])
        sets = [frozenset(np.flatnonzero(shares).tolist()) for shares in costs.groups]
        self._groups = {(a, b): sets.index(members) for a in range(len(order))
                        for b in range(a + 1, len(order) + 1)
                        if (members := frozenset(order[a:b])) in sets}
        self._seconds = {group: np.concatenate([
            [0.0], np.cumsum(costs.seconds[:, group].max(axis=1))])
            for group in self._groups.values()}

    def best(self, stages: int) -> list[tuple[float, tuple[tuple[int, int], ...]]]:
        """Return the best row of so many stages for each number of devices: seconds, ends."""
        nodes, infinite = len(self._costs.model.nodes), (math.inf, 0.0, 0.0, ())
        reached: dict[tuple[int, int], _Row] = {(0, 0): (0.0, 0.0, 0.0, ())}
        for stage in range(stages):
            after: dict[tuple[int, int], _Row] = {}
            for (start, first), state in reached.items():
                ends = range(start + 1 if stage + 1 < stages else max(nodes, start + 1), nodes + 1)
                for (a, last), group in self._groups.items():
                    for end in ends if a == first else ():
                        option = self._with(state, start, end, group)
                        if option[0] < after.get((end, last), infinite)[0]:
                            after[end, last] = option
            reached = after
        return [(state[0], state[3]) for state in reached.values()]

    def _with(self, state: _Row, start: int, end: int, group: int) -> _Row:
        """Return a row with one more stage of nodes."""
        costs = self._costs
        _, total, slowest, parts = state
        shares = costs.groups[group]
        held = (self._held[end] - self._held[start]
                + shares * self._working[start:end].max())
        if ((held > costs.memory_limits) & (shares > 0)).any():
            return (math.inf, 0.0, 0.0, ())
        seconds = float(self._seconds[group][end] - self._seconds[group][start])
        moved = float(self._crossing[start]) if start else 0.0
        total, slowest = total + seconds + moved, max(slowest, seconds, moved)
        return (total + (costs.batches - 1) * slowest, total, slowest, (*parts, (end, group)))


def data_parallel(costs: FleetCosts) -> Placement | None:
    """Return the whole model on every device, samples divided by speed; None if there are few."""
    everywhere = np.flatnonzero((costs.groups > 0).all(axis=1))
    if not len(everywhere) or len(costs.topology.devices) < 2:
        return None
    return _if_fits(costs, np.full(len(costs.model.nodes), everywhere[0]))


def quick_baselines(costs: FleetCosts) -> Mapping[str, Placement | None]:
    """Return the placements of those that take hardly any time."""
    return {'one device': one_device(costs), 'equal split': equal_split(costs),
            'by memory (exo)': by_memory(costs), 'EdgeShard': edgeshard(costs),
            'PipeDream': pipedream(costs), 'Asteroid': asteroid(costs),
            'data parallel': data_parallel(costs)}


def fastest(costs: FleetCosts) -> FleetCosts:
    """Return the same without targets: what planners for speed alone plan for."""
    return replace(costs, quality=Quality(energy=costs.quality.energy,
                                          memory=costs.quality.memory))


def _stages(costs: FleetCosts, order: Sequence[int], stage: Callable[[int, int, int], float],
            border: Callable[[int], float], value: Callable[[float, float], float],
            ) -> Placement | None:
    """Return consecutive stages on the first devices of an order, of the least value."""
    nodes = len(costs.model.nodes)
    best: dict[tuple[int, int], tuple[float, float, float, tuple[int, ...]]] = {}
    for end in range(1, nodes + 1):
        seconds = stage(0, end, 0)
        best[end, 1] = value(seconds, seconds), seconds, seconds, ()
    for count in range(2, min(len(order), nodes) + 1):
        for end in range(count, nodes + 1):
            options = []
            for cut in range(count - 1, end):
                _, total, slowest, cuts = best[cut, count - 1]
                seconds, moved = stage(cut, end, count - 1), border(cut)
                total, slowest = total + seconds + moved, max(slowest, seconds, moved)
                options.append((value(total, slowest), total, slowest, (*cuts, cut)))
            best[end, count] = min(options)
    found = min(best[nodes, count] for count in range(1, min(len(order), nodes) + 1))
    if not math.isfinite(found[0]):
        return None
    edges = [0, *found[3], nodes]
    counts = np.diff(edges)
    return _if_fits(costs, np.repeat(np.asarray(order[:len(counts)], dtype=np.int64), counts))


def _if_fits(costs: FleetCosts, placement: Placement) -> Placement | None:
    return placement if excess(costs, estimate(costs, placement[None]))[0] <= 0 else None


def _crossing_bytes(costs: FleetCosts) -> npt.NDArray[np.float64]:
    """Return the bytes of one sample that later nodes read, before each node."""
    crossing = np.zeros(len(costs.model.nodes) + 1)
    for flow, nbytes in zip(costs.model.flows, costs.flow_bytes):
        readers = [r for r in flow.readers if r != SOURCE]
        if flow.maker != SOURCE and readers:
            crossing[flow.maker + 1:max(readers) + 1] += nbytes
    return crossing


def _output_bytes(costs: FleetCosts) -> float:
    return sum(nbytes for f, nbytes in zip(costs.model.flows, costs.flow_bytes)
               if SOURCE in f.readers and f.maker != SOURCE)


def _moving_seconds(costs: FleetCosts, nbytes: float) -> npt.NDArray[np.float64]:
    with np.errstate(invalid='ignore'):
        moved = np.where(np.isfinite(costs.per_byte),
                         costs.samples * nbytes * costs.per_byte + costs.delay, np.inf)
    seconds: npt.NDArray[np.float64] = np.where(np.eye(len(moved), dtype=bool), 0.0, moved)
    return seconds


def _moved(costs: FleetCosts, nbytes: float, source: int) -> npt.NDArray[np.float64]:
    seconds: npt.NDArray[np.float64] = _moving_seconds(costs, nbytes)[source]
    return seconds
