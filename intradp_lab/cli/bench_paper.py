# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench paper``: the paper's evaluation, regenerated."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
import time
from typing import Any

from intradp_lab.emulation.network import available, NetworkError
from intradp_lab.emulation.processes import ChildError
from intradp_lab.emulation.transport_choice import AUTO, CHOICES
from intradp_lab.testbed.evaluation_results import Case, INPUTS, Results
from intradp_lab.testbed.paper import (
    Evaluation,
    finished,
    PAPER,
    PLANS,
    results_of,
    run_case,
    seconds_of,
    smoke,
)
from intradp_lab.testbed.paper_page import INDEX, write_index
from intradp_lab.testbed.preparation import name_of, prepare_all
from intradp_lab.testbed.systems import SYSTEMS
from intradp_lab.testbed.traces import TRACES
from intradp_lab.testbed.workloads import WORKLOADS
from intradp_ros.cli.arguments import number
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, Output, output, percent, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.core.limits import MAX_SECONDS
from intradp_ros.profiling.machine import available_cores, prepare_process

DESCRIPTION = """\
Run the paper's evaluation on this machine: every network, on both recorded links, by all systems.

Robot and server are two processes with real sessions over DDS and a shaped link (network
namespaces: Linux, as root) that replays a stretch of what was recorded indoors or outdoors.
Devices are emulated from the operator times that the paper's authors logged, or, for networks
that they did not run, from costs fitted to those.  Nothing else should run meanwhile.

  local, offload   everything on the robot; everything on the server
  dsccs, spso-ga   the paper's baselines: whole layers on either side
  intra-dp         the paper's system: LOSS by differential evolution
  shared           ours
  shared-de        ours, but with schedules by the paper's differential evolution
  shared-energy    ours, planned for the least energy within a second (as spso-ga is)

Inputs are float32 as in the paper, and what a sensor gives (bytes, bits), for all systems alike.
Plans are made first and kept; cases that have been run are kept, too, so that a run that was
broken off goes on.  Results are in paper.json and a folder for each case."""

