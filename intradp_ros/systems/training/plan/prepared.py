# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A task made ready to be planned: tried, exported, and its layers measured on this machine."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
import hashlib
import math

import torch

from intradp_ros.cluster.plan_id import PlanError
from intradp_ros.cluster.topology import Topology
from intradp_ros.profiling.machine import device_name, release_memory
from intradp_ros.schedule.event_simulator import simulate, Simulation
from intradp_ros.schedule.task_graph import TaskGraph
from intradp_ros.split.calls.accelerator import open_device
from intradp_ros.split.kernel_device import HOST
from intradp_ros.systems.training.base.task import load_task, TaskError, TrainingTask
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_graph import LayerGraph
from intradp_ros.systems.training.layers.layer_profiler import cached_table, measure_layers
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.layers.round_trial import Trial, try_rounds
from intradp_ros.systems.training.layers.stage_optimiser import (
    stage_optimiser,
    trained_parameters,
    whole_optimiser,
)
from intradp_ros.systems.training.layers.task_trial import try_task
from intradp_ros.systems.training.plan.hybrid_plan import HybridPlan, HybridStage
from intradp_ros.systems.training.plan.hybrid_planner import plan_round
from intradp_ros.systems.training.plan.replanning import (
    costs_of,
    data_of,
    entering,
    layer_calls,
    linear,
    of_plan,
    on_devices,
    with_reading,
    with_targets,
)
from intradp_ros.systems.training.plan.round_costs import RoundCosts
from intradp_ros.systems.training.plan.round_tasks import round_tasks, validation_tasks
from intradp_ros.systems.training.plan.training_plan import MOST_DATA, MOST_SECONDS, TrainingPlan


@dataclass(frozen=True)
class Prepared:
    """
    A task on the devices of a topology.

    `name` is what worker processes load; `images` has the share of the data that lies on a device;
    `trial` what was seen when the task was tried.
    """

    name: str
    task: TrainingTask
    graph: LayerGraph
    table: LayerTable
    topology: Topology
    images: Mapping[str, float]
    trial: Trial

    @cached_property
    def costs(self) -> RoundCosts:
        """Return what a round costs."""
        return replace(costs_of(self.task, self.table, self.topology), images=self.images)

    def costs_of(self, plan: TrainingPlan | HybridPlan) -> RoundCosts:
        """Return what a round costs in the micro-batches of a plan."""
        return self.costs.in_passes(plan.micro_batches)

    def best(self) -> HybridPlan:
        """Return the best plan; PlanError if none fits."""
        return plan_round(self.costs)

    def runnable(self, plan: HybridPlan) -> TrainingPlan:
        """Return the plan that workers run; PlanError if shares are not whole grains."""
        return of_plan(self.costs, plan, self.task)

    def given(self, plan: TrainingPlan) -> TrainingPlan:
        """
        Return a plan of before with the seconds that it takes now.

        :raises PlanError: if it is for another task, or for devices that are not there.
        """
        task, alike = self.task, plan.micro_batches == self.task.micro_batches
        alike |= task.merges and len(plan.stages) == 1 and plan.micro_batches < task.micro_batches
        for what, has, wanted in (
                ('layers', plan.layers, len(self.graph.layers)),
                ('grains a round', plan.grains, task.grains),
                ('micro-batches', plan.micro_batches,
                 plan.micro_batches if alike else task.micro_batches),
                ('samples where', plan.data, data_of(self.images, len(task.data)))):
            if has != wanted:
                raise PlanError(f'the plan is for another task or other data: it has {what}: '
                                f'{has}, the task {wanted}. Make one by intradp train plan -o')
        if gone := sorted({*plan.participants} - {*self.topology.names}):
            raise PlanError(f'the plan needs {", ".join(gone)}, which the fleet has not: it has '
                            f'{", ".join(self.topology.names)}. Give the same --fleet, or plan '
                            'anew')
        return replace(plan, seconds=min(self.played(plan).makespan, MOST_SECONDS))

    def stages(self, plan: TrainingPlan) -> tuple[HybridStage, ...]:
        """Return the stages of a plan that workers run, as they are priced."""
        found, costs = [], self.costs_of(plan)
        for k, stage in enumerate(plan.stages):
            left = self.task.batch if plan.of_round else costs.micro_batch
            shares = []
            for name, grains in stage.shares:
                shares.append((name, min(left, grains * self.task.grain)))
                left -= shares[-1][1]
            found.append(HybridStage(stage.first, stage.last,
                                     tuple((name, n) for name, n in shares if n),
                                     costs.kept(len(plan.stages) - 1 - k), plan.of_round))
        return tuple(found)

    def played(self, plan: TrainingPlan) -> Simulation:
        """Return what the event simulator says of a round of a plan."""
        return simulate(self.tasks(plan), self.topology)

    def tasks(self, plan: TrainingPlan) -> TaskGraph:
        """Return the tasks of a round of a plan."""
        return round_tasks(self.costs_of(plan), [(self.stages(plan), plan.micro_batches)])

    def validation_seconds(self, plan: TrainingPlan) -> float:
        """Return what the event simulator says of a validation; 0 where there is none."""
        task = self.task
        if not task.validate_every or task.check is None:
            return 0.0
        return simulate(validation_tasks(self.costs_of(plan), self.stages(plan), len(task.check),
                                         self.trial.reading), self.topology).makespan

    def emulated(self, times: float) -> Prepared:
        """
        Return the same with everything so many times as slow: computing, and what joins devices.

        Seconds of a pass are in proportion to its samples, as emulated devices take them.
        """
        media = tuple(replace(medium, bytes_per_second=medium.bytes_per_second / times,
                              delay=medium.delay * times) for medium in self.topology.media)
        return replace(self, table=linear(self.table, times),
                       topology=replace(self.topology, media=media))


