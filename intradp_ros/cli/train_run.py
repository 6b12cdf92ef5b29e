# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp train run``: train, in processes of this machine, one for each device of a fleet."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import asdict
import math
from pathlib import Path
import queue
from statistics import median
import threading
import time
from typing import Any

import torch

from intradp_ros.cli.arguments import file_of, number, whole
from intradp_ros.cli.command_errors import CommandError, status_of
from intradp_ros.cli.output import add_json, milliseconds, Output, output, plain, size
from intradp_ros.cli.output_paths import result_file, result_folder, result_picture
from intradp_ros.cli.train_task import (
    add_task,
    devices_of,
    parts_of,
    prepared_of,
    show_devices,
    show_trial,
)
from intradp_ros.core.atomic_write import sole_writer
from intradp_ros.core.json_text import read_json
from intradp_ros.profiling.machine import available_cores
from intradp_ros.report.training_plot import draw_training
from intradp_ros.systems.training.base.task import described, TaskError
from intradp_ros.systems.training.layers.checkpoint import best_of, newest_checkpoint
from intradp_ros.systems.training.layers.judgement import judge
from intradp_ros.systems.training.layers.stage_optimiser import trained_parameters
from intradp_ros.systems.training.plan.prepared import Prepared
from intradp_ros.systems.training.plan.round_limits import plan_limit
from intradp_ros.systems.training.plan.training_plan import parse_plan, TrainingPlan
from intradp_ros.systems.training.run.round_groups import check_distributed, GroupError
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.round_commit import Recovery
from intradp_ros.systems.training.service.round_log import (
    check_tensorboard,
    has_events,
    is_rounds,
    NO_ROUNDS,
)
from intradp_ros.systems.training.service.trainer import TrainingError
from intradp_ros.systems.training.service.training_job import (
    JobOptions,
    Outcome,
    Progress,
    Stopped,
    TrainingJob,
)

DESCRIPTION = """\
Train a network over the devices of a fleet. Weights, losses and gradient norms are those of one
process, whatever the plan, and though a device is lost on the way: those that are left go on from
the newest copies that they hold.

Each device is a process of this machine, which computes really. With --fleet they are emulated:
each takes the seconds of its device and sends at its rate, all slowed down by one factor, so that
this machine keeps up with the fastest of them; with --real they are as fast as this machine goes.

Ctrl-C saves the checkpoint and ends; --resume goes on from there, with the same samples, as if
nothing had been."""

EPILOG = """\
examples:
  intradp train run mytask.py:task --fleet config/fleet.yaml
  intradp train run mytask.py:task --fleet config/fleet.yaml --resume
  intradp train run mytask.py:task --fleet config/fleet.yaml --plan plan.json
  intradp train run intradp_ros.systems.training.shapes:shapes -o shapes.safetensors

exit status: 0 trained, 1 training came to nothing, 130 ended by Ctrl-C with a checkpoint"""