EPILOG = """\
examples:
  intradp bench paper --smoke
  intradp bench paper --plan-only
  intradp bench paper --out out/bench
  intradp bench paper --workloads vgg19-bn segmenter --traces outdoors --seconds 20"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--smoke', action='store_true',
                        help='one small network for a few seconds, whatever else is asked for')
    for name, known, what in (('workloads', WORKLOADS, 'networks'), ('traces', TRACES, 'links'),
                              ('systems', SYSTEMS, 'systems'), ('inputs', INPUTS, 'inputs')):
        parser.add_argument(f'--{name}', nargs='+', choices=list(known), default=list(known),
                            metavar=name[:-1].upper(),
                            help=f'{what} to run, of {", ".join(known)} (default: all)')
    parser.add_argument('--seconds', type=number(0.0, MAX_SECONDS, above=True),
                        help='how long each system runs in each case (default 5, smoke 2); longer '
                             'where the robot alone needs it for a dozen inferences')
    parser.add_argument('--check', type=number(0.0, MAX_SECONDS), default=5.0, metavar='SECONDS',
                        help='how long to check after each case, on real values, that the '
                             'schedules that ran are exact (default %(default)g; 0: not at all)')
    parser.add_argument('--transport', choices=CHOICES, default=AUTO,
                        help='DDS transport profile')
    parser.add_argument('--plan-only', action='store_true', help='make plans, run nothing')
    parser.add_argument('--again', action='store_true',
                        help='run cases again that have been run; plans are kept')
    parser.add_argument('--out', type=result_folder, default='out/bench',
                        help='folder to write to')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    evaluation = _evaluation(args)
    with output(args.json) as out:
        _prepare(evaluation, args.out / PLANS, out)
        if args.plan_only:
            out.show(f'plans are in {args.out / PLANS}')
            out.result({'plans': str(args.out / PLANS)})
            return 0
        prepare_process(available_cores())  # for the checks on real values
        results = _run(evaluation, args, out)
        _show(results, out)
        out.show(f'Wrote {args.out / INDEX} and {PAPER}')
        out.result({'cases': len(results.cases), 'tables': results.tables,
                    'outcomes': results.outcomes, 'energy': results.energy})
    return 0


def _evaluation(args: argparse.Namespace) -> Evaluation:
    if not args.plan_only and (reason := available()):
        raise CommandError(f'no emulated link: {reason}; --plan-only needs none')
    chosen = smoke() if args.smoke else Evaluation(
        tuple(WORKLOADS[key] for key in args.workloads), tuple(args.inputs), tuple(args.traces),
        tuple(args.systems))
    return replace(chosen, seconds=args.seconds or chosen.seconds, check=args.check,
                   transport=args.transport)


def _prepare(evaluation: Evaluation, folder: Path, out: Output) -> None:
    wanted = evaluation.wanted
    with out.progress('planning') as advance:
        advance(0, len(wanted))
        prepare_all(wanted, folder, evaluation.planning,
                    lambda done, name: advance(done, len(wanted)), available_cores())


def _run(evaluation: Evaluation, args: argparse.Namespace, out: Output) -> Results:
    """
    Run what has not been run and keep all results after each case.

    A case that fails twice is reported and left out, so that the others run.
    """
    known = {} if args.again else {
        wanted: case for wanted in evaluation.cases
        if (case := finished(evaluation, args.out, *wanted)) is not None}
    missing, begin = [w for w in evaluation.cases if w not in known], time.monotonic()
    with out.steps() as describe:
        for count, (workload, inputs, trace) in enumerate(missing):
            report = partial(_report, describe, f'{name_of(workload, inputs)} {trace}',
                           f'{count + 1}/{len(missing)}', _left(evaluation, begin, count, missing))
            try:
                known[workload, inputs, trace] = _run_case(
                    partial(run_case, evaluation, args.out, workload, inputs, trace, report),
                    f'{name_of(workload, inputs)} {trace}', out)
                _kept(evaluation, known, args.out)
            except ChildError as error:
                out.warn(f'{name_of(workload, inputs)} {trace} failed: {error}')
            except NetworkError as error:
                raise CommandError(str(error)) from error
    if not known:
        raise CommandError('no case could be run')
    results = _kept(evaluation, known, args.out)
    write_index(args.out, results)
    return results


def _run_case(run: Callable[[], Case], name: str, out: Output) -> Case:
    """Run a case, once more if it fails: processes that start together may never meet."""
    try:
        return run()
    except ChildError as error:
        out.warn(f'{name} failed, and runs once more: {error}')
        return run()


def _kept(evaluation: Evaluation, known: Mapping[Any, Case], folder: Path) -> Results:
    """Write the results of all cases that are known, in their order, and return them."""
    results = results_of([known[wanted] for wanted in evaluation.cases if wanted in known])
    results.save(folder / PAPER)
    return results


def _left(evaluation: Evaluation, begin: float, done: int, missing: Sequence[object]) -> float:
    """Return about how many minutes the cases that are left will take."""
    each = (time.monotonic() - begin) / done if done else seconds_of(evaluation, 1)
    return each * (len(missing) - done) / 60


def _report(describe: Callable[[str], None], case: str, place: str, left: float, system: str,
          ) -> None:
    describe(f'{place} {case}: {system} (about {left:.0f} minutes left)')


def _show(results: Results, out: Output) -> None:
    systems = list(dict.fromkeys(name for case in results.cases for name in case.systems))
    times = table('mean milliseconds of an inference (standard deviation), emulated devices',
                  'network', 'inputs', 'link', *systems, 'bound', left=3)
    for case in results.cases:
        best = min(case.systems, key=lambda name: case.systems[name]['mean_ms'])
        times.add_row(case.title, case.inputs, case.trace,
                      *(_cell(case.systems.get(name), name == best) for name in systems),
                      f'{case.bound_ms:.1f}')
    out.show(times)
    targets = table('targets', 'target', 'met', 'of', 'mean gain')
    for target in dict.fromkeys(row['target'] for row in results.outcomes):
        rows = [row for row in results.outcomes if row['target'] == target]
        targets.add_row(target, str(sum(row['met'] for row in rows)), str(len(rows)),
                        percent(sum(row['gain'] for row in rows) / len(rows)))
    if results.energy:
        targets.add_row('energy never above the others, same inputs',
                        str(sum(row['met'] for row in results.energy)), str(len(results.energy)),
                        percent(sum(row['gain'] for row in results.energy) / len(results.energy)))
    out.show(targets, *dict.fromkeys(
        f'missed: {row["text"]}' for row in (*results.outcomes, *results.energy)
        if not row['met']))


def _cell(row: Mapping[str, Any] | None, best: bool) -> str:
    if row is None:
        return '-'
    text = f'{row["mean_ms"]:.1f} ({row["std_ms"]:.1f})'
    return f'[bold]{text}[/bold]' if best else text
