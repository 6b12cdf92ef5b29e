# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the verbs of ``intradp train`` have in common: the task, and the devices it is for."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from intradp_ros.cli.arguments import existing_file, whole
from intradp_ros.cli.output import Output, percent, plain, size, table
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.fleet_file import read_fleet
from intradp_ros.cluster.topology import Topology
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.report.training_plot import Part
from intradp_ros.systems.training.plan.prepared import prepare, Prepared, read_images
from intradp_ros.systems.training.plan.stage_actions import device_actions
from intradp_ros.systems.training.plan.training_plan import TrainingPlan


def add_task(parser: argparse.ArgumentParser) -> None:
    """Declare the task and the devices."""
    parser.add_argument('task', metavar='TASK',
                        help='file.py:function or package.module:function, of a function that '
                             'returns a TrainingTask (see intradp train --help)')
    parser.add_argument('--fleet', type=existing_file, metavar='FLEET.yaml',
                        help='which machines there are (see intradp fleet show); their speed is '
                             'relative to this machine (default: this machine alone)')
    parser.add_argument('--device', default='cpu', metavar='NAME',
                        help='what this machine computes on: cpu (default), a device of PyTorch '
                             'such as cuda, or auto (cuda where there is one)')
    parser.add_argument('--threads', type=whole(1, 256), default=1, metavar='N',
                        help='CPU threads of each process (default 1)')
    parser.add_argument('--images', action='append', default=[], metavar='DEVICE=SHARE',
                        help='the share of the data that lies on a device, or how many samples: '
                             'the first of them on the device that is named first; others get '
                             'what they need from it (default: every device can read all)')


def prepared_of(args: argparse.Namespace, out: Output) -> Prepared:
    """
    Return the task of the arguments, made ready to be planned.

    :raises ValueError: if the task, the fleet or a share makes no sense.
    """
    prepare_process(args.threads)
    topology = read_fleet(args.fleet).topology if args.fleet else \
        Topology((Device('here'),), (), {})
    images = read_images(args.images)
    with out.steps() as step:
        return prepare(located(args.task), topology, images, step, args.device)


def located(task: str) -> str:
    """Return the name of a task with the whole path of its file."""
    where, _, function = task.rpartition(':')
    return f'{Path(where).resolve()}:{function}' if where.endswith('.py') else task


def devices_of(prepared: Prepared, plan: TrainingPlan) -> list[dict[str, Any]]:
    """Return what each device does in a round: layers, samples, seconds, joules, memory."""
    stages = prepared.stages(plan)
    played, costs = prepared.played(plan), prepared.costs_of(plan)
    rows = []
    for device in prepared.topology.devices:
        row: dict[str, Any] = {'device': device.name, 'layers': None, 'samples': 0,
                               'computing_ms': 1e3 * played.busy[device.name],
                               'busy': played.busy[device.name] / played.makespan,
                               'joules': played.joules.get(device.name), 'memory': 0.0,
                               'memory_of': device.memory_bytes, 'actions': '',
                               'keeps_copies': device.name in plan.keepers}
        if row['keeps_copies']:
            row['memory'] = costs.copies_bytes()
        if device.name in plan.participants:
            row['actions'] = ' '.join(map(str, device_actions(plan, device.name)))
        for stage in stages:
            if device.name in stage.devices:
                row |= {'layers': [stage.first, stage.last - 1],
                        'samples': costs.round_samples(stage, device.name),
                        'first': prepared.graph.layers[stage.first].name,
                        'last': prepared.graph.layers[stage.last - 1].name,
                        'memory': costs.stage_memory(stage, device.name)}
        rows.append(row)
    return rows


def show_devices(rows: list[dict[str, Any]], title: str, out: Output) -> None:
    """Print who does what."""
    shown = table(title, 'device', 'layers', 'samples', 'ms computing', 'busy',
                  'joules', 'memory', 'of', left=2)
    for row in rows:
        layers = ('copies' if row['keeps_copies'] else '-') if row['layers'] is None else \
            f'{row["layers"][0]} to {row["layers"][1]} ({row["first"]:.24} to {row["last"]:.24})'
        shown.add_row(plain(row['device']), plain(layers), str(row['samples']),
                      f'{row["computing_ms"]:.3g}', percent(row['busy']),
                      'unknown' if row['joules'] is None else f'{row["joules"]:.3g}',
                      size(row['memory']),
                      'no limit' if row['memory_of'] == float('inf') else size(row['memory_of']))
    out.show(shown)
    unknown = [row['device'] for row in rows if row['joules'] is None]
    if 0 < len(unknown) < len(rows):
        out.show(f'joules are those of the others: the fleet file has no power of '
                 f'{plain(", ".join(unknown))}')


def trial_of(prepared: Prepared) -> dict[str, Any]:
    """Return what was seen when the task was tried: what takes part, and what goes by grain."""
    trial, graph = prepared.trial, prepared.graph
    return {'samples_tried': trial.samples, 'reading_ms': 1e3 * trial.reading,
            'frozen': list(trial.frozen),
            'unreached': list(trial.unreached), 'hooked': list(trial.hooked),
            'network_by_grain': graph.by_grain, 'loss_by_grain': graph.loss_by_grain}


def show_trial(prepared: Prepared, out: Output) -> None:
    """Print what is not trained, and what looks at several samples and so goes by grain."""
    found, task, grain = trial_of(prepared), prepared.task, prepared.task.grain
    out.show(f'{task.rounds} rounds of {task.batch} samples '
             f'({task.rounds * task.batch / len(task.data):.3g} epochs), in grains of {grain} and '
             f'{task.micro_batches} micro-batches')
    if names := found['frozen']:
        out.show(plain(f'frozen (requires_grad=False): {_few(names)}'))
    if names := found['unreached']:
        out.show(plain(f'reached by the loss for none of {found["samples_tried"]} samples from '
                       f'all of the data: {_few(names)}; trained as soon as a sample does'))
    for what, why in (('the network', found['network_by_grain']),
                      ('the loss', found['loss_by_grain'])):
        if why:
            out.show(plain(f'{what} gets each grain of {grain} alone, since it may look at '
                           f'several samples at once: {why}'))


def _few(names: Sequence[str], most: int = 8) -> str:
    return ', '.join(names[:most]) + (
        f' and {len(names) - most} more' if len(names) > most else '')


def parts_of(plans: Sequence[tuple[int, TrainingPlan]], end: int) -> list[Part]:
    """Return what each device did from which round on, to be drawn; `end` is the last round."""
    ends = [*(first for first, _ in plans[1:]), end]
    return [Part(name, k, first, last, f'layers {stage.first} to {stage.last - 1}' + (
                 '' if share == plan.shared else f', {share / plan.shared:.0%} of the samples'))
            for (first, plan), last in zip(plans, ends) if last > first
            for k, stage in enumerate(plan.stages) for name, share in stage.shares]
