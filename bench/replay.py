# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What guessing the link's rate costs: recorded traces replayed in model time.

For recorded networks, and recorded or generated traces: mean and 95th percentile of the latency of
every system with every predictor, and of our schedules chosen by an oracle
that knows the rate to come.  Regret is what our mean exceeds the oracle's by.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
from statistics import mean

from costed import Case, recorded_cases
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
from synthetic_links import links
import torch

from intradp_lab.emulation.trace import LinkTrace, read_trace
from intradp_lab.testbed.catch_up_replay import CatchUpPlayers
from intradp_lab.testbed.evaluation_results import FLOAT32, SENSOR
from intradp_lab.testbed.trace_replay import (
    Air,
    Curves,
    mean_and_p95,
    Oracle,
    Predicting,
    replay,
)
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.link.predictor import make_predictor, PREDICTORS
from intradp_ros.report.saved_picture import save_picture
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.make_book import bandwidth_grid, book_of, PlanningProblem
from intradp_ros.systems.sharing.book.uneven_speeds import RATIOS
from intradp_ros.systems.sharing.policy.patience import PatiencePolicy
from intradp_ros.systems.sharing.strategies import (
    SHARED,
    STRATEGIES,
)

DELAY, OVERHEAD = 2e-3, 0.5e-3
ORACLE, ANY = 'oracle', '-'
DEFAULT = ('agrnav', 'densenet121', 'vgg19_bn')


@dataclass(frozen=True)
class Result:
    """Seconds of a system with a predictor on a trace."""

    case: str
    trace: str
    system: str
    predictor: str
    mean: float
    p95: float
    inferences: int


def planned(case: Case) -> tuple[PlanningProblem, ScheduleBook]:
    """Make the book of a network."""
    setting, grid = PlanningProblem(case.cost, DELAY, OVERHEAD), bandwidth_grid()
    return setting, book_of(setting, case.title, grid, extra=len(grid) // 2, ratios=RATIOS)


def results_of(case: Case, traces: dict[str, LinkTrace], seconds: float | None,
               period: float, patience: PatiencePolicy | None, foresight: bool,
               ) -> Iterator[Result]:
    """Replay all traces for one network."""
    setting, book = planned(case)
    curves = Curves(setting, book)
    players = CatchUpPlayers(setting, {k: e.partition for k, e in enumerate(book.entries)})
    for name, trace in traces.items():
        air = Air(trace)
        choosers = {(SHARED, ORACLE): Oracle(curves, air, book)} | {
            (strategy, predictor): Predicting(
                curves, air, book, make_predictor(predictor), strategy, patience,
                foresight=foresight)
            for strategy in STRATEGIES for predictor in PREDICTORS}
        for (system, predictor), chooser in choosers.items():
            runs = replay(curves, air, chooser, until=seconds, period=period,
                          players=players if patience and system == SHARED and predictor != ORACLE
                          else None)
            yield Result(case.title, name, system, predictor, *mean_and_p95(runs), len(runs))


def regrets(results: Sequence[Result]) -> dict[tuple[str, str, str], float]:
    """Return by network, trace and predictor what our mean exceeds the oracle's by."""
    ours = {(r.case, r.trace, r.predictor): r.mean for r in results if r.system == SHARED}
    return {key: seconds / ours[(*key[:2], ORACLE)] - 1
            for key, seconds in ours.items() if key[2] != ORACLE}


def show(results: Sequence[Result], console: Console) -> None:
    """Print latencies by network and trace, and the regrets."""
    table = Table('network', 'trace', 'system', *PREDICTORS, ORACLE,
                  title='mean / 95th percentile (ms)')
    known = {(r.case, r.trace, r.system, r.predictor): r for r in results}
    for case, trace, system in dict.fromkeys(key[:3] for key in known):
        found = (known.get((case, trace, system, p)) for p in (*PREDICTORS, ORACLE))
        table.add_row(case, trace, system, *(
            f'{1e3 * r.mean:.1f} / {1e3 * r.p95:.1f}' if r else ANY for r in found))
    console.print(table)
    console.print(regret_table(regrets(results)))


def regret_table(found: dict[tuple[str, str, str], float]) -> Table:
    """Return regrets by network, trace and predictor, and their means."""
    table = Table('network', 'trace', *PREDICTORS, title='regret against the oracle')
    for case, trace in dict.fromkeys(key[:2] for key in found):
        table.add_row(case, trace, *(f'{found[case, trace, p]:.1%}' for p in PREDICTORS))
    table.add_row('mean', '', *(
        f'{mean(r for key, r in found.items() if key[2] == p):.1%}' for p in PREDICTORS))
    return table


def draw(results: Sequence[Result], path: Path) -> None:
    """Draw the regrets of all predictors as dots."""
    figure = Figure(figsize=(8, 4.8), dpi=150, layout='constrained')
    axes, found = figure.add_subplot(), regrets(results)
    pairs = list(dict.fromkeys(key[:2] for key in found))
    for predictor in PREDICTORS:
        axes.plot([100 * found[(*pair, predictor)] for pair in pairs], range(len(pairs)),
                  linestyle='none', marker='o', label=predictor)
    axes.set_yticks(range(len(pairs)), [' '.join(pair) for pair in pairs], fontsize=7)
    axes.set_xlabel('regret against an oracle (%)')
    axes.set_xlim(left=0)
    axes.legend(frameon=False)
    save_picture(figure, path)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--profiles', type=Path, required=True, help='folder of recordings')
    parser.add_argument('--traces', type=Path, help='folder of CSV files (t_seconds,Mbps)')
    parser.add_argument('--synthetic', action='store_true',
                        help='generated links that break in, too')
    parser.add_argument('--wait', action='store_true',
                        help='wait for late rows, instead of working on meanwhile')
    parser.add_argument('--point', action='store_true',
                        help='choose by the expected rate alone, not by all that may come')
    parser.add_argument('--nets', nargs='+', default=DEFAULT, help='recordings to take')
    parser.add_argument('--inputs', nargs='+', default=(FLOAT32, SENSOR),
                        choices=(FLOAT32, SENSOR))
    parser.add_argument('--seconds', type=float, help='of each trace; by default all')
    parser.add_argument('--period', type=float, default=0.0,
                        help='seconds from one inference to the next, by default none are left')
    parser.add_argument('--full', action='store_true', help='all recordings')
    parser.add_argument('--json', type=result_file, help='write all results here')
    parser.add_argument('--plot', type=result_picture, help='draw the regrets here')
    args = parser.parse_args()
    torch.set_num_threads(1)
    paths = sorted(args.traces.glob('*.csv')) if args.traces else []
    traces = {path.stem: read_trace(path) for path in paths} | (links() if args.synthetic else {})
    patience = None if args.wait else PatiencePolicy()
    console, results = Console(width=max(120, Console().width)), []
    for case in recorded_cases(args.profiles, () if args.full else args.nets, (), args.inputs):
        results += list(results_of(case, traces, args.seconds, args.period, patience,
                                   not args.point))
        console.print(f'{case.title} done')
    show(results, console)
    if args.json:
        write_atomically(args.json, json.dumps([asdict(r) for r in results], indent=1) + '\n')
    if args.plot:
        draw(results, args.plot)


if __name__ == '__main__':
    main()
