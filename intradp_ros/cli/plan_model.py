# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp plan``: the schedule book for a robot and a server, as a table and a picture."""
from __future__ import annotations

import argparse
from collections.abc import Mapping
import json
from pathlib import Path
from typing import Any

from intradp_ros.cli.arguments import add_renamed, file_of, number
from intradp_ros.cli.books import (
    chosen_mode,
    encodings,
    Goal,
    Grid,
    make_plan,
    MODES,
    Plan,
    stages,
)
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import (
    add_json,
    milliseconds,
    Output,
    output,
    percent,
    plain,
    size,
    table,
)
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.cli.profile_arguments import imagined, own_profile, parsed_profile, read_profile
from intradp_ros.cli.subject import add_model, load_subject, MODEL_HELP, Subject
from intradp_ros.core.atomic_write import all_or_none
from intradp_ros.core.limits import MAX_MBPS, MAX_SECONDS
from intradp_ros.link.delay import ASSUMED_DELAY, ASSUMED_OVERHEAD
from intradp_ros.profiling.profile import Profile
from intradp_ros.report.book_plot import draw_book
from intradp_ros.report.front_plot import draw_front
from intradp_ros.report.timeline_plot import draw_timeline
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.plan_from_profiles import LATENCY, OBJECTIVES
from intradp_ros.systems.sharing.strategies import DEADLINE, SHARED
from intradp_ros.wire.codecs.names import LOSSY

LONGEST_MS = 1e5  # of delay and overhead

MOST_POINTS = 1000
"""Bandwidths of a table, at most."""
DESCRIPTION = f"""\
Compute the schedule book: for every bandwidth of a grid the best schedule that was found, those
of other systems, and a lower bound that no schedule can be below.

  local    everything on the robot
  offload  the whole input to the server, everything there, the result back
  cut      the first operators on the robot, the others on the server: the best such cut
  shared   rows on both sides at once (local operator parallelism); never predicted worse than
           the others, and the same as one of them where nothing better was found

The table has predicted milliseconds for one inference, and how often the lower bound the shared
schedule takes.  Where schedules change, bandwidths are added to the grid.  Books are kept, so a
repeat with the same profiles and options is immediate.

{MODEL_HELP}"""

