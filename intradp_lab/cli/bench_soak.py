# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench soak``: the nodes for an hour, while one thing after another goes wrong."""
from __future__ import annotations

import argparse
from dataclasses import asdict

from intradp_lab.emulation.network import NetworkError
from intradp_lab.emulation.processes import ChildError
from intradp_lab.report.soak_plot import draw_soak
from intradp_lab.soak.process_resources import Growth
from intradp_lab.soak.soak import figures, run_soak, SoakFigures, SoakPlan
from intradp_ros.cli.arguments import MOST_SEED, number, whole
from intradp_ros.cli.command_errors import CommandError
from intradp_ros.cli.output import add_json, Output, output, percent, size, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.report.result_tables import write_json

DESCRIPTION = """\
Run robot, server and planner for a long time, and let one thing after another go wrong.

Servers and planners are killed, stopped, replaced by one with another model and doubled; caches
are spoilt; the link is cut, slowed and loses packets, the cache's disk is full (as root); other
programs take the processors; wall clocks jump by an hour.  A camera publishes frame after frame
and compares every answer with the unsplit model.  The exit status is 1 if a frame was not
answered or an answer was wrong.  What this machine does not allow is left out and named."""

EPILOG = """\
examples:
  intradp bench soak
  intradp bench soak --minutes 5 --seed 7 --mbps 50"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--minutes', type=number(0.0, 1e6, above=True), default=60.0,
                        help='how long (default 60)')
    parser.add_argument('--seed', type=whole(0, MOST_SEED), default=0,
                        help='what happens when (default 0)')
    parser.add_argument('--mbps', type=number(1e-3, 1e6), default=20.0,
                        help='rate of the link, Mbit/s (default 20)')
    parser.add_argument('--out', type=result_folder, default='out/bench/soak',
                        help='folder to write to; it must be empty or not there')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if args.out.exists() and any(args.out.iterdir()):
        raise CommandError(f'{args.out} is not empty: name another folder with --out, or empty it')
    args.out.mkdir(parents=True, exist_ok=True)
    with output(args.json) as out:
        try:
            with out.steps() as step:
                record = run_soak(SoakPlan(60.0 * args.minutes, args.seed, args.mbps), args.out,
                                  step)
        except (ChildError, NetworkError, OSError) as error:
            raise CommandError(str(error)) from error
        found = figures(record)
        report = {'minutes': args.minutes, 'seed': args.seed, 'mbps': args.mbps,
                  'link': 'emulated' if record.linked else 'loopback, not emulated',
                  **asdict(found)}
        write_json(args.out / 'soak.json', report)
        draw_soak(record, args.out / 'soak.png')
        _show(out, found)
        out.show(f'Wrote {args.out}/soak.json and soak.png')
        out.result(report)
    return 0 if found.well else 1


def _show(out: Output, found: SoakFigures) -> None:
    shown = table('faults', 'fault', 'times', 'frames', 'lost', 'by rows', 'otherwise shared',
                  'robot finished', 'robot alone', 'median ms', 'longest ms')
    for name, row in ('none', found.quiet), *found.faults.items():
        shown.add_row(name.replace('_', ' '), *map(str, (
            row.times, row.frames, row.lost, row.by_rows, row.otherwise_shared, row.recovered,
            row.alone)), f'{row.median_ms:.0f}', f'{row.longest_ms:.0f}')
    out.show(shown, (
        f'{found.frames} frames, {found.lost} lost, {found.wrong} wrong (difference at most '
        f'{found.max_rel_diff:.1e}), {found.shared} shared, {found.recovered} finished alone, '
        f'longest {found.longest_ms:.0f} ms'))
    if not found.growth:
        out.show('Too short to say whether a process grows.')
    for name, grown in found.growth.items():
        out.show(_growth_text(name, grown))
    for fault, why in found.left_out.items():
        out.show(f'Left out: {fault.replace("_", " ")}: {why}')


def _growth_text(name: str, grown: Growth) -> str:
    early, late = grown.early, grown.late
    return (f'The {name} held {size(early.resident_bytes)} early and {size(late.resident_bytes)} '
            f'late ({percent(grown.memory)}), {early.threads} and {late.threads} threads, '
            f'{early.descriptors} and {late.descriptors} descriptors.')
