# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How good schedules are on recorded device profiles, against all baselines and the lower bound.

For each recording in a folder, float32 and sensor inputs (bytes of a picture,
packed bits of an occupancy grid) and each bandwidth: predicted milliseconds
of every system and the bound.  Then, for each network: the schedule over the
bound, and where local, offload and DSCCS are within 2 x of each other the
part of the best of them that is saved, and the part that the bound leaves.
Energy: joules against each baseline in no more time than it takes, and
within a deadline of 1 s.  Exits with 1 if a baseline is better anywhere.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
import json
from pathlib import Path
from statistics import mean
import sys
import time
from typing import TypeVar

from costed import Case, recorded_cases, UNRECORDED, unrecorded_cases
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table
import torch

from intradp_lab.rivals.entries import DSCCS, rival_candidates, RIVALS, SPSO_GA
from intradp_lab.rivals.tensor_parallel import tensor_parallel
from intradp_lab.testbed.evaluation_results import FLOAT32, SENSOR
from intradp_lab.testbed.solvers import SOLVERS
from intradp_ros.cli.output_paths import result_file, result_picture
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.power.power_states import XAVIER_NX
from intradp_ros.report.palette import DARK_GREY, RED
from intradp_ros.report.saved_picture import save_picture
from intradp_ros.schedule.cost import LinkModel
from intradp_ros.systems.sharing.book.make_book import bandwidth_grid
from intradp_ros.systems.sharing.judge.energy import EnergyUnderDeadline
from intradp_ros.systems.sharing.judge.simulator import simulate
from intradp_ros.systems.sharing.partition.encoding_choice import assuming, best_encodings
from intradp_ros.systems.sharing.search.bounds import Relaxation
from intradp_ros.systems.sharing.search.pool import Aim, baselines, Candidate, candidates
from intradp_ros.systems.sharing.strategies import BASELINES, LOCAL, OFFLOAD, SHARED

T = TypeVar('T')
DELAY, OVERHEAD = 2e-3, 0.5e-3
TENSOR, DE, OURS = 'tensor', 'de', 'ours'
OTHERS = (*BASELINES, *RIVALS)
COMPARED = (LOCAL, OFFLOAD, DSCCS)
CLOSE = 2.0
DEADLINE = 1.0
#: Two sums of the same seconds in another order may differ so much.
ROUNDING = 1e-9
REDUCED = (1.0, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0, 400.0)
CAMERAS = ((480, 640), (720, 1280))


@dataclass(frozen=True)
class Point:
    """
    One network and bandwidth: milliseconds and joules by system, and the bound (ms).

    `frugal` are the joules of our schedule for the least energy in no more
    time than each baseline takes, and `within` those within the deadline.
    """

    case: str
    dense: bool
    operators: int
    mbps: float
    milliseconds: Mapping[str, float]
    joules: Mapping[str, float]
    bound: float
    planning: float
    bounding: float
    frugal: Mapping[str, float]
    within: float | None

    @property
    def ratio(self) -> float:
        """Return our latency by the bound."""
        return self.milliseconds[OURS] / self.bound

    @property
    def close(self) -> bool:
        """Return whether the rivals are within a factor of 2 of each other."""
        rivals = [self.milliseconds[name] for name in COMPARED]
        return max(rivals) <= CLOSE * min(rivals)

    @property
    def gain(self) -> float:
        """Return the part of the best rival's latency that ours saves."""
        return 1 - self.milliseconds[OURS] / min(self.milliseconds[name] for name in COMPARED)

    @property
    def room(self) -> float:
        """Return the part of the best rival's latency that the bound leaves to save."""
        return 1 - self.bound / min(self.milliseconds[name] for name in COMPARED)

    @property
    def violations(self) -> list[str]:
        """Return where a baseline is better, or the bound is wrong."""
        ours = self.milliseconds[OURS]
        found = [f'{name} is faster' for name, taken in self.milliseconds.items()
                 if taken * (1 + ROUNDING) < ours]
        found += [f'less energy in the time of {name}' for name, taken in self.frugal.items()
                  if self.joules[name] * (1 + ROUNDING) < taken]
        in_time = [self.joules[name] for name in OTHERS
                   if self.milliseconds[name] <= 1e3 * DEADLINE]
        if self.within is not None and in_time and min(in_time) * (1 + ROUNDING) < self.within:
            found.append('less energy within the deadline')
        return found + (['below the bound'] if ours * (1 + ROUNDING) < self.bound else [])


@dataclass(frozen=True)
class Effort:
    """At which bandwidths (Mbit/s) what is planned, and the seconds of differential evolution."""

    mbps: Sequence[float]
    energy_mbps: Sequence[float]
    de_mbps: Sequence[float]
    de_seconds: float


def points_of(case: Case, effort: Effort) -> Iterator[Point]:
    """Plan for each bandwidth."""
    relaxation = Relaxation(case.cost)
    for mbps in effort.mbps:
        yield planned(case, relaxation, mbps, effort)


