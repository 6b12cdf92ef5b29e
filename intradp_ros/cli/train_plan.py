# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp train plan``: who trains what, how long a round takes, and the least."""
from __future__ import annotations

import argparse
import json
import time
from typing import Any

from intradp_ros.cli.arguments import add_renamed
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, milliseconds, Output, output, plain, size, table
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.cli.train_task import (
    add_task,
    devices_of,
    prepared_of,
    show_devices,
    show_trial,
    trial_of,
)
from intradp_ros.core.atomic_write import all_or_none, write_atomically
from intradp_ros.report.round_plot import draw_round, kind_of, RoundSpan, SUMS, VALUES
from intradp_ros.schedule.task_graph import ComputeTask, TransferTask
from intradp_ros.systems.training.plan.baselines import baseline_seconds, BASELINES
from intradp_ros.systems.training.plan.hybrid_plan import HybridPlan
from intradp_ros.systems.training.plan.hybrid_planner import in_fewer_passes, judged, stages_of
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.replanning import data_of
from intradp_ros.systems.training.plan.round_limits import fleet_limit, plan_limit
from intradp_ros.systems.training.plan.training_plan import TrainingPlan

DESCRIPTION = """\
Plan the training of a network over the devices of a fleet: which device computes which layers, and
how many samples of every micro-batch. Groups of devices share a stage and sum their gradients.

Seconds of layers, forward and backward by batch, are measured on this machine, once; a device of
speed 2 takes half of them. Rounds and joules are modelled by the event simulator. The least
that a round could take is an estimate from these rates; what needs that long is printed, too."""

EPILOG = """\
examples:
  intradp train plan mytask.py:task --fleet config/fleet.yaml
  intradp train plan intradp_ros.systems.training.shapes:shapes --timeline round.png
  intradp train plan mytask.py:task --fleet fleet.yaml --images robot1=0.6 --images robot2=0.4"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_task(parser)
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='write the plan as JSON')
    add_renamed(parser, '--timeline', '--picture', type=result_picture, metavar='FILE',
                help='draw who computes and sends when, in one round')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Plan, and show it."""
    with output(args.json) as out:
        try:
            prepared = prepared_of(args, out)
            begun = time.perf_counter()
            with out.status('planning'):
                best = prepared.best()
                plan = prepared.runnable(best)
            took = time.perf_counter() - begun
            data = _described(prepared, best, plan)
        except ValueError as error:
            raise CommandError(str(error)) from error
        data |= {'planning_seconds': took, 'devices': devices_of(prepared, plan),
                 'plan': plan.to_json(), **trial_of(prepared)}
        show_trial(prepared, out)
        _show(data, out)
        with all_or_none():
            if args.output:
                write_atomically(args.output, json.dumps(plan.to_json()))
            if args.timeline:
                _draw(prepared, plan, args)
        out.result(data)
    return 0


def _described(prepared: Prepared, best: HybridPlan, plan: TrainingPlan) -> dict[str, Any]:
    """Return the figures of a plan, its limits, and the plans of others."""
    costs, task, first = prepared.costs, prepared.task, best.stages[0]
    own = prepared.costs_of(best)
    limit, any_plan = plan_limit(own, best.stages), fleet_limit(costs)
    judging = prepared.validation_seconds(plan)
    others: dict[str, float | None] = {}
    for name in prepared.topology.names:
        if alone := stages_of(costs, ((0, (name,)),)):
            others[f'{name} alone'] = in_fewer_passes(costs, judged(costs, alone)).seconds
    for name, planner in BASELINES.items():
        found = planner(costs)
        others[name] = baseline_seconds(costs, found) if found else None
    return {
        'task': prepared.name, 'layers': costs.layers, 'batch': task.batch,
        'micro_batches': best.micro_batches, 'grain': task.grain, 'shape': best.shape,
        'round_ms': 1e3 * best.seconds, 'samples_per_second': task.batch / best.seconds,
        'rounds_seconds': task.rounds * best.seconds + task.validations * judging,
        'validation_ms': 1e3 * judging, 'validations': task.validations,
        'limit_ms': 1e3 * limit.seconds, 'binds': limit.binds, 'x': best.seconds / limit.seconds,
        'any_plan_ms': 1e3 * any_plan.seconds, 'any_plan_binds': any_plan.binds,
        'x_any_plan': best.seconds / any_plan.seconds, 'carried': dict(best.carried),
        'data': dict(data_of(costs.images, len(task.data))),
        'input_bytes': costs.table.border_bytes[0] * sum(
            own.round_samples(first, name) * (1 - costs.images.get(name, 0.0))
            for name in first.devices) if costs.images else 0.0,
        'others_ms': {name: seconds and 1e3 * seconds for name, seconds in others.items()}}


def _show(data: dict[str, Any], out: Output) -> None:
    show_devices(data['devices'], f'{data["layers"]} layers, {data["batch"]} samples a round in '
                 f'{data["micro_batches"]} micro-batches, planned in '
                 f'{data["planning_seconds"]:.2f} s (modelled)', out)
    for row in data['devices']:
        if row['actions']:
            out.show(plain(f'{row["device"]}: {row["actions"]}'))
    out.show('F, B: forward and backward pass of a micro-batch; S, U: sum of gradients, update'
             + ('; I: inputs for others' if data['data'] else ''))
    others = table('A round by other plans', 'plan', 'ms', 'x ours')
    for name, value in sorted(data['others_ms'].items(), key=lambda row: row[1] or float('inf')):
        if value is None:
            others.add_row(name, 'fits nowhere', '')
        else:
            others.add_row(name, milliseconds(value / 1e3), f'{value / data["round_ms"]:.2f}')
    if data['data']:
        out.show('samples lie on ' + plain(', '.join(f'{name} ({count})' for name, count in
                                                     data['data'].items()))
                 + f'; {size(data["input_bytes"])} of inputs go to others in a round')
    out.show(
        others, 'EDDL: all devices share all samples; PP: each device has a stage',
        f'a round takes {milliseconds(data["round_ms"] / 1e3)} ms: '
        f'{data["samples_per_second"]:.3g} samples/s, all rounds {data["rounds_seconds"]:.3g} s'
        + (f', with {data["validations"]} validations of '
           f'{milliseconds(data["validation_ms"] / 1e3)} ms' if data['validations'] else ''),
        f'estimated least of this plan: {milliseconds(data["limit_ms"] / 1e3)} ms, by '
        f'{data["binds"]} ({data["x"]:.2f} x)',
        f'estimated least of any plan: {milliseconds(data["any_plan_ms"] / 1e3)} ms, by '
        f'{data["any_plan_binds"]} if bytes took no time ({data["x_any_plan"]:.2f} x)')


def _draw(prepared: Prepared, plan: TrainingPlan, args: argparse.Namespace) -> None:
    topology = prepared.topology
    tasks, played, spans = prepared.tasks(plan), prepared.played(plan), []
    for task, start, stop in zip(tasks.tasks, played.start.tolist(), played.finish.tolist()):
        if isinstance(task, ComputeTask):
            text = task.name.partition(' ')[0]
            spans.append(RoundSpan(task.device, kind_of(text), text, start, stop))
        elif isinstance(task, TransferTask) and task.nbytes:
            spans += [RoundSpan(medium, SUMS if task.name == 'gradients' else VALUES, '', start,
                                stop)
                      for medium in dict.fromkeys(topology.path(task.source, task.target))]
    media = [m.name for m in topology.media if any(span.row == m.name for span in spans)]
    draw_round(spans, topology.names, media, args.timeline,
               f'One round: {milliseconds(plan.seconds)} ms (modelled)')
