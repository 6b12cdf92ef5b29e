# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How other planners would train, as pipelines that the same simulator judges.

Each follows its published rule in the plainest way.  PipeDream and DAPPLE take devices as equal,
with the mean of their seconds, and deal samples equally; EDDL and HetPipe know their speeds.  None
returns what does not fit.  EDDL's shares of a whole round are a candidate of our planner, too: not
to be slower than these shows nothing; all other candidates are found without our planner.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations

from intradp_ros.planning.shares import largest_remainder
from intradp_ros.schedule.event_simulator import simulate
from intradp_ros.systems.training.plan.allocation import as_shares, in_proportion
from intradp_ros.systems.training.plan.hybrid_plan import HybridStage
from intradp_ros.systems.training.plan.partners import partners
from intradp_ros.systems.training.plan.round_costs import RoundCosts
from intradp_ros.systems.training.plan.round_tasks import Pipeline, round_tasks

Cuts = tuple[tuple[int, int], ...]
"""The first layer, and the number of devices, of each stage."""

#: Cuts that DAPPLE's exhaustive search looks at; more layers are taken together.
MOST_BORDERS = 12


def eddl(costs: RoundCosts) -> list[Pipeline] | None:
    """
    Return data parallel training on all devices, samples by speed (EDDL).

    They are dealt of the whole round, as nothing in it needs micro-batches; of each micro-batch
    where memory is short, or that is quicker.
    """
    names = costs.topology.names
    ways = [_fitting(costs, _dealt(costs, ((0, names),), True)),
            _fitting(costs, _dealt_of_round(costs, names))]
    return min((one for one in ways if one), default=None,
               key=lambda one: baseline_seconds(costs, one))


def straight(costs: RoundCosts) -> list[Pipeline] | None:
    """Return a pipeline of one device a stage, in the order of the fleet (GPipe's shape)."""
    names = costs.topology.names
    shape = _slowest_stage(costs, len(names), most=1)
    return _fitting(costs, _dealt(costs, _named(shape, names), False)) if shape else None


def pipedream(costs: RoundCosts) -> list[Pipeline] | None:
    """Return stages whose slowest one, or value between them, is quickest (PipeDream)."""
    names = costs.topology.names
    shape = _slowest_stage(costs, len(names), most=len(names))
    return _fitting(costs, _dealt(costs, _named(shape, names), False)) if shape else None


