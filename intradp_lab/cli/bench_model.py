# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench MODEL``: what sharing would give a model on a robot, a server, a link."""
from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from intradp_lab.cli.emulated_link import add_emulated_link, link_settings, planned_delay
from intradp_lab.emulation.network import available, NetworkError
from intradp_lab.emulation.processes import ChildError
from intradp_lab.emulation.settings import LinkSettings, SHARED_MEDIUM
from intradp_lab.emulation.trace import constant, LinkTrace, read_trace
from intradp_lab.emulation.transport_choice import AUTO, CHOICES
from intradp_lab.report.statements import outage_sentence
from intradp_lab.rivals.entries import RIVALS, with_rivals
from intradp_lab.testbed.case import CaseRun, SEEN
from intradp_lab.testbed.devices import as_emulated
from intradp_lab.testbed.exactness import BUDGET
from intradp_lab.testbed.in_process import check_in_process, IN_PROCESS, MARK
from intradp_lab.testbed.outage_run import check_outages, LONGEST, run_outages, SHORTEST
from intradp_lab.testbed.recorded import profile_from_recording, read_recording
from intradp_lab.testbed.trial import load_seen, Phase, Trial
from intradp_ros.cli.arguments import existing_file, file_of, number
from intradp_ros.cli.books import Grid, make_plan, MODES, Plan
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, Advance, Output, output, percent, size, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.cli.profile_arguments import parsed_profile, read_profile
from intradp_ros.cli.subject import add_model, load_subject, MODEL_HELP, Subject
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.limits import MAX_SECONDS
from intradp_ros.graph.serialise import save_graph
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.make_book import PlanningProblem
from intradp_ros.systems.sharing.search.pool import Aim
from intradp_ros.systems.sharing.strategies import SHARED