#: Seconds between two lines of progress where nobody looks.
LINE_EVERY = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the verb."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_task(parser)
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='the checkpoint (default: out/train/FUNCTION.safetensors)')
    which = parser.add_mutually_exclusive_group()
    which.add_argument('--resume', action='store_true', help='go on from the checkpoint')
    which.add_argument('--overwrite', action='store_true',
                       help='begin anew, and replace a checkpoint that is there')
    parser.add_argument('--plan', type=file_of(plan_of_file), metavar='FILE',
                        help='plan from `intradp train plan -o`, for the same task and fleet, to '
                             'begin with (default: planned here)')
    parser.add_argument('--save-every', type=whole(0, 1 << 30), default=200, metavar='ROUNDS',
                        help='save the checkpoint meanwhile, too (default %(default)s; 0: only at '
                             'the end)')
    parser.add_argument('--real', action='store_true',
                        help='with --fleet: processes as fast as this machine goes')
    parser.add_argument('--slow-down', type=number(0.0, 1e6, above=True), metavar='FACTOR',
                        help='how many times as slow as the devices of the file emulated ones are '
                             '(default: so that this machine keeps up)')
    parser.add_argument('--timeout', type=number(0.2, 600.0), default=3.0, metavar='S',
                        help='the longest that a device waits for another one before it counts as '
                             'lost (default %(default)s)')
    parser.add_argument('--picture', type=result_picture, metavar='FILE',
                        help='draw the loss, and who did what')
    parser.add_argument('--metrics', type=result_file, metavar='FILE',
                        help='a JSON object a line for each round (from 1) as soon as all devices '
                             'have it: epoch, loss, gradient_norm, rate, seconds, samples, plan, '
                             'devices, recoveries; --resume appends')
    parser.add_argument('--tensorboard', type=result_folder, metavar='FOLDER',
                        help='the numbers of --metrics for TensorBoard, each round once, too')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Train, and say what came of it."""
    checkpoint = _checkpoint(args)
    with output(args.json) as out, sole_writer(checkpoint):
        try:
            check_distributed()
            prepared = prepared_of(args, out)
            show_trial(prepared, out)
            factor = _slow_down(args, prepared)
            if factor is not None:
                prepared = prepared.emulated(1.0)
            first = plan_of_file(args.plan) if args.plan else None
            show_devices(devices_of(prepared, prepared.given(first) if first else
                                    prepared.runnable(prepared.best())),
                         'What a round takes of each device (modelled)', out)
            if factor is not None:
                prepared = prepared.emulated(factor)
                out.show(f'emulated, and links, at 1/{factor:g} of these speeds')
            job = TrainingJob(prepared, JobOptions(
                checkpoint, args.save_every, args.resume, factor,
                Settings(timeout=args.timeout, device=args.device), called=args.task,
                threads=args.threads, metrics=args.metrics, tensorboard=args.tensorboard,
                plan=prepared.given(first) if first else None),
                lambda now: heard(now))
        except (ValueError, GroupError) as error:
            raise CommandError(str(error)) from error
        if job.note:
            out.show(plain(job.note))
        with out.steps() as step:
            heard = lines(step, out)
            try:
                outcome, interrupted = _run(job, step)
            except TrainingError as error:
                out.progress_console.print(
                    f'[red]training came to nothing:[/red] {plain(str(error))}', highlight=False,
                    soft_wrap=True)
                out.result({'task': args.task, 'done': False, 'error': str(error),
                            'round': job.saved_round})
                return 1
        data = _summary(prepared, outcome, factor, args)
        _show(data, out)
        out.result(data)
        if args.picture:  # what was trained is said by now, if it cannot be drawn
            _draw(prepared, outcome, args.picture)
    return status_of(interrupted) if interrupted else 0


def plan_of_file(path: Path) -> TrainingPlan:
    """Return the plan of a file; ValueError or OSError if there is none."""
    return parse_plan(read_json(path))


def _checkpoint(args: argparse.Namespace) -> Path:
    """Return where the checkpoint is or will be; refuse to write over another one."""
    name = args.task.rpartition(':')[2] or 'task'
    try:
        path = args.output or result_file(f'out/train/{name}.safetensors')
    except argparse.ArgumentTypeError as error:
        raise CommandError(f'{error}; -o names another file') from None
    if args.resume and not path.is_file():
        raise CommandError(f'--resume: there is no checkpoint {path}; -o names another one')
    for found in (path, best_of(path)):
        if found.exists() and not (args.resume or args.overwrite):
            raise CommandError(f'{found} is there already: --resume goes on from it, --overwrite '
                               'begins anew, -o names another file')
    if args.metrics and args.metrics.resolve() == Path(path).resolve():
        raise CommandError(f'--metrics: {path} is the checkpoint: name another file')
    if args.metrics and args.metrics.exists():
        if not args.metrics.is_file():
            raise CommandError(f'--metrics: {args.metrics} is not a regular file, from which '
                               '--resume could drop rounds: name one')
        if not is_rounds(args.metrics):
            raise CommandError(f'--metrics: {args.metrics}: {NO_ROUNDS}')
        if not (args.resume or args.overwrite):
            raise CommandError(f'--metrics: {args.metrics} is there already: --overwrite begins '
                               'it anew, or name another file')
    if args.tensorboard and not (args.resume or args.overwrite) and has_events(args.tensorboard):
        raise CommandError(f'--tensorboard: {args.tensorboard} has rounds already: --overwrite '
                           'begins them anew, or name another folder')
    if args.tensorboard:
        try:
            check_tensorboard()
        except TaskError as error:
            raise CommandError(f'--tensorboard: {error}') from error
    if args.resume:
        try:
            newest_checkpoint(path)
        except TaskError as error:
            raise CommandError(str(error)) from error
    return Path(path)


def _slow_down(args: argparse.Namespace, prepared: Prepared) -> float | None:
    """
    Return how many times as slow as the fleet it is emulated; None where it is not.

    All processes compute as much as the devices do, on the cores of this machine.
    """
    if not args.fleet or args.real:
        return None
    speeds = [device.speed for device in prepared.topology.devices]
    return args.slow_down or float(math.ceil(
        1.5 * max(*speeds, sum(speeds) / available_cores())))


def _run(job: TrainingJob, step: Callable[[str], None],
         ) -> tuple[Outcome, KeyboardInterrupt | None]:
    """
    Run a job in a thread of its own; at Ctrl-C it saves and ends, at the second one at once.

    Return by what it was ended before it was done.
    """
    ended: queue.SimpleQueue[Outcome | BaseException] = queue.SimpleQueue()

    def work() -> None:
        try:
            ended.put(job.run())
        except BaseException as error:
            ended.put(error)

    threading.Thread(target=work, daemon=True).start()
    interrupted: KeyboardInterrupt | None = None
    while True:
        try:
            found = ended.get(timeout=0.2)  # not join(): interrupted, it takes the thread for done
        except queue.Empty:
            continue
        except KeyboardInterrupt as end:
            if interrupted:
                raise
            interrupted = end
            step('saving the checkpoint after the round at hand (Ctrl-C again: end at once)')
            job.stop()
            continue
        if isinstance(found, BaseException):
            raise interrupted if interrupted and isinstance(found, Stopped) else found
        return found, None if found.done else interrupted


def lines(step: Callable[[str], None], out: Output) -> Callable[[Progress], None]:
    """Return what shows progress: all of it on a terminal, else a line now and then."""
    last: dict[str, Any] = {'time': -math.inf, 'what': None, 'text': ''}

    def heard(now: Progress) -> None:
        what = now.state, now.plan, now.lost, now.trouble
        waits = time.monotonic() - last['time'] < LINE_EVERY and what == last['what']
        if waits and not out.progress_console.is_terminal:
            return
        text = progress_text(now)
        if text != last['text']:
            last.update(time=time.monotonic(), what=what, text=text)
            step(text)
    return heard


def progress_text(now: Progress) -> str:
    """Return a line of progress."""
    parts = [f'{now.state}: round {now.round} of {now.rounds}']
    if not math.isnan(now.loss):
        parts.append(f'loss {now.loss:.4g}')
    if now.validation:
        parts.append(f'check {_judgement(now.validation)}')
    if now.samples_per_second:
        parts.append(f'{now.samples_per_second:.3g} samples/s')
    if now.joules is not None:
        parts.append(f'{now.joules:.3g} J (modelled)')
    if now.plan:
        parts.append(f'layers: devices(grains) {now.plan}')
    if now.lost:
        parts.append(f'lost: {", ".join(now.lost)}')
    if now.trouble:
        parts.append(f'{now.trouble}; it is tried again')
    return ', '.join(parts)


def _judgement(found: Mapping[str, Any]) -> str:
    """Return loss and accuracy, where there is one, in words."""
    return f'loss {found["loss"]:.4g}' + (
        '' if found['accuracy'] is None else f', accuracy {found["accuracy"]:.1%}')


def _summary(prepared: Prepared, outcome: Outcome, factor: float | None,
             args: argparse.Namespace) -> dict[str, Any]:
    figures = outcome.figures
    taken = [float(figures[k]['seconds']) for k in sorted(figures)]
    samples = sum(int(figure['samples']) for figure in figures.values())
    return {
        'task': args.task, 'done': outcome.done, 'round': outcome.round,
        'rounds': prepared.task.rounds, 'resumed_from': outcome.resumed_from,
        'checkpoint': str(outcome.checkpoint), 'digest': outcome.digest,
        'loss': [figures[k]['loss'] for k in sorted(figures)],
        'gradient_norm': [figures[k]['norm'] for k in sorted(figures)], 'samples': samples,
        'seconds': outcome.seconds,
        'samples_per_second': samples / sum(taken) if taken else 0.0,
        'slow_down': factor, 'joules_modelled': outcome.joules,
        'plans': [{'from_round': first, 'plan': str(plan)} for first, plan in outcome.plans],
        **(_rounds(prepared, outcome) if factor is not None or not args.fleet else {}),
        'recoveries': [_recovery(prepared, one, outcome) for one in outcome.recoveries],
        'lost': [name for recovery in outcome.recoveries for name in recovery.lost],
        'validation': {k + 1: figures[k]['validation'] for k in sorted(figures)
                       if figures[k]['validation']},
        'best_round': outcome.best or None,
        'best': str(best_of(outcome.checkpoint)) if outcome.best else None,
        'unnoted': outcome.unnoted or None,
        'unchanged': _unchanged(prepared, outcome), **_judged(prepared, outcome)}


def _judged(prepared: Prepared, outcome: Outcome) -> dict[str, Any]:
    """Return how the result does on other samples, or why nobody knows; it is saved by now."""
    try:
        found = judge(prepared.task, outcome.state)
    except Exception as error:  # of the task's code
        return {'check': None, 'check_error': described(error)}
    return {'check': asdict(found) if found else None}


def _unchanged(prepared: Prepared, outcome: Outcome) -> list[str]:
    """Return the parameters to be trained that are as they were: no sample reached them, say."""
    return [name for name, p in trained_parameters(prepared.task)
            if torch.equal(outcome.state.get(f'p:{name}', p), p)] if outcome.state else []


def _rounds(prepared: Prepared, outcome: Outcome) -> dict[str, Any]:
    """Return what rounds by the last plan took (median), and the estimated least."""
    first, plan = outcome.plans[-1]
    taken = [float(figures['seconds']) for number, figures in outcome.figures.items()
             if number > first]
    limit = plan_limit(prepared.costs_of(plan), prepared.stages(plan))
    return {'round_ms': 1e3 * median(taken) if taken else None,
            'predicted_ms': 1e3 * prepared.played(plan).makespan,
            'limit_ms': 1e3 * limit.seconds, 'binds': limit.binds,
            **_validations(prepared, outcome, plan)}


def _validations(prepared: Prepared, outcome: Outcome, plan: TrainingPlan) -> dict[str, Any]:
    """Return what validations took (median), and what was predicted."""
    taken = [float(one['validation']['seconds']) for one in outcome.figures.values()
             if one['validation']]
    return {'validation_ms': 1e3 * median(taken),
            'predicted_validation_ms': 1e3 * prepared.validation_seconds(plan)} if taken else {}


def _recovery(prepared: Prepared, recovery: Recovery, outcome: Outcome) -> dict[str, Any]:
    """
    Return what a loss cost, from when it was noticed on.

    At least the bytes of layers must cross the busiest medium, and the rounds since the tag must
    be trained again, as long as rounds by the same plan took.
    """
    table, topology, carried = prepared.table, prepared.topology, dict[str, float]()
    for move in recovery.moved:
        nbytes = sum(table.weight_bytes[k] + table.optimiser_bytes[k] for k in move.layers)
        for medium in topology.path(move.source, move.target) if move.source else ():
            carried[medium] = carried.get(medium, 0.0) + nbytes
    bytes_ms = 1e3 * max((nbytes / topology.medium(name).bytes_per_second
                          for name, nbytes in carried.items()), default=0.0)
    again = recovery.reached - recovery.tag
    last = [float(outcome.figures[k]['seconds'])
            for k in range(recovery.tag, recovery.reached) if k in outcome.figures]
    over = recovery.planned and recovery.ready and recovery.caught_up
    return {
        'lost': list(recovery.lost), 'at_round': recovery.reached, 'rounds_replayed': again,
        'ms': {name: 1e3 * seconds for name, seconds in zip(
            ('leave', 'move', 'replay'), recovery.parts(recovery.noticed))} if over else None,
        'least_ms': {'move': bytes_ms, 'replay': 1e3 * sum(last)}}


def _show(data: dict[str, Any], out: Output) -> None:
    what = 'Trained' if data['done'] else 'Saved'
    if data['unnoted']:
        out.show(plain(data['unnoted']))
    if data['loss']:
        out.show(f'{data["samples"]} samples in {len(data["loss"])} rounds: loss '
                 f'{data["loss"][0]:.4g} to {data["loss"][-1]:.4g}, '
                 f'{data["samples_per_second"]:.3g} samples/s')
    if data.get('round_ms'):
        out.show(f'a round took {milliseconds(data["round_ms"] / 1e3)} ms '
                 f'({milliseconds(data["predicted_ms"] / 1e3)} predicted); estimated least of the '
                 f'plan: {milliseconds(data["limit_ms"] / 1e3)} ms, by {data["binds"]} '
                 f'({data["round_ms"] / data["limit_ms"]:.2f} x)')
    if data.get('validation_ms'):
        out.show(f'a validation took {milliseconds(data["validation_ms"] / 1e3)} ms '
                 f'({milliseconds(data["predicted_validation_ms"] / 1e3)} predicted)')
    for one in data['recoveries']:
        if one['ms']:
            took, least = one['ms'], one['least_ms']
            out.show(f'{plain(", ".join(one["lost"]))} lost at round {one["at_round"]}: after '
                     f'{sum(took.values()):.0f} ms the others were there again '
                     f'({took["leave"]:.0f} to leave the plan, {took["move"]:.0f} to move layers, '
                     f'{took["replay"]:.0f} for {one["rounds_replayed"]} rounds; bytes need '
                     f'{least["move"]:.0f} at least, rounds {least["replay"]:.0f})')
    if names := data['unchanged']:
        out.show(plain(f'as they were at the beginning: {", ".join(names[:8])}'
                       + (' ...' if len(names) > 8 else '')))
    if check := data['check']:
        out.show(f'on {check["samples"]} samples that it never saw: {_judgement(check)}')
    if 'check_error' in data:
        out.show(plain(f'it cannot be judged by check: {data["check_error"]}'))
    if data['best']:
        out.show(plain(f'the best weights are those of round {data["best_round"]}: '
                       f'{data["best"]}'))
    if data['done'] and data['round'] < data['rounds']:
        out.show('ended early: no validation was better for as long as the task waits (patience)')
    out.show(f'{what}: {data["checkpoint"]} ({size(Path(data["checkpoint"]).stat().st_size)}, '
             f'round {data["round"]} of {data["rounds"]}, SHA-256 {data["digest"]})'
             + ('' if data['done'] else '; --resume goes on from it'))


def _draw(prepared: Prepared, outcome: Outcome, path: Path) -> None:
    lost = [(name, recovery.reached) for recovery in outcome.recoveries for name in recovery.lost]
    draw_training([outcome.figures[k]['loss'] for k in sorted(outcome.figures)], (),
                  parts_of(outcome.plans, outcome.round), prepared.topology.names, lost, path,
                  first=outcome.resumed_from)
