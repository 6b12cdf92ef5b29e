# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Plans that workers run, from the planner's; and light plans after a loss (Asteroid, section 3.4).

A light plan begins with the stages of those that are left, or with one device or stage elsewhere,
or one device more: borders move until the work of each stage is in proportion to its group's
speed, and samples are dealt anew.  A short search by the estimate goes on from the best of these;
what it finds is taken where it wins more in the next rounds than its layers take to move.  A heavy
plan is searched for from scratch.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from math import inf
from types import MappingProxyType

import numpy as np
import torch

from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.cluster.topology import Topology
from intradp_ros.split.kernel_device import HOST, KernelDevice
from intradp_ros.systems.training.base.task import examples, TrainingTask
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.layer_profiler import LayerCall, Tensors
from intradp_ros.systems.training.layers.layer_table import LayerTable, LayerTimes
from intradp_ros.systems.training.layers.stage_interpreter import Pass, run_pass
from intradp_ros.systems.training.plan.hybrid_plan import HybridPlan, HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import (
    around,
    best_together,
    in_fewer_passes,
    judged,
    plan_round,
    Shape,
)
from intradp_ros.systems.training.plan.partners import partners
from intradp_ros.systems.training.plan.round_costs import RoundCosts
from intradp_ros.systems.training.plan.training_plan import (
    DataGoneError,
    MOST_SECONDS,
    Planner,
    TrainingPlan,
    TrainingStage,
)

#: Rounds in which a plan after a loss has to make up for the seconds that its layers move.
PAID_BACK = 20
#: Rounds of which snapshots are kept: the newest that all have, and the one that is being copied.
TAGS = 2
#: Samples of a pass.
MOST_PASS = 1 << 16
#: Bytes of a process with PyTorch that trains nothing; each has the initial network, too.
PROCESS = 4e8