BOOK = 'book.json'
SYSTEMS = (*(mode for mode in MODES if mode != SHARED), *RIVALS, SHARED)
DESCRIPTION = f"""\
Measure what each system makes of a model on a robot, a server and a link that are not here.

Robot and server are two processes with a real session over DDS and a shaped link between them
(two network namespaces: Linux, as root; without it there is --transport in-process, a link in
memory without DDS).  Their devices are emulated: an operator takes the time of its profile and
computes nothing, while messages of the right size cross the link.  So the latencies are those of
the profiles' hardware.  Energy is modelled.  Results are in the folder that --out names.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp profile mymodel:make --input 1x3x480x640 -o robot.json     # on the robot
  intradp profile mymodel:make --input 1x3x480x640 -o server.json    # on the server
  intradp bench mymodel:make --input 1x3x480x640 --robot-profile robot.json \\
      --server-profile server.json --link wifi.csv --seconds 60 --outages 0.5 2 10"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    for side in (ROBOT, SERVER):
        parser.add_argument(f'--{side}-profile', type=file_of(parsed_profile), metavar='FILE',
                            help=f"the {side}'s profile, from `intradp profile -o` there")
    parser.add_argument('--recording', type=file_of(read_recording), metavar='FILE',
                        help='operator times of both devices that were recorded for the same '
                             'architecture, instead of the two profiles')
    parser.add_argument('--link', required=True, type=link, metavar='TRACE.csv|MBPS',
                        help='a trace with the columns t_seconds and Mbps, replayed in its '
                             'order, or a rate that does not change')
    add_emulated_link(parser)
    parser.add_argument('--systems', nargs='+', choices=SYSTEMS, default=list(SYSTEMS),
                        help='which to compare (default: all)')
    parser.add_argument('--seconds', type=number(0.0, MAX_SECONDS, above=True), default=20.0,
                        help='how long each system runs, from the beginning of the trace '
                             '(default %(default)g)')
    parser.add_argument('--outages', nargs='+', type=number(SHORTEST, LONGEST), default=[],
                        metavar='SECONDS',
                        help='afterwards let the link fail for these times, one after the other, '
                             'while the model is shared, and report what that did')
    parser.add_argument('--check', type=number(0.0, MAX_SECONDS), default=BUDGET,
                        metavar='SECONDS', help='how long to check afterwards, on real values, '
                             'that the schedules that ran are exact (default %(default)g)')
    parser.add_argument('--transport', choices=[*CHOICES, IN_PROCESS], default=AUTO,
                        help=f'DDS transport profile; or {IN_PROCESS}: no DDS, but frames handed '
                             'over in memory, which needs no root; figures are marked so')
    parser.add_argument('--out', type=result_folder, default='out/bench',
                        help='folder to write to')
    add_json(parser)


def link(text: str) -> LinkTrace:
    """Read a rate in Mbit/s or the name of a trace file, for argparse."""
    try:
        return constant(float(text)) if _is_number(text) else read_trace(existing_file(text))
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    settings = _check(args)
    with output(args.json) as out:
        args.out.mkdir(parents=True, exist_ok=True)
        subject = load_subject(args, out)
        plan = _plan(args, settings, subject, out)
        name = f'{subject.name}, {MARK}' if args.transport == IN_PROCESS else subject.name
        case = CaseRun(args.out, name, _trial(args, plan), args.link, args.seconds,
                       plan.book.bounds, settings)
        try:
            with out.progress('running') as advance:
                report = case.measure(args.transport, _counting(advance, len(args.systems)))
            if args.outages:
                with out.status('running while the link fails'):
                    report = run_outages(case, report, args.out / BOOK, args.outages,
                                         args.transport, lambda _: None)
        except ChildError as error:
            raise CommandError(str(error)) from error
        except NetworkError as error:
            raise CommandError(f'{error}; network namespaces need root; without it there is '
                               f'--transport {IN_PROCESS}, which has no DDS') from error
        with out.status('checking that what ran is exact'):
            report = case.check(report, load_seen(args.out / SEEN), args.check)
        case.page()
        out.show(_table(name, report['systems']), *_outages(report),
                 f'Wrote {args.out}/report.html, report.json and trace.png')
        out.result(report)
    return 0


def _check(args: argparse.Namespace) -> LinkSettings:
    """Look at all arguments; return the link."""
    if args.transport != IN_PROCESS and (reason := available()):
        raise CommandError(f'no emulated link: {reason}; without it there is --transport '
                           f'{IN_PROCESS}, which has no DDS')
    if not max(args.link.mbps) > 0:
        raise CommandError('the link never carries anything: every rate is 0')
    try:
        check_outages(args.outages)
    except ValueError as error:
        raise CommandError(f'--outages: {error}') from error
    settings = _link(args)
    for side in (ROBOT, SERVER):
        given = getattr(args, f'{side}_profile')
        if args.recording and given:
            raise CommandError('give either --recording or the two profiles, not both')
        if not args.recording and not given:
            raise CommandError(f'--{side}-profile is missing: make it on the {side} with '
                               '`intradp profile -o`')
    return settings


def _link(args: argparse.Namespace) -> LinkSettings:
    settings = link_settings(args)
    if args.transport == IN_PROCESS:
        try:
            check_in_process(settings)
        except ValueError as error:
            raise CommandError(str(error)) from error
    return settings


def _counting(advance: Advance, count: int) -> Callable[[str], None]:
    """Return what counts the systems that have begun."""
    begun: list[str] = []

    def notify(system: str) -> None:
        advance(len(begun), count)
        begun.append(system)

    return notify


def _plan(args: argparse.Namespace, settings: LinkSettings, subject: Subject, out: Output,
          ) -> Plan:
    """Plan for the bandwidths of the trace."""
    profiles = {side: as_emulated(_profile(args, side, subject))
                for side in (ROBOT, SERVER)}
    for side, profile in profiles.items():
        write_atomically(args.out / f'{side}.json', profile.to_json())
    rates = [mbps for mbps in args.link.mbps if mbps > 0]
    # Where packets take long or are lost, transports begin slowly, and so do measured rates.
    low, high = (0.1 if settings.uneven else 0.7) * min(rates), max(rates)
    points = 16 if high >= 1.4 * min(rates) else 8 if settings.uneven else 4
    plan = make_plan(subject, profiles, Grid(low, high, points), out,
                     delay=planned_delay(args), overhead=args.overhead / 1e3,
                     seed=args.seed, shared_air=args.medium == SHARED_MEDIUM)
    with out.status('planning as others do'):
        return replace(plan, book=with_rivals(plan.book, PlanningProblem(
            plan.cost, plan.book.delay, plan.book.overhead, plan.book.shared_air,
            Aim(power=plan.power, seed=args.seed))))


def _profile(args: argparse.Namespace, side: str, subject: Subject) -> Any:
    if args.recording:
        try:
            return profile_from_recording(subject.shared.split, subject.shared.digest,
                                          read_recording(args.recording), side)
        except ValueError as error:
            raise CommandError(str(error)) from error
    return read_profile(getattr(args, f'{side}_profile'), subject)


def _trial(args: argparse.Namespace, plan: Plan) -> Trial:
    """Write what the processes need, and say what they shall do."""
    archive, book = args.out / 'model.graph', args.out / BOOK
    save_graph(plan.subject.graph, archive)
    plan.book.save(book)
    phases = tuple(Phase(name, str(book.resolve()), name, args.seconds)
                   for name in args.systems)
    return Trial(str(archive.resolve()), plan.cost.split.axis,
                 {side: str((args.out / f'{side}.json').resolve()) for side in (ROBOT, SERVER)},
                 phases, str((args.out / SEEN).resolve()))


def _table(name: str, rows: Mapping[str, Mapping[str, Any]]) -> Any:
    result = table(f'{name}, emulated devices', 'system', 'frames', 'mean ms', 'std', 'p95',
                   'predicted', 'error', 'waiting', 'up', 'down', 'J')
    best = min(rows, key=lambda system: rows[system]['mean_ms'])
    for system, row in rows.items():
        error = '-' if row['error_median'] is None else percent(row['error_median'])
        result.add_row(
            system, str(row['frames']), f'{row["mean_ms"]:.1f}', f'{row["std_ms"]:.1f}',
            f'{row["p95_ms"]:.1f}', f'{row["predicted_ms"]:.1f}', error,
            percent(row['waiting_share']), size(row['bytes_up']), size(row['bytes_down']),
            f'{row["energy_j"]:.2f}', style='bold' if system == best else None)
    return result


def _outages(report: Mapping[str, Any]) -> list[Any]:
    """Return a table of what outages did, and the sentence; nothing if there were none."""
    if 'outages' not in report:
        return []
    found = report['outages']
    result = table(f'shared, while the link of {found["mbps"]:.3g} Mbit/s fails: '
                   f'{found["transport"]}', 'link off s', 'frames', 'longest ms',
                   'at most', 'shared again after s', 'missed')
    for row in found['rows']:
        back = '-' if row['back_s'] is None else f'{row["back_s"]:.2f}'
        result.add_row(f'{row["seconds"]:g}', str(row['frames']), f'{row["worst_ms"]:.0f}',
                       f'{found["limit_ms"]:.0f}', back, ', '.join(row['missed']) or 'nothing')
    return [result, outage_sentence(found)]
