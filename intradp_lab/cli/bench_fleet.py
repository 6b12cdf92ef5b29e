# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""``intradp bench fleet``: plans for fleets side by side, and what the adapter is worth."""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
import json
from pathlib import Path
from typing import Any

from intradp_lab.fleet.adapter_replay import ADAPTER, ORACLE, Played, Replay, STATIC
from intradp_lab.fleet.adapter_scenes import AIR, FPS, scenarios, scene_costs, TARGET
from intradp_lab.fleet.paper_fleets import (
    measure,
    MODELS,
    paper_fleet,
    Row,
    SETTINGS,
)
from intradp_ros.cli.output import add_json, Output, output, table
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.report.fleet_plan_plot import draw_schedule
from intradp_ros.report.view.blocks import bands, facts, headline, remarks, section, view_of
from intradp_ros.report.view.blocks import table as shown
from intradp_ros.report.view.standing_page import standing_page

DESCRIPTION = """\
Plan for imagined fleets as Dora's paper has them, by our planner and by others, and replay the
adapter over recorded and synthetic rates, next to a plan that stays and an oracle that knows all.

Everything is modelled, by the event simulator: nothing is run, and no quiet machine is needed.
The report is a page, a table, a Gantt chart and fleet.json."""

EPILOG = """\
examples:
  intradp bench fleet --smoke
  intradp bench fleet --out out/bench-fleet
  intradp bench fleet --models 'BERT 0.1B'"""