def costs_of(task: TrainingTask, table: LayerTable, topology: Topology) -> RoundCosts:
    """Return what a round of a task costs; samples are dealt in the task's grains."""
    largest = -(-task.grains // task.micro_batches)
    return RoundCosts(table, topology, min(task.batch, largest * task.grain), task.micro_batches,
                      task.grain, batch=task.batch, tags=TAGS,
                      process=PROCESS + sum(table.weight_bytes), judged=bool(task.validate_every),
                      merges=task.merges and task.batch <= MOST_PASS)


def runnable(costs: RoundCosts, stages: Sequence[HybridStage], task: TrainingTask) -> TrainingPlan:
    """
    Return the plan that workers run for stages of the planner, by the costs that they are of.

    :raises PlanError: if shares are not whole grains.
    """
    largest = -(-task.grains // costs.micro_batches)
    found, of_round = [], stages[0].of_round
    for stage in stages:
        shares = [(name, -(-samples // task.grain)) for name, samples in stage.shares if samples]
        if sum(count for _, count in shares) != (task.grains if of_round else largest):
            raise PlanError(f'the shares {stage.shares} are not whole grains of {task.grain}')
        found.append(TrainingStage(stage.first, stage.last, tuple(shares)))
    seconds = min(judged(costs, stages).seconds, MOST_SECONDS)
    return TrainingPlan(tuple(found), task.grains, costs.micro_batches, seconds, of_round,
                        data_of(costs.images, len(task.data)), keepers_of(costs, found))


def keepers_of(costs: RoundCosts, stages: Sequence[TrainingStage]) -> tuple[str, ...]:
    """
    Return who holds a copy of what one device alone trains: of idle ones the quickest to reach.

    Nobody, where several train, or no other device has room for the copies: those of `tags`
    rounds, and one on the way.
    """
    if len(stages) > 1 or len(stages[0].shares) > 1:
        return ()
    [alone], topology = stages[0].devices, costs.topology
    nbytes = costs.copies_bytes()
    able = [name for name in topology.names if name != alone
            and (alone, name) in topology.paths and (name, alone) in topology.paths
            and topology.device(name).memory_bytes >= nbytes]
    return tuple(sorted(able, key=lambda name: -topology.rate(alone, name))[:1])


def data_of(images: Mapping[str, float], count: int) -> tuple[tuple[str, int], ...]:
    """Return how many samples lie on each device, by its share of them."""
    ends = [round(count * part) for part in accumulate(images.values())]
    return tuple((name, after - before) for name, before, after in
                 zip(images, (0, *ends), ends) if after > before)


def light_plan(costs: RoundCosts, before: TrainingPlan, task: TrainingTask) -> TrainingPlan | None:
    """Return the stages of before, changed for who is there now; None where that fits nowhere."""
    stages = light_stages(costs, before.stages)
    return of_plan(costs, in_fewer_passes(costs, judged(costs, stages)), task) if stages else None


def of_plan(costs: RoundCosts, plan: HybridPlan, task: TrainingTask) -> TrainingPlan:
    """Return the plan that workers run for one of the planner, of as many passes as it has."""
    return runnable(costs.in_passes(plan.micro_batches), plan.stages, task)


def light_stages(costs: RoundCosts, before: Sequence[TrainingStage | HybridStage],
                 ) -> tuple[HybridStage, ...] | None:
    """
    Return stages near those of before, of devices that are left and others that came.

    None where none of the devices of before is left, or nothing near fits.
    """
    names = costs.topology.names
    groups = [tuple(name for name in stage.devices if name in names) for stage in before]
    groups = [group for group in groups if group]
    left = {name for group in groups for name in group}
    sets = partners(costs.topology, left | {n for n, share in costs.images.items() if share})
    if not groups or not sets:
        return None
    costs = costs.only(sets[0])
    came = [name for name in sets[0] if name not in left]
    shapes = [shape for one in [*regrouped(groups), *with_others(groups, came)]
              if (shape := _by_speed(costs, one))]
    if len(groups) == len(before):  # borders as they are
        shapes.insert(0, tuple((stage.first, group) for stage, group in zip(before, groups)))
    stay = [name for group in groups for name in group]
    orders = [[*stay, *came], [*came, *stay]] if came else [stay]
    ways = [*around(costs, shapes, orders), best_together(costs, sets[0]),
            best_together(costs, stay)]
    return min((stages for stages in ways if stages), default=None, key=lambda stages: (
        PAID_BACK * judged(costs, stages).seconds + moving_seconds(costs, before, stages)))


def with_others(groups: Sequence[tuple[str, ...]], came: Sequence[str],
                ) -> list[tuple[tuple[str, ...], ...]]:
    """Return groups with one device more: in each of them, and as the first or last stage."""
    found = []
    for name in came:
        found += [tuple((*group, name) if k == other else group for other, group in
                        enumerate(groups)) for k in range(len(groups))]
        found += [((name,), *groups), (*groups, (name,))]
    return found


def regrouped(groups: Sequence[tuple[str, ...]]) -> list[tuple[tuple[str, ...], ...]]:
    """Return groups as they are; with two joined, one device at its neighbours', or one split."""
    found = [tuple(groups)]
    for k, group in enumerate(groups):
        before, behind = tuple(groups[:k]), tuple(groups[k + 1:])
        found += [(*before, group[:cut], group[cut:], *behind) for cut in range(1, len(group))]
        if not behind:
            continue
        other, *rest = behind
        found.append((*before, group + other, *rest))
        if len(group) > 1:
            found += [(*before, _without(group, name), (name, *other), *rest) for name in group]
        if len(other) > 1:
            found += [(*before, (*group, name), _without(other, name), *rest) for name in other]
    return found


def _without(names: tuple[str, ...], name: str) -> tuple[str, ...]:
    return tuple(other for other in names if other != name)


def moving_seconds(costs: RoundCosts, before: Sequence[TrainingStage | HybridStage],
                   stages: Sequence[HybridStage]) -> float:
    """
    Return how long the layers that a device lacks need to reach it, of the slowest one.

    Each comes from the quickest to send it of those that had it; where none is left, of all.
    """
    names, had = costs.topology.names, dict[int, list[str]]()
    for stage in before:
        for layer in range(stage.first, stage.last):
            had[layer] = [name for name in stage.devices if name in names]

    def seconds(name: str, layer: int) -> float:
        sources = had[layer] or [other for other in names if other != name]
        return 0.0 if name in sources else costs.state_bytes(layer) / max(
            (costs.topology.rate(other, name) for other in sources), default=inf)
    return max(sum(seconds(name, layer) for layer in range(stage.first, stage.last))
               for stage in stages for name in stage.devices)


def _by_speed(costs: RoundCosts, groups: Sequence[tuple[str, ...]]) -> Shape | None:
    """Return a stage for each group, with work in proportion to its speed; None if too many."""
    names = [name for group in groups for name in group]
    speed = {name: 1 / max(sum(costs.seconds(name, 0, costs.layers, costs.micro_batch)), 1e-12)
             for name in names}
    fastest = max(names, key=lambda name: speed[name])
    work = np.array([sum(costs.seconds(fastest, 0, k, costs.micro_batch))
                     for k in range(costs.layers + 1)])
    part = np.cumsum([sum(speed[name] for name in group) for group in groups])
    ends = [0]
    for k, share in enumerate(part[:-1] / part[-1]):
        low, high = ends[-1] + 1, costs.layers - (len(groups) - 1 - k)
        if low > high:
            return None
        ends.append(low + int(np.argmin(abs(work[low:high + 1] - share * work[-1]))))
    ends.append(costs.layers)
    return tuple(zip(ends, groups))


def replanner(task: TrainingTask, table: LayerTable, topology: Topology, heavy: bool = False,
              images: Mapping[str, float] = MappingProxyType({})) -> Planner:
    """
    Return what plans for whoever is there: lightly where that can be, else from scratch.

    With `heavy` it is always from scratch.  `images` has the share of the data that lies on a
    device.  What it returns raises DataGoneError where such a device is not there.
    """
    def plan(devices: tuple[str, ...], before: TrainingPlan | None) -> TrainingPlan | None:
        names = [name for name in topology.names if name in devices]
        if not names:
            return None
        if gone := [name for name, share in images.items() if share and name not in names]:
            raise DataGoneError(f'{", ".join(gone)} left, and with it '
                                f'{sum(images[name] for name in gone):.0%} of the data, which '
                                'are nowhere else')
        costs = replace(costs_of(task, table, topology.without(set(topology.names) - set(names))),
                        images={name: share for name, share in images.items() if name in names})
        try:
            if before is not None and not heavy and (found := light_plan(costs, before, task)):
                return found
            return of_plan(costs, plan_round(costs), task)
        except PlanError:
            return None
    return plan


def layer_calls(graph: LayerGraph, task: TrainingTask,
                device: KernelDevice = HOST) -> list[LayerCall]:
    """Return each layer of a network as what the profiler runs, on that device."""
    place = torch.device(device.name)

    def call(k: int) -> LayerCall:
        module = graph.stage(k, k + 1, place)

        def forward(values: Tensors) -> Tensors:
            rows = [min(task.grain, len(values[0]) - k)
                    for k in range(0, len(values[0]), task.grain)]
            one = Pass(task.seed, 0, range(len(rows)), rows, task.autocast, task.freeze_norms)
            made: Tensors = run_pass(module, values, one, apart=graph.apart)
            return made
        own = dict(module.named_parameters(remove_duplicate=False))
        folded = 0 if task.freeze_norms else sum(
            module.get_buffer(name).nbytes for name in graph.layers[k].buffers
            if name not in graph.changes)
        return LayerCall(graph.layers[k].name, forward,
                         [(name, own[name]) for name in graph.layers[k].parameters], folded)
    return [call(k) for k in range(len(graph.layers))]


def entering(graph: LayerGraph, task: TrainingTask,
             device: KernelDevice = HOST) -> Callable[[int], Tensors]:
    """Return what makes inputs of so many samples for the profiler."""
    def inputs(count: int) -> Tensors:
        return tuple(map(device.take, graph.entering(examples(task.data, count)[0])))
    return inputs


def with_reading(table: LayerTable, seconds: float) -> LayerTable:
    """Return a table in which the first layer takes so long more for each sample: to read it."""
    def slower(found: LayerTimes) -> LayerTimes:
        return replace(found, forward=tuple((row[0] + count * seconds, *row[1:]) for count, row in
                                            zip(found.batches, found.forward)))
    return replace(table, times={name: slower(found) for name, found in table.times.items()})


def with_targets(table: LayerTable, nbytes: float) -> LayerTable:
    """Return a table in which so many bytes a sample more cross borders: its targets."""
    first, *within, last = table.border_bytes
    return replace(table, border_bytes=(first, *(each + nbytes for each in within), last))


def on_devices(table: LayerTable, speeds: dict[str, float]) -> LayerTable:
    """Return a table of one device for several, each so many times as fast."""
    only = next(iter(table.times.values()))
    return replace(table, times={name: replace(
        only, forward=_divided(only.forward, speed), backward=_divided(only.backward, speed),
        step=tuple(seconds / speed for seconds in only.step))
        for name, speed in speeds.items()})


def linear(table: LayerTable, times: float = 1.0) -> LayerTable:
    """
    Return a table whose seconds are in proportion to samples, as emulated devices take them.

    All of them are so many times as long.
    """
    def scaled(found: LayerTimes) -> LayerTimes:
        per_sample = found.batches[-1] / times
        return LayerTimes((1,), _divided(found.forward[-1:], per_sample),
                          _divided(found.backward[-1:], per_sample),
                          tuple(seconds * times for seconds in found.step))
    return replace(table, times={name: scaled(found) for name, found in table.times.items()})


def _divided(rows: tuple[tuple[float, ...], ...], speed: float) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(seconds / speed for seconds in row) for row in rows)