def planned(case: Case, relaxation: Relaxation, mbps: float, effort: Effort) -> Point:
    """Plan for one bandwidth."""
    link = LinkModel.symmetric(mbps, DELAY, OVERHEAD)
    found, planning = timed(lambda: candidates(case.cost, link, Aim()))
    found |= rival_candidates(case.cost, link, Aim())
    bound, bounding = timed(lambda: relaxation.bound(link, found[SHARED].played.latency))
    milliseconds = {name: 1e3 * found[name].played.latency for name in OTHERS}
    milliseconds[TENSOR] = 1e3 * simulate(tensor_parallel(case.cost), case.cost, link).latency
    if effort.de_seconds and mbps in effort.de_mbps:
        milliseconds[DE] = 1e3 * evolved(case, link, effort.de_seconds)
    milliseconds[OURS] = 1e3 * found[SHARED].played.latency
    joules = {name: found[name].joules for name in OTHERS} | {OURS: found[SHARED].joules}
    wanted = mbps in effort.energy_mbps
    return Point(case.title, case.dense, len(case.cost.split.operators), mbps, milliseconds,
                 joules, 1e3 * bound, planning, bounding,
                 frugal_joules(case, link, found) if wanted else {},
                 frugal(case, link, DEADLINE).joules if wanted else None)


def timed(function: Callable[[], T]) -> tuple[T, float]:
    """Return a result and the processor seconds that it took."""
    start = time.process_time()
    return function(), time.process_time() - start


def evolved(case: Case, link: LinkModel, seconds: float) -> float:
    """Return the latency that `de` finds from the baselines on in some processor seconds."""
    late = time.process_time() + seconds
    cost = assuming(case.cost, best_encodings(case.cost, link))
    return SOLVERS['de'](cost, link, budget=10**9,
                         begin=list(baselines(cost, link).values()),
                         stop=lambda: time.process_time() > late).latency


def frugal(case: Case, link: LinkModel, deadline: float) -> Candidate:
    """Return our schedule of least energy within a deadline (s)."""
    return candidates(case.cost, link, Aim(EnergyUnderDeadline(XAVIER_NX, deadline)))[SHARED]


def frugal_joules(case: Case, link: LinkModel, found: Mapping[str, Candidate]) -> dict[str, float]:
    """Return our least joules in no more time than each baseline takes."""
    known: dict[float, float] = {}
    for name in OTHERS:
        latency = found[name].played.latency
        if latency not in known:
            known[latency] = frugal(case, link, latency).joules
    return {name: known[found[name].played.latency] for name in OTHERS}


def show_point(point: Point, console: Console) -> None:
    """Print one point as a line."""
    systems = '  '.join(f'{name} {ms:.1f}' for name, ms in point.milliseconds.items())
    console.print(f'{point.case}  {point.mbps:g} Mbit/s:  {systems}  bound {point.bound:.1f} ms',
                  highlight=False, soft_wrap=True)


def summary(points: Sequence[Point]) -> dict[str, float | int | None]:
    """Return means over the points of a network, or of all of a kind."""
    close = [p for p in points if p.close]
    return {
        'ratio': mean(p.ratio for p in points), 'worst': max(p.ratio for p in points),
        'close': len(close),
        'gain': mean(p.gain for p in close) if close else None,
        'room': mean(p.room for p in close) if close else None,
        'planning': mean(p.planning for p in points), 'slowest': max(p.planning for p in points),
        'bounding': mean(p.bounding for p in points)}