def dapple(costs: RoundCosts) -> list[Pipeline] | None:
    """Return stages with the shortest warm-up, steady phase and sums of gradients (DAPPLE)."""
    names, layers = costs.topology.names, costs.layers
    count = len(names)
    step = max(1, layers // MOST_BORDERS)
    best: tuple[float, Cuts] | None = None
    for stages in range(1, min(3, count) + 1):
        for cuts in combinations(range(step, layers, step), stages - 1):
            for ends in combinations(range(1, count), stages - 1):
                sizes = [b - a for a, b in zip((0, *ends), (*ends, count))]
                shape = tuple(zip((0, *cuts), sizes))
                seconds = _pipeline_latency(costs, shape)
                if best is None or seconds < best[0]:
                    best = seconds, shape
    return _fitting(costs, _dealt(costs, _named(best[1], names), False)) if best else None


def hetpipe(costs: RoundCosts) -> list[Pipeline] | None:
    """
    Return two pipelines side by side that sum all their gradients (HetPipe, equal distribution).

    Each has every second device, by speed; a pipeline's stages have layers by speed.
    """
    names = sorted(costs.topology.names, key=lambda name: _whole(costs, name))
    if len(names) < 2:
        return None
    found: list[Pipeline] = []
    workers = [names[0::2], names[1::2]]
    speeds = [sum(1 / _whole(costs, name) for name in worker) for worker in workers]
    batches = largest_remainder(speeds, costs.micro_batches)
    for worker, micro_batches in zip(workers, batches):
        if not micro_batches:
            return None
        parts = largest_remainder([1 / _whole(costs, name) for name in worker], 1000)
        done = [sum(costs.seconds(worker[0], 0, k, costs.micro_batch)) for k in
                range(costs.layers + 1)]
        ends, share = [0], 0.0
        for part in parts:
            share += part / 1000
            ends.append(min(range(costs.layers + 1),
                            key=lambda k: abs(done[k] - share * done[-1])))
        ends[-1] = costs.layers  # the last layers may cost nothing
        used = [(a, b, name) for a, b, name in zip(ends, ends[1:], worker) if b > a]
        found.append(([HybridStage(a, b, ((name, costs.micro_batch),),
                                   min(micro_batches, 2 * (len(used) - k) - 1))
                       for k, (a, b, name) in enumerate(used)], micro_batches))
    return _fitting(costs, found)


#: Each by the name of the system that plans so.
BASELINES: dict[str, Callable[[RoundCosts], list[Pipeline] | None]] = {
    'EDDL': eddl, 'PP': straight, 'PipeDream': pipedream, 'DAPPLE': dapple, 'HetPipe': hetpipe}


def baseline_seconds(costs: RoundCosts, pipelines: Sequence[Pipeline]) -> float:
    """Return the seconds of a round by the event simulator."""
    return simulate(round_tasks(costs, pipelines), costs.topology).makespan


def _whole(costs: RoundCosts, name: str) -> float:
    return max(sum(costs.seconds(name, 0, costs.layers, costs.micro_batch)), 1e-12)


def _mean(costs: RoundCosts, first: int, last: int, devices: int) -> float:
    """Return the seconds of a micro-batch on so many devices, all of them taken as equal."""
    names = costs.topology.names
    samples = -(-costs.micro_batch // devices)
    return sum(sum(costs.seconds(name, first, last, samples)) for name in names) / len(names)


def _rate(costs: RoundCosts) -> float:
    pairs = list(costs.topology.paths)
    rates = [costs.topology.rate(a, b) for a, b in pairs if a != b]
    return sum(rates) / len(rates) if rates else float('inf')


def _crossing(costs: RoundCosts, border: int) -> float:
    table = costs.table
    nbytes = table.border_bytes[border] + table.gradient_bytes[border]
    return costs.micro_batch * nbytes / _rate(costs)


def _sum(costs: RoundCosts, first: int, last: int, devices: int) -> float:
    return 2 * (devices - 1) / devices * costs.weights(first, last) / _rate(costs)


def _slowest_stage(costs: RoundCosts, devices: int, most: int) -> Cuts | None:
    """Return the stages on all devices whose slowest part takes least per micro-batch."""
    layers = costs.layers
    best: dict[tuple[int, int], tuple[float, Cuts]] = {(layers, 0): (0.0, ())}
    for used in range(1, devices + 1):
        for first in range(layers - 1, -1, -1):
            for here in range(1, min(most, used) + 1):
                for last in range(first + 1, layers + 1):
                    tail = best.get((last, used - here))
                    if tail is None:
                        continue
                    own = max(_mean(costs, first, last, here),
                              _sum(costs, first, last, here) / costs.micro_batches)
                    between = _crossing(costs, last) if last < layers else 0.0
                    one = max(own, between, tail[0]), ((first, here), *tail[1])
                    if (first, used) not in best or one < best[first, used]:
                        best[first, used] = one
    found = best.get((0, devices))
    return found[1] if found else None


def _pipeline_latency(costs: RoundCosts, shape: Cuts) -> float:
    ends = [*(first for first, _ in shape[1:]), costs.layers]
    parts = [_mean(costs, first, last, devices) for (first, devices), last in zip(shape, ends)]
    between = [_crossing(costs, first) for first, _ in shape[1:]]
    sums = [_sum(costs, first, last, devices) for (first, devices), last in zip(shape, ends)]
    return (sum(parts) + sum(between) + max(sums)
            + (costs.micro_batches - 1) * max([*parts, *between]))


def _named(shape: Cuts, names: Sequence[str]) -> tuple[tuple[int, tuple[str, ...]], ...]:
    found, at = [], 0
    for first, devices in shape:
        found.append((first, tuple(names[at:at + devices])))
        at += devices
    return tuple(found)


def _dealt(costs: RoundCosts, shape: Sequence[tuple[int, Sequence[str]]], by_speed: bool,
           ) -> list[Pipeline]:
    stages = []
    ends = [*(first for first, _ in shape[1:]), costs.layers]
    for k, ((first, names), last) in enumerate(zip(shape, ends)):
        weights = [1 / _whole(costs, name) if by_speed else 1.0 for name in names]
        blocks = largest_remainder(weights, len(costs.sizes) - 1)
        stages.append(HybridStage(first, last, as_shares(costs, names, blocks, costs.micro_batch),
                                  costs.kept(len(shape) - 1 - k)))
    return [(stages, costs.micro_batches)]


def _dealt_of_round(costs: RoundCosts, names: Sequence[str]) -> list[Pipeline]:
    """Return a stage of devices that share a round by speed; nothing where blocks are broken."""
    if (shares := in_proportion(costs, names)) is None:
        return []
    return [([HybridStage(0, costs.layers, shares, 1, True)], costs.micro_batches)]


def _fitting(costs: RoundCosts, pipelines: list[Pipeline]) -> list[Pipeline] | None:
    needed = {name for stages, _ in pipelines for stage in stages for name in stage.devices}
    needed |= {name for name, share in costs.images.items() if share}
    if not pipelines:
        return None
    joined = any(needed.issubset(names) for names in partners(costs.topology))
    fits = all(costs.stage_memory(stage, name) <= costs.topology.device(name).memory_bytes
               for stages, _ in pipelines for stage in stages for name in stage.devices)
    return pipelines if joined and fits else None