def prepare(name: str, topology: Topology, images: Mapping[str, float] | None = None,
            step: Callable[[str], None] = lambda text: None, device: str = HOST.name) -> Prepared:
    """
    Load a task, try it, export its network, and measure its layers here (once).

    The devices are as fast as their speed says; this machine has speed 1, with what computes on
    it: `device`.  `images` has the share of the data that lies on a device, or how many samples.

    :raises TaskError: if the task cannot be trained, or other data lie on devices than it has, or
        elsewhere.
    :raises TableError: if not even one sample fits into memory.
    :raises DeviceError: if there is no such device here.
    """
    check_there(images or {}, topology, 'where data lie: ')
    kernels = open_device(device)
    step(f'loading {name}')
    task = load_task(name)
    shares = _shares(images or {}, len(task.data))
    try_task(task)
    step('exporting the network in training mode')
    graph = capture(task)
    step('comparing it with a plain loop on samples from all of the data')
    trial = try_rounds(task, graph)
    step('measuring its layers on this machine (kept for the next time)')
    largest = min(task.batch, -(-task.grains // task.micro_batches) * task.grain)
    here = kernels.hardware or device_name()
    measured = cached_table(_digest(task, graph), here, lambda: measure_layers(
        here, layer_calls(graph, task, kernels), entering(graph, task, kernels),
        partial(stage_optimiser, task), task.batch if task.merges else largest, enough=largest))
    table = with_targets(measured, sum(
        math.prod(value.shape) * value.dtype.itemsize for value in graph.interface.wanted))
    if not shares:
        table = with_reading(table, trial.reading)
    release_memory()  # trying it took several times the network
    table = on_devices(table, {d.name: d.speed for d in topology.devices})
    return Prepared(name, task, graph, table, topology, shares, trial)


def check_there(names: Iterable[str], topology: Topology, what: str) -> None:
    """See that devices are those of a topology; TaskError if not."""
    if others := sorted({*names} - {*topology.names}):
        raise TaskError(f'{what}there is no device {", ".join(others)}; there are '
                        f'{", ".join(topology.names)}')


def read_images(texts: Iterable[str]) -> dict[str, float]:
    """
    Read where the data lie: "DEVICE=SHARE" or "DEVICE=SAMPLES", in the order of the samples.

    :raises TaskError: if a text is not of the form, a device is named twice, or shares do not add
        up to 1.
    """
    images: dict[str, float] = {}
    for text in texts:
        name, _, share = text.rpartition('=')
        try:
            if not name or name in images:
                raise ValueError
            images[name] = float(share)
            if not 0 <= images[name] <= MOST_DATA:
                raise ValueError
        except ValueError:
            raise TaskError(f'{text!r:.200} does not say where data lie: write DEVICE=SHARE, such '
                            'as robot1=0.5 or robot1=6000, once for each device') from None
    whole = sum(images.values())
    if images and max(images.values()) <= 1 and abs(whole - 1) > 1e-6:
        raise TaskError(f'the shares of the data on {", ".join(images)} add up to {whole:g}, not '
                        'to 1: all of the data must lie somewhere')
    return images


def _shares(images: Mapping[str, float], count: int) -> Mapping[str, float]:
    """Return shares of the data for shares, or for counts that add up to all of them."""
    if max(images.values(), default=0.0) <= 1:
        return images
    if sum(images.values()) != count:
        raise TaskError(f'the data are {count} samples, but {sum(images.values()):g} lie on '
                        'devices: give shares that add up to 1, or counts that add up to all')
    return {name: held / count for name, held in images.items()}


def _digest(task: TrainingTask, graph: LayerGraph) -> str:
    """Return what stands for all that layers cost: operators, shapes, optimiser, batch."""
    named = trained_parameters(task)
    text = [str(graph.root.graph), str(graph.cuts), str(whole_optimiser(task)), str(task.batch),
            str(task.grain), f'{task.micro_batches} or fewer: {task.merges}',
            f'{torch.get_num_threads()} threads',
            str(task.autocast), str(task.freeze_norms),
            *(f'{name} {tuple(p.shape)} {p.dtype}' for name, p in named)]
    return hashlib.sha256('\n'.join(text).encode()).hexdigest()