def grouped(points: Iterable[Point]) -> dict[str, list[Point]]:
    """Return the points of each network, then those of all dense ones and of the others."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        groups.setdefault(point.case, []).append(point)
    for kind, dense in (('all dense', True), ('all others', False)):
        if own := [p for group in list(groups.values()) for p in group if p.dense is dense]:
            groups[kind] = own
    return groups


def show(points: Sequence[Point], console: Console) -> None:
    """Print what holds for each network and kind, energy, and what is wrong."""
    table = Table('network', 'operators', 'ours\n/ bound', 'worst', 'close\npoints', 'saved',
                  'bound\nleaves', 'planning\ns', 'slowest\ns', 'bound\ns')
    for name, own in grouped(points).items():
        s = summary(own)
        table.add_row(name, str(max(p.operators for p in own)), _number(s['ratio']),
                      _number(s['worst']), str(s['close']), _percent(s['gain']),
                      _percent(s['room']), _number(s['planning']), _number(s['slowest']),
                      _number(s['bounding']))
    console.print(table)
    show_energy(points, console)
    wrong = [f'{p.case} {p.mbps:g} Mbit/s: {text}' for p in points for text in p.violations]
    console.print(f'{len(points)} points, {len(wrong)} violations', *wrong, sep='\n')


def _number(value: float | None) -> str:
    return '-' if value is None else f'{value:.2f}'


def _percent(value: float | None) -> str:
    return '-' if value is None else f'{value:.0%}'


def show_energy(points: Sequence[Point], console: Console) -> None:
    """
    Print the joules that are saved in the time of each baseline, and within the deadline.

    The latter only where SPSO-GA keeps the deadline too.
    """
    measured = [p for p in points if p.within is not None]
    if not measured:
        return
    table = Table('network', *OTHERS, f'SPSO-GA, {DEADLINE:g} s',
                  title='joules saved in no more time (mean)')
    for name, own in grouped(measured).items():
        saved = [mean(1 - p.frugal[b] / p.joules[b] for p in own) for b in OTHERS]
        in_time = [1 - (p.within or 0.0) / p.joules[SPSO_GA] for p in own
                   if p.milliseconds[SPSO_GA] <= 1e3 * DEADLINE]
        table.add_row(name, *map(_percent, [*saved, mean(in_time) if in_time else None]))
    console.print(table)


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw latency by the bound over bandwidth, a panel for each network."""
    groups = {name: own for name, own in grouped(points).items() if not name.startswith('all ')}
    columns = min(4, len(groups))
    rows = -(-len(groups) // columns)
    figure = Figure(figsize=(3.6 * columns, 2.8 * rows), layout='constrained')
    axes = figure.subplots(rows, columns, squeeze=False).flat
    for axis, (name, own) in zip(axes, groups.items()):
        _draw_case(axis, name, own)
    for axis in axes[len(groups):]:
        axis.set_axis_off()
    save_picture(figure, path)


def _draw_case(axes: Axes, name: str, points: Sequence[Point]) -> None:
    mbps = [p.mbps for p in points]
    best = [min(p.milliseconds[b] for b in OTHERS) / p.bound for p in points]
    axes.plot(mbps, best, color=DARK_GREY, marker='s', markersize=3, label='best baseline')
    axes.plot(mbps, [p.ratio for p in points], color=RED, marker='o', markersize=3, label=OURS)
    axes.set(xscale='log', title=name, xlabel='Mbit/s', ylabel='latency / lower bound')
    axes.set_ylim(bottom=1)
    axes.legend(frameon=False)


def cases_of(args: argparse.Namespace) -> Iterator[Case]:
    """Yield the networks that were asked for."""
    recorded = []
    for case in recorded_cases(args.profiles, args.nets, args.sizes, args.inputs):
        recorded.append(case)
        yield case
    wanted = [name for name in UNRECORDED if name in args.nets or not args.nets]
    if args.sizes and wanted:
        yield from unrecorded_cases(wanted, args.sizes, (c for c in recorded if not c.dense))


def parsed() -> argparse.Namespace:
    """Return the arguments; `--full` widens those that were not given."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--profiles', type=Path, required=True, help='folder of recordings')
    parser.add_argument('--nets', nargs='+', default=[], help='only these networks')
    parser.add_argument('--inputs', nargs='+', default=(FLOAT32, SENSOR),
                        choices=(FLOAT32, SENSOR))
    parser.add_argument('--mbps', type=float, nargs='+')
    parser.add_argument('--energy-mbps', type=float, nargs='+', help='where to plan for energy')
    parser.add_argument('--sizes', type=size, nargs='*', metavar='HxW',
                        help='more sizes of pictures, such as 480x640')
    parser.add_argument('--de-seconds', type=float, default=0.0,
                        help='processor seconds for differential evolution at each of --de-mbps')
    parser.add_argument('--de-mbps', type=float, nargs='+', default=[20.0])
    parser.add_argument('--full', action='store_true',
                        help='20 bandwidths, energy at 8 of them, pictures of cameras too')
    parser.add_argument('--json', type=result_file, help='write all points here')
    parser.add_argument('--plot', type=result_picture, help='draw latency / bound here')
    args = parser.parse_args()
    args.energy_mbps = args.energy_mbps or (REDUCED if args.full else (20.0,))
    grid = sorted({*bandwidth_grid(), *REDUCED}) if args.full else REDUCED
    args.mbps = args.mbps or grid
    if args.sizes is None:
        args.sizes = CAMERAS if args.full else ()
    return args


def size(text: str) -> tuple[int, int]:
    """Read ``480x640``."""
    height, width = text.split('x')
    return int(height), int(width)


def main() -> int:
    """Plan and print; return 1 if a baseline is better anywhere."""
    args, points = parsed(), []
    console = Console(width=max(120, Console().width))
    torch.set_num_threads(1)
    effort = Effort(args.mbps, args.energy_mbps, args.de_mbps, args.de_seconds)
    for case in cases_of(args):
        for point in points_of(case, effort):
            show_point(point, console)
            points.append(point)
    show(points, console)
    if args.json:
        write_atomically(args.json, json.dumps([asdict(p) for p in points], indent=1) + '\n')
    if args.plot:
        draw(points, args.plot)
    return int(any(p.violations for p in points))


if __name__ == '__main__':
    sys.exit(main())
