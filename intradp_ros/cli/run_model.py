# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp run``: real inferences shared in this process, over a link in memory."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
import statistics
from typing import Any

from intradp_ros.cli.arguments import existing_file, number, whole
from intradp_ros.cli.books import Grid, make_plan, MODES
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, milliseconds, Output, output, size
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.cli.pair_run import connect, figures, run_frames, sent_bytes, Session
from intradp_ros.cli.plan_model import add_link, add_lossy
from intradp_ros.cli.profile_arguments import own_profile
from intradp_ros.cli.subject import add_model, load_subject, MODEL_HELP, Subject
from intradp_ros.core.atomic_write import all_or_none
from intradp_ros.core.json_text import read_text
from intradp_ros.link.predictor import make_predictor, PREDICTORS
from intradp_ros.profiling.profile import Profile
from intradp_ros.report.chrome_trace import TracedFrame, write_trace
from intradp_ros.report.result_tables import mode_table
from intradp_ros.report.timeline_plot import draw_timeline
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.session.pair import in_process_pair

DESCRIPTION = f"""\
Share real inferences between a robot and a server that are two sides of this process, over a
link of a given bandwidth in memory.  It is the runtime that the ROS 2 nodes use, without ROS.

The model is profiled (once) and planned for this bandwidth; then every frame is computed by the
unsplit eager model and in every mode in turn: local, offload, cut, shared.  Every answer is
compared with the eager model's; the difference is in units of its spread.  Robot and server
have the same speed here, and share this machine's memory and cores, of which two should be free.
Mode shared learns from what frames take, as the nodes do: it leaves what does not keep its word.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp run intradp_lab.zoo.hed:hed --input photo.jpg --size 160x384 --dtype uint8 --mbps 50
  intradp run mymodel:make --input 1x3x240x320 --mbps 20 --plan table.json
  intradp run mymodel:make --input 1x3x240x320 --mbps 100 --frames 20 --mode shared \\
      --timeline timeline.png

exit status: 1 if an answer is not the unsplit model's (0 with --lossy)"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    parser.add_argument('--mbps', type=number(1e-3, 1e6), default=20.0, metavar='RATE',
                        help='bandwidth of the link in each direction, Mbit/s (default 20)')
    add_link(parser, delay=0.0, overhead=0.3)
    add_lossy(parser)
    parser.add_argument('--plan', type=existing_file, metavar='TABLE.json',
                        help='schedule table from `intradp plan -o` (default: planned here for '
                             '--mbps)')
    parser.add_argument('--frames', type=whole(1, 1_000_000), default=10, metavar='N',
                        help='frames in each mode (default 10), each of them another input: the '
                             'first one shifted sideways')
    parser.add_argument('--mode', action='append', choices=tuple(MODES), metavar='MODE',
                        help=f'only this mode; again for more (of {", ".join(MODES)})')
    parser.add_argument('--predictor', choices=tuple(PREDICTORS), default='ewma',
                        help='how the bandwidth is predicted from measured rates')
    parser.add_argument('--timeline', type=result_picture, metavar='FILE',
                        help='draw what was measured in one inference of the last mode')
    parser.add_argument('--trace', type=result_file, metavar='FILE.json',
                        help='write it as a trace for https://ui.perfetto.dev and Chrome')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    planned = _table(args.plan) if args.plan else None
    with output(args.json) as out:
        subject = load_subject(args, out)
        if planned:
            _check_table(planned, args, subject)
        profile = own_profile(subject, out)
        book = planned or _book(args, subject, profile, out)
        log: list[str] = []
        model = subject.shared.tuned(profile.tuning)
        with in_process_pair(
                model, make_predictor(args.predictor), mbps=args.mbps,
                delay=args.delay / 1e3, power=profile.power, lossy=args.lossy,
                experience=LatencyCalibration(), log=log.append) as pair:
            with out.status('connecting'):
                connect(pair, book, log)
            session = Session(subject, pair, args.mode or tuple(MODES))
            with out.progress('running') as advance:
                run_frames(session, args.frames, advance)
            rate = pair.robot.predicted_rate / 125e3
        data = _summary(args, session, rate)
        _show(data, out)
        with all_or_none():
            if args.timeline:
                draw_timeline(session.events, args.timeline, _title(args, session))
            if args.trace:
                last = session.series[session.modes[-1]].outcomes[-1]
                write_trace(args.trace, [TracedFrame(last.stats.inference, 0.0, session.events)],
                            _title(args, session))
        out.written(args.timeline, args.trace)
        out.result(data)
    return 0 if data['exact'] or args.lossy else 1


def _table(path: Path) -> ScheduleBook:
    try:
        return ScheduleBook.from_json(read_text(path))
    except ValueError as error:
        raise CommandError(f'{path}: {error}') from error


def _check_table(book: ScheduleBook, args: argparse.Namespace, subject: Subject) -> None:
    shared = subject.shared
    if (book.digest, book.axis) != (shared.digest, shared.split.axis):
        raise CommandError(
            f'{args.plan} is a table for model {book.digest[:12]} along axis {book.axis}, '
            f'this is {shared.digest[:12]} along axis {shared.split.axis}: plan for this model')
    if book.lossy != args.lossy:
        raise CommandError(f'{args.plan} was planned with --lossy {book.lossy or "off"}: give the '
                           'same here')


def _book(args: argparse.Namespace, subject: Subject, profile: Profile, out: Output,
          ) -> ScheduleBook:
    plan = make_plan(subject, {ROBOT: profile, SERVER: profile}, Grid(args.mbps, args.mbps, 1),
                     out, delay=args.delay / 1e3, overhead=args.overhead / 1e3, seed=args.seed,
                     lossy=args.lossy)
    return plan.book


def _summary(args: argparse.Namespace, session: Session, rate: float) -> dict[str, Any]:
    return {
        'model': session.subject.name, 'digest': session.subject.shared.digest,
        'link': {'mbps': args.mbps, 'delay_ms': args.delay, 'measured_mbps': rate},
        'eager_ms': 1e3 * statistics.median(session.eager),
        'energy_source': session.pair.robot.power.source,
        'modes': {mode: figures(series) for mode, series in session.series.items()},
        'exact': all(series.exact for series in session.series.values()),
        'lossy': args.lossy, 'sent': sent_bytes(session.pair)}


def _show(data: Mapping[str, Any], out: Output) -> None:
    link = data['link']
    out.show(mode_table(f'{data["model"]} over {link["mbps"]:g} Mbit/s', data['modes']),
             f'[bold]{milliseconds(data["eager_ms"] / 1e3)} ms[/bold] eager, unsplit; '
             f'the link was measured at {link["measured_mbps"]:.3g} Mbit/s')
    out.show(*(f'{side} sent {size(crossed)} as {name}, plain {size(plain)}'
               for side, counts in data['sent'].items()
               for name, (crossed, plain) in counts.items()))
    recovered = sum(mode['recovered'] for mode in data['modes'].values())
    if recovered:
        out.warn(f'{recovered} inferences were finished by the robot alone, as the server was '
                 'late')
    if data['lossy']:
        out.show(f'[yellow]lossy {data["lossy"]} was asked for: answers may differ[/yellow]')
    elif not data['exact']:
        out.show('[red]Not exact: a difference to the unsplit model is beyond rounding[/red]')


def _title(args: argparse.Namespace, session: Session) -> str:
    return f'{session.subject.name}, {session.modes[-1]} at {args.mbps:g} Mbit/s (measured)'