FIGURES = {
    'gain': 'seconds of a round by the best other planner, through ours',
    "gain, paper's": 'the same over those that the paper compares with and that are here '
                     '(EdgeShard, Asteroid)',
    'contention': 'what the plan that ignores shared media takes, through what its planner '
                  'believes; and through what ours takes',
    'energy saved': 'joules at the target (the best other latency through 0.8), against the most '
                    'frugal other plan that meets it',
    'missed': 'seconds in which frames come later than the target; the oracle knows all rates and '
              'leaves, and switches in no time',
    'pause': 'the longest time without a result at a switch, in frames beyond the usual one',
    'by the source': 'frames that the source computed alone as a device of their plan had left',
    'all': 'modelled, by the event simulator; devices are imagined, seconds of planning are '
           'processor seconds of this machine'}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of the subcommand."""
    parser.description, parser.epilog = DESCRIPTION, EPILOG
    parser.add_argument('--smoke', action='store_true',
                        help='one model in one setting and one replay, whatever else is asked for')
    for name, known, what in (('settings', SETTINGS, 'settings'), ('models', MODELS, 'models')):
        parser.add_argument(f'--{name}', nargs='+', choices=list(known), default=list(known),
                            metavar=name[:-1].upper(),
                            help=f'{what}, of {", ".join(known)} (default: all)')
    parser.add_argument('--out', type=result_folder, default='out/bench-fleet',
                        help='folder for the report (default %(default)s)')
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    """Run the benchmark."""
    if args.smoke:
        args.settings, args.models = ['smart home 2'], ['BERT 0.1B']
    args.out.mkdir(parents=True, exist_ok=True)
    with output(args.json) as out:
        rows = _planned(args, out)
        replays = _replayed(args.smoke, out)
        total = _total(replays)
        report = {'plans': [vars(row) for row in rows], 'adapter': replays,
                  'adapter_total': total, 'figures': FIGURES}
        out.show(_plan_table(rows), _replay_table(replays), _verdict(total))
        write_atomically(args.out / 'fleet.json', json.dumps(report, indent=1) + '\n')
        _write_page(args.out, report)
        out.result(report)
    return 0


def _planned(args: argparse.Namespace, out: Output) -> list[Row]:
    rows, drawn = [], False
    for setting in args.settings:
        for name in args.models:
            with out.status(f'planning {name} for {setting}'):
                row, plans = measure(setting, name)
            rows.append(row)
            if plans is not None and not drawn:
                drawn, order = True, plans.best.order
                draw_schedule(order.tasks.graph, order.played, paper_fleet(setting),
                              args.out / 'gantt.png', f'{name}, {setting} (modelled)')
    return rows


def _replayed(smoke: bool, out: Output) -> dict[str, Any]:
    found = {}
    with out.status('capturing the network of the replays'):
        costs = scene_costs()
    every = list(scenarios())
    for scenario in every[-1:] if smoke else every:
        with out.status(f'replaying {scenario.name}'):
            replay = Replay(costs, scenario, FPS)
            ours = replay.adapter()
            played = {ADAPTER: ours, STATIC: replay.static(),
                      ORACLE: replay.oracle(replay.plans)}
        found[scenario.name] = {name: _played(each) for name, each in played.items()}
    return found


def _played(played: Played) -> dict[str, Any]:
    return {'frames': len(played.latencies), 'lost': played.lost, 'missed_s': played.missed,
            'by_source': played.by_source, 'switches': len(played.switches),
            'pause_frames': played.pause_frames}


def _total(replays: Mapping[str, Any]) -> dict[str, float]:
    total = {f'{name}_missed_s': sum(found[name]['missed_s'] for found in replays.values())
             for name in (ADAPTER, STATIC, ORACLE)}
    return total | {'lost': sum(played['lost'] for found in replays.values()
                                for played in found.values()),
                    'pause_frames': max(found[ADAPTER]['pause_frames']
                                        for found in replays.values())}


def _cells(row: Row) -> list[str]:
    if not row.latencies:
        return [row.setting, row.model, 'fits nowhere']

    def text(value: float | None, form: str = '.2f') -> str:
        return '-' if value is None else format(value, form)

    return [row.setting, row.model, f'{row.planning_seconds:.2f}',
            f'{row.latency:.3f}', f'{row.gain:.2f}', row.best_other, text(row.paper_gain),
            text(row.contention), text(row.contention_lost), text(row.energy_saved, '.0%')]


PLAN_COLUMNS = ('setting', 'model', 'planned, s', 'round, s', 'gain', 'over',
                "gain, paper's", 'contention', 'through ours', 'energy saved')
REPLAY_COLUMNS = ('what happens', 'missed by ours, s', 'static', 'oracle', 'switches',
                  'pause, frames', 'by the source', 'lost')


def _plan_table(rows: Sequence[Row]) -> Any:
    shown = table('Plans side by side (modelled)', *PLAN_COLUMNS, left=2)
    for row in rows:
        shown.add_row(*_cells(row))
    return shown


def _replay_cells(name: str, found: Mapping[str, Any]) -> list[str]:
    ours = found[ADAPTER]
    return [name, *(f'{found[who]["missed_s"]:.1f}' for who in (ADAPTER, STATIC, ORACLE)),
            str(ours['switches']), f'{ours["pause_frames"]:.2f}', str(ours['by_source']),
            str(sum(played['lost'] for played in found.values()))]


def _replay_table(replays: Mapping[str, Any]) -> Any:
    shown = table(f'The adapter: a target of {1e3 * TARGET.latency:g} ms at {FPS:g} frames a '
                  f'second, air declared at {8e-6 * AIR:g} Mbit/s (modelled)', *REPLAY_COLUMNS)
    for name, found in replays.items():
        shown.add_row(*_replay_cells(name, found))
    return shown


def _verdict(total: Mapping[str, float]) -> str:
    return (f'In all the adapter misses {total["adapter_missed_s"]:.1f} s, the plan that stays '
            f'{total["static_missed_s"]:.1f} s, the oracle {total["oracle_missed_s"]:.1f} s; '
            f'{total["lost"]:.0f} frames lost.')


def _write_page(folder: Path, report: Mapping[str, Any]) -> None:
    rows = [Row(**row) for row in report['plans']]
    picture = folder / 'gantt.png'
    sections = [
        section('result', 'Result', headline(_verdict(report['adapter_total'])),
                remarks(['All figures are modelled; devices are imagined.'])),
        section('plans', 'Plans side by side', shown('', PLAN_COLUMNS, map(_cells, rows))),
        section('adapter', 'The adapter', shown('', REPLAY_COLUMNS, (
            _replay_cells(name, found) for name, found in report['adapter'].items()))),
        section('timeline', 'Who computes and sends when', bands(
            'A lane for each device and medium', [], picture.name)),
        section('measured', 'How this was measured', facts(FIGURES.items()))]
    write_atomically(folder / 'page.html', standing_page(
        [view_of('Plans for fleets', sections)], lambda name: picture.read_bytes()
        if picture.is_file() else None))