EPILOG = """\
examples:
  intradp plan mymodel:make --input 1x3x480x640 --robot-profile robot.json \\
      --server-profile server.json -o book.json --picture book.png
  intradp plan intradp_lab.zoo.hed:hed --input 1x3x272x640 --dtype uint8 --robot-slowdown 4 \\
      --grid 5:100:8 --show 20 --timeline timeline.png
  intradp plan mymodel:make --input 1x3x480x640 --robot-profile robot.json \\
      --objective energy --deadline 0.2 --show 20 --pareto front.png"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    add_model(parser)
    robot = parser.add_mutually_exclusive_group(required=True)
    robot.add_argument('--robot-profile', type=file_of(parsed_profile), metavar='FILE',
                       help="the robot's profile, from `intradp profile -o` there")
    robot.add_argument(
        '--robot-slowdown', type=number(0.0, 1e6, above=True), metavar='FACTOR',
        help='imagine a robot that takes FACTOR times as long as this machine; its profile is '
             'scaled from the one measured here, and says so')
    parser.add_argument('--server-profile', type=file_of(parsed_profile), metavar='FILE',
                        help="the server's profile (default: this machine is the server)")
    parser.add_argument('--grid', type=grid, default=Grid(1.0, 400.0, 20), metavar='LOW:HIGH:N',
                        help='bandwidths in Mbit/s, N of them, evenly in the logarithm '
                             '(default 1:400:20)')
    add_link(parser, delay=1e3 * ASSUMED_DELAY, overhead=1e3 * ASSUMED_OVERHEAD)
    parser.add_argument('--shared-air', action='store_true',
                        help='both directions share the rate, as in Wi-Fi (default: full duplex)')
    parser.add_argument('--down-ratio', type=number(0.0, 1e6, above=True), default=1.0,
                        metavar='N', help='downlink rate as a multiple of the uplink rate; '
                             'bandwidths are those of the uplink (default 1)')
    add_lossy(parser)
    _add_goal(parser)
    parser.add_argument('-o', '--output', type=result_file, metavar='FILE',
                        help='write the schedule table here')
    add_renamed(parser, '--picture', '--plot', type=result_picture, metavar='FILE',
                help='draw latency over bandwidth for all strategies')
    parser.add_argument('--show', type=number(0.0, MAX_MBPS, above=True), metavar='MBPS',
                        help='list the stages of the shared schedule for this bandwidth')
    parser.add_argument('--timeline', type=result_picture, metavar='FILE',
                        help='draw the predicted timeline of the schedule that --show lists')
    parser.add_argument('--pareto', type=result_picture, metavar='FILE',
                        help='draw latency against energy at the bandwidth of --show')
    add_json(parser)


def _add_goal(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        '--objective', choices=OBJECTIVES, default=LATENCY,
        help='what shared schedules minimise: latency (default), energy of the robot within the '
             'deadline, or a weighted sum')
    parser.add_argument('--deadline', type=number(0.0, MAX_SECONDS, above=True),
                        default=DEADLINE, metavar='SECONDS',
                        help=f'for the objective energy (default {DEADLINE:g})')
    parser.add_argument('--joule', type=number(0.0, MAX_SECONDS), default=0.1, metavar='SECONDS',
                        help='seconds per joule, for the objective weighted (default 0.1)')


def add_link(parser: argparse.ArgumentParser, delay: float, overhead: float) -> None:
    """Declare what is assumed of the link; milliseconds."""
    parser.add_argument('--delay', type=number(0.0, LONGEST_MS), default=delay, metavar='MS',
                        help=f'one-way delay of the link (default {delay:g} ms)')
    parser.add_argument(
        '--overhead', type=number(0.0, LONGEST_MS), default=overhead, metavar='MS',
        help=f'fixed cost of each transfer, ms (default {overhead:g})')


def add_lossy(parser: argparse.ArgumentParser) -> None:
    """Declare the encodings that change the result; none unless it is asked for."""
    parser.add_argument(
        '--lossy', choices=LOSSY, default='', metavar='ENCODING',
        help=f'let values cross the link with less precision ({", ".join(LOSSY)}) where that is '
             'faster; what it does to the outputs is measured and reported (default: '
             'results are exact)')


def grid(text: str) -> Grid:
    """Read ``low:high:points``, for argparse."""
    try:
        low, high, points = text.split(':')
        read = Grid(float(low), float(high), int(points))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{text!r} is not a grid: write LOW:HIGH:POINTS such as 1:400:20') from None
    if not (0 < read.low <= read.high <= MAX_MBPS and 1 <= read.points <= MOST_POINTS):
        raise argparse.ArgumentTypeError(
            f'{text!r}: LOW must be above 0 and not above HIGH, HIGH at most {MAX_MBPS:g}, '
            f'POINTS from 1 to {MOST_POINTS}')
    return read


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    _check(args)
    with output(args.json) as out:
        subject = load_subject(args, out)
        profiles = _profiles(args, subject, out)
        plan = make_plan(subject, profiles, args.grid, out, delay=args.delay / 1e3,
                         overhead=args.overhead / 1e3, seed=args.seed, lossy=args.lossy,
                         shared_air=args.shared_air, down_ratio=args.down_ratio,
                         goal=Goal(args.objective, args.deadline, args.joule))
        rows = [_row(plan, mbps) for mbps in plan.book.grid]
        data: dict[str, Any] = {
            'model': subject.name, 'digest': subject.shared.digest,
            'devices': {side: profile.device for side, profile in profiles.items()},
            'whole_ms': {side: 1e3 * p.whole_seconds for side, p in profiles.items()},
            'delay_ms': args.delay, 'overhead_ms': args.overhead,
            'shared_air': args.shared_air, 'down_ratio': args.down_ratio,
            'objective': args.objective,
            'deadline_s': args.deadline, 'energy_source': plan.power.source, 'grid': rows,
            'encodings': encodings(plan), 'lossy': args.lossy,
            'lossy_difference': plan.book.lossy_difference,
            'book': json.loads(plan.book.to_json())}
        _show(data, out)
        with all_or_none():
            if args.show is not None:
                data['show'] = _show_schedule(plan, args.show, args.timeline, out)
            if args.pareto:
                data['front'] = _draw_front(plan, args.show, args.pareto, out)
            _write(args, plan, rows)
        out.written(args.timeline, args.pareto, args.output, args.picture)
        out.result(data)
    return 0


def _check(args: argparse.Namespace) -> None:
    if args.timeline and args.show is None:
        raise CommandError('--timeline needs --show MBPS, which says of which schedule')
    if args.pareto and args.show is None:
        raise CommandError('--pareto needs --show MBPS, which says at which bandwidth')


def _profiles(args: argparse.Namespace, subject: Subject, out: Output) -> dict[str, Profile]:
    """Read what is in files first, so that a wrong file is found before anything is measured."""
    files = {ROBOT: args.robot_profile, SERVER: args.server_profile}
    found = {side: read_profile(path, subject) for side, path in files.items() if path}
    if len(found) < len(files):
        own = own_profile(subject, out)
        found.setdefault(SERVER, own)
        if ROBOT not in found:
            found[ROBOT] = imagined(own, args.robot_slowdown)
    return {side: found[side] for side in files}


def _row(plan: Plan, mbps: float) -> dict[str, Any]:
    entries = plan.entries(mbps)
    shared = entries[SHARED]
    played = plan.play(shared)
    simple = min(e.predicted for mode, e in entries.items() if mode != SHARED)
    bound = plan.book.bound(mbps) or 0.0
    return {
        'mbps': mbps, **{f'{mode}_ms': 1e3 * e.predicted for mode, e in entries.items()},
        'bound_ms': 1e3 * bound, 'over_bound': shared.predicted / bound if bound else None,
        **{f'{mode}_j': e.joules for mode, e in entries.items()},
        'chosen': chosen_mode(entries), 'gain': 1 - shared.predicted / simple,
        'stages': len(shared.partition.stages),
        'bytes_up': played.bytes_up, 'bytes_down': played.bytes_down}


def _show(data: dict[str, Any], out: Output) -> None:
    shown = table(f'{data["model"]}: predicted milliseconds of one inference', 'Mbit/s', *MODES,
                  'bound', 'x bound', 'gain', 'J', 'stages', 'up', 'down', left=0)
    for row in data['grid']:
        cells = [milliseconds(row[f'{mode}_ms'] / 1e3) for mode in MODES]
        bold = MODES.index(row['chosen'])
        cells[bold] = f'[bold]{cells[bold]}[/bold]'
        ratio = f'{row["over_bound"]:.2f}' if row['over_bound'] else '-'
        shown.add_row(f'{row["mbps"]:g}', *cells, milliseconds(row['bound_ms'] / 1e3), ratio,
                      percent(row['gain']), f'{row["shared_j"]:.2f}', str(row['stages']),
                      size(row['bytes_up']), size(row['bytes_down']))
    lines = [f'{side:7} {data["whole_ms"][side]:.0f} ms alone: {plain(device)}'
             for side, device in data['devices'].items()]
    out.show(shown, 'bold: what an inference is run by; bound: no schedule is faster; gain: over '
             "the best of the others; J (the robot's energy, modelled), stages, up and down: of "
             'the shared schedule', *lines, *crossing(data))


def crossing(data: Mapping[str, Any]) -> list[str]:
    """Say in which encodings values cross in the shared schedules, and at what price."""
    names = ', '.join(f'{name} ({count})' for name, count in data['encodings'].items())
    lines = [f'encodings of shared schedules (transfers): {names or "none needed"}']
    if data['lossy']:
        lines.append(f'[yellow]lossy {data["lossy"]}: outputs differ by up to '
                     f'{data["lossy_difference"]:.2g} of their spread on this input[/yellow]')
    return lines


def _show_schedule(plan: Plan, mbps: float, timeline: Path | None, out: Output) -> dict[str, Any]:
    entry = plan.entries(mbps)[SHARED]
    found = stages(plan, entry)
    played = plan.play(entry, trace=True)
    listing = table(f'\nshared schedule for {entry.mbps:g} Mbit/s, the nearest of the grid to '
                    f'{mbps:g}', 'operators', 'robot owns',
                    'robot ms', 'server ms', 'bands', 'sent up', 'sent down')
    for stage in found:
        listing.add_row(
            plain(f'{stage["first"]} .. {stage["last"]}  ({stage["operators"]})'),
            percent(stage['share']), f'{stage["robot_ms"]:.1f}', f'{stage["server_ms"]:.1f}',
            f'{stage["robot_bands"]} / {stage["server_bands"]}', size(stage['bytes_up']),
            size(stage['bytes_down']))
    busy = ', '.join(f'{side} computes for {milliseconds(played.busy[side])} ms'
                     for side in (ROBOT, SERVER))
    out.show(listing, f'[bold]{milliseconds(played.latency)} ms[/bold] predicted: {busy}')
    if timeline:
        draw_timeline(played.spans, timeline,
                      f'{plan.subject.name}, shared at {entry.mbps:g} Mbit/s (predicted)')
    return {'mbps': entry.mbps, 'predicted_ms': 1e3 * played.latency, 'stages': found,
            'busy_ms': {side: 1e3 * played.busy[side] for side in (ROBOT, SERVER)}}


def _draw_front(plan: Plan, mbps: float, path: Path, out: Output) -> list[dict[str, Any]]:
    """Draw what schedules take in time and energy, and return those that nothing beats."""
    entries = plan.entries(mbps)
    found = plan.front(mbps)
    draw_front([(1e3 * c.played.latency, c.joules) for c in found],
               {mode: (1e3 * e.predicted, e.joules) for mode, e in entries.items()},
               path, f'{plan.subject.name} at {entries[SHARED].mbps:g} Mbit/s')
    out.show(f'energy of the front: {plan.power.source}')
    return [{'latency_ms': 1e3 * c.played.latency, 'joules': c.joules,
             'partition': c.partition.to_dict()} for c in found]


def _write(args: argparse.Namespace, plan: Plan, rows: list[dict[str, Any]]) -> None:
    if args.output:
        plan.book.save(args.output)
    if args.picture:
        names = [*MODES, *(['bound'] if all(row['bound_ms'] > 0 for row in rows) else [])]
        curves = {name: [(row['mbps'], row[f'{name}_ms']) for row in rows] for name in names}
        draw_book(curves, args.picture, plan.subject.name)
