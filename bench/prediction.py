# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What schedules take against what the book says, for every schedule of a book.

Robot and server are two processes with a session over DDS and a shaped link
between them (two network namespaces: Linux, as root).  Every schedule runs
by itself, on a link where the robot measures the bandwidth that it was made
for (its payload; what the middleware sends in addition is more with some
schedules than with others).  By default devices are emulated: operators take
the time of their profiles and compute nothing, so that what is tested is the
model of programs, link and transport.  With ``--real`` they compute, on a core
each, the robot with narrow vector instructions; pictures are a video's.  Run it
on a machine that does nothing else; with ``--loaded`` other work takes a part of
each core, from before the profiles to the end, in bursts of 5 to 50 ms.

Errors are (measured - predicted) / measured, of the median of a schedule's
frames.  Schedules that several strategies share are run once.  Real devices
change their speed by half within seconds, so before and after each frame each
computes the whole network by itself, and a second error, `at speed`, is the
median of the frames' own, each against a simulation at the speeds about it.
"""
from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
import os
from pathlib import Path
from statistics import median
from typing import Any
import zlib

from matplotlib.figure import Figure
import numpy as np
from rich.console import Console
from rich.table import Table

from intradp_lab.emulation.slow_device import slow_environment
from intradp_lab.emulation.transport_choice import CHOICES
from intradp_lab.report import captioned_image as images
from intradp_lab.testbed.experiment import Place, place
from intradp_lab.testbed.figures import quantile
from intradp_lab.testbed.single_schedule_run import Frames, LANES, load_frames, PinnedRun
from intradp_lab.testbed.trial import Trial
from intradp_lab.zoo.video import frames as video
from intradp_ros.cli.books import Grid, make_plan, MODES, Plan
from intradp_ros.cli.output import Output, output
from intradp_ros.cli.output_paths import result_folder
from intradp_ros.cli.profile_arguments import imagined, own_profile
from intradp_ros.cli.subject import captured, Subject
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.dds.transport_profile import find_transport
from intradp_ros.link.delay import ASSUMED_OVERHEAD, OWN_DELAY
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.profiling.profile import Profile
from intradp_ros.report.book_plot import logarithmic
from intradp_ros.report.palette import STRATEGIES
from intradp_ros.report.result_tables import write_json
from intradp_ros.report.saved_picture import save_picture
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import Entry
from intradp_ros.systems.sharing.partition.partition import Partition

MODELS = {'hed': 'intradp_lab.zoo.hed:hed 1x3x144x336 uint8',
          'mobilenet_v2': 'intradp_lab.zoo.mobilenet_v2:mobilenet_v2 1x3x224x224 uint8',
          'depth': 'intradp_lab.zoo.dense:depth 1x3x192x256 uint8'}
SLOWER = 4.0  # the emulated robot against this machine
PICTURES = 8
START_TIMEOUT, ENTRY_TIMEOUT = 300.0, 120.0


@dataclass(frozen=True)
class Row:
    """
    One schedule: milliseconds as predicted and measured, and by lane how long it was busy.

    `at_speed` is the median of the frames' errors against what was predicted for the
    speeds of both devices about each, `speeds` how many times as long as
    profiled they took: of real devices.
    """

    entry: int
    strategy: str
    mbps: float
    predicted: float
    measured: float
    rate: float
    failed: int
    expected: Mapping[str, float]
    busy: Mapping[str, float]
    speeds: Mapping[str, float] = field(default_factory=dict)
    at_speed: float | None = None

    @property
    def reported(self) -> float:
        """Return the milliseconds predicted, at the speeds of now where they are known."""
        return self.predicted if self.at_speed is None else self.measured * (1 - self.at_speed)

    @property
    def error(self) -> float:
        """Return how much longer it took than predicted, as a part of what it took."""
        return (self.measured - self.predicted) / self.measured


def main() -> None:
    """Parse arguments, run and report."""
    args = _arguments()
    args.out.mkdir(parents=True, exist_ok=True)
    prepare_process()
    results: dict[str, list[Row]] = {}
    with output(False) as out:
        for name in args.models:
            results[name] = _rows(args, name, out)
            _write(args, results)
    console = Console()
    if not console.is_terminal:
        console.width = 150  # room for the tables
    for name, rows in results.items():
        show(name, rows, console)
    draw(results, args.out / 'prediction.png')
    console.print(f'Wrote {args.out}/prediction.json and prediction.png', highlight=False)


def _write(args: argparse.Namespace, results: Mapping[str, Sequence[Row]]) -> None:
    write_json(args.out / 'prediction.json', {
        'devices': 'real' if args.real else 'emulated', 'frames': args.frames,
        'loaded': args.loaded,
        'models': {name: {'summary': summary(rows), 'rows': [
            {**asdict(row), 'error': row.error} for row in rows]}
            for name, rows in results.items()}})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--models', nargs='+', choices=list(MODELS), default=list(MODELS))
    parser.add_argument('--real', action='store_true', help='compute, on this machine')
    parser.add_argument('--loaded', type=float, default=0.0, metavar='PART',
                        help='of each core that other work takes, such as 0.33')
    parser.add_argument('--frames', type=int, default=10, help='of each schedule')
    parser.add_argument('--points', type=int, default=8, help='bandwidths of the book')
    parser.add_argument('--low', type=float, default=2.0, metavar='MBPS')
    parser.add_argument('--high', type=float, default=200.0, metavar='MBPS')
    parser.add_argument('--strategies', nargs='+', choices=MODES, default=list(MODES))
    parser.add_argument('--transport', choices=CHOICES, default='udp',
                        help="default %(default)s, as the nodes'")
    parser.add_argument('--out', type=result_folder, default='out/prediction')
    args = parser.parse_args()
    if args.frames < 1 or args.points < 1 or not 0 < args.low <= args.high:
        parser.error('frames and points must be 1 or more, and 0 < low <= high')
    if not 0 <= args.loaded < 1:
        parser.error('the part that other work takes is from 0 to below 1')
    return args


def _rows(args: argparse.Namespace, name: str, out: Output) -> list[Row]:
    """Plan for a model, run all schedules of the book, and compare."""
    folder = (args.out / name).resolve()
    folder.mkdir(exist_ok=True)
    spec = ModelSpec.parse(MODELS[name])
    subject = captured(name, spec.module(), (spec.example(),), None)
    pictures = _pictures(spec, folder)
    with place(folder, args.transport) as where:
        _load(where, args.loaded)
        if args.real:
            profiles = {side: _measured(where, side, spec, folder) for side in (ROBOT, SERVER)}
        else:
            profiles = _imagined(subject, out)
        for side, profile in profiles.items():
            (folder / f'{side}.json').write_text(profile.to_json())
        plan = make_plan(subject, profiles, Grid(args.low, args.high, args.points), out,
                         delay=OWN_DELAY, overhead=ASSUMED_OVERHEAD, seed=0)
        plan.book.save(folder / 'book.json')
        chosen = _distinct(plan, set(args.strategies))
        found = _run(args, where, plan, sorted(set(chosen.values())), folder, pictures, out)
    return [row_of(plan, index, plan.book.entries[index], found[chosen[index]])
            for index in chosen if found[chosen[index]].latency]


def _load(where: Place, part: float) -> None:
    """Let other work take a part of each core; it is ended with the place."""
    for core in sorted(os.sched_getaffinity(0)) if part else ():
        where.start(Command(f'other-work-{core}', module_arguments(
            'intradp_lab.emulation.other_work', '--part', str(part), '--seed', str(core),
            '--bursts', '0.005', '0.05'), (), [core]))


def _pictures(spec: ModelSpec, folder: Path) -> Path:
    """Write pictures of a video in the size of a model, and a usual one as a photograph."""
    height, width = spec.shape[2:]
    found = list(video(PICTURES, (width, height), every=10))
    usual = sorted(found, key=lambda picture: len(zlib.compress(picture.tobytes())))[PICTURES // 2]
    images.save(folder / 'example.png', usual)
    path = folder / 'pictures.npy'
    np.save(path, np.stack([picture.transpose(2, 0, 1) for picture in found]))
    return path


def _imagined(subject: Subject, out: Output) -> dict[str, Profile]:
    """Return profiles of two devices: this machine, and one that is slower; zeros stay plain."""
    here = replace(own_profile(subject, out), encodings=())
    return {ROBOT: imagined(here, SLOWER), SERVER: here}


def _measured(where: Place, side: str, spec: ModelSpec, folder: Path) -> Profile:
    """Return the profile that a side measures of itself, where it will run."""
    path = folder / f'{side}.json'
    height, width = spec.shape[2:]
    child = where.start(_command(where, side, True, module_arguments(
        'intradp_ros.cli.main', 'profile', spec.source, '--input', str(folder / 'example.png'),
        '--size', f'{height}x{width}', '--dtype', 'uint8', '--fresh', '-o', str(path))))
    if child.wait(START_TIMEOUT):
        raise child.failure('could not measure a profile')
    return Profile.from_json(path.read_text())


def _command(where: Place, side: str, real: bool, arguments: Sequence[str]) -> Command:
    """Return how a side runs: on a core of its own, a real robot with narrow instructions."""
    cores = sorted(os.sched_getaffinity(0))
    slow = slow_environment() if real and side == ROBOT else {}
    return Command(side, arguments, where.link.exec_prefix(side),
                   cores[:1] if side == ROBOT else cores[1:2] or cores,
                   {**where.environment, **slow})


def _distinct(plan: Plan, strategies: set[str]) -> dict[int, int]:
    """Return for each entry the first one that runs the same at the same bandwidth."""
    first: dict[tuple[Partition, float], int] = {}
    found = {}
    for index, entry in enumerate(plan.book.entries):
        if entry.strategy in strategies:
            crosses = plan.play(entry).bytes_up > 0
            key = (entry.partition, entry.mbps if crosses else 0.0)
            found[index] = first.setdefault(key, index)
    return found


def _run(args: argparse.Namespace, where: Place, plan: Plan, entries: Sequence[int],
         folder: Path, pictures: Path, out: Output) -> dict[int, Frames]:
    """Run entries one by one; return what they did."""
    files = {side: str(folder / f'{side}.json') for side in (ROBOT, SERVER)}
    trial = Trial(MODELS[plan.subject.name], plan.cost.split.axis, files, (),
                  str(folder / 'frames.json'))
    run = PinnedRun(trial, str(folder / 'book.json'), tuple(entries), args.frames,
                    dict(where.link.namespaces), args.real, str(pictures) if args.real else '',
                    find_transport(where.transport).payload_share)
    path = folder / 'run.json'
    run.save(path)
    server, robot = (where.start(_command(where, side, args.real, module_arguments(
        'intradp_lab.testbed.single_schedule_run', side, str(path))))
        for side in (SERVER, ROBOT))
    try:
        server.wait_for_line('^phase serving$', START_TIMEOUT)
        with out.progress(f'running {plan.subject.name}') as advance:
            for done, index in enumerate(_in_order(plan, entries)):
                advance(done, len(entries))
                robot.wait_for_line(f'^phase entry {index} ', START_TIMEOUT)
        robot.wait_for_line('^phase done$', ENTRY_TIMEOUT)
    finally:
        for child in (robot, server):
            child.stop()
    return {frames.entry: frames for frames in load_frames(Path(trial.output))}


def _in_order(plan: Plan, entries: Sequence[int]) -> list[int]:
    return sorted(entries, key=lambda index: (plan.book.entries[index].mbps, index))


def row_of(plan: Plan, index: int, entry: Entry, frames: Frames) -> Row:
    """Compare a schedule's frames with its simulation."""
    played = plan.play(entry, trace=True)
    expected = {lane: 1e3 * sum(s.stop - s.start for s in played.spans
                                if (s.lane, s.kind) == (lane, kind)) for lane, kind in LANES}
    busy = {lane: 1e3 * median(each[lane] for each in frames.busy) for lane, _ in LANES}
    row = Row(index, entry.strategy, entry.mbps, 1e3 * entry.predicted,
              1e3 * median(frames.latency), median(frames.rate), frames.failed, expected, busy)
    if not any(frames.whole):
        return row
    whole = {side: sum(float(table[-1]) for table in plan.cost.seconds[side])
             for side in (ROBOT, SERVER)}
    factors = [{side: seconds / whole[side] for side, seconds in each.items()}
               for each in frames.whole]
    return replace(
        row, speeds={side: median(each[side] for each in factors) for side in whole},
        at_speed=median(
            1 - replace(plan, cost=plan.cost.scaled(each)).play(entry).latency / latency
            for each, latency in zip(factors, frames.latency)))


def summary(rows: Sequence[Row]) -> dict[str, Any]:
    """Return how errors are distributed, of all and by strategy and Mbit/s."""
    def of(chosen: Sequence[Row]) -> dict[str, Any]:
        found = {'schedules': len(chosen), **_spread([row.error for row in chosen])}
        at_speed = [row.at_speed for row in chosen if row.at_speed is not None]
        return {**found, 'at_speed': _spread(at_speed)} if at_speed else found

    return {'all': of(rows),
            'strategies': {name: of([r for r in rows if r.strategy == name])
                           for name in dict.fromkeys(r.strategy for r in rows)},
            'mbps': {f'{mbps:g}': of([r for r in rows if r.mbps == mbps])
                     for mbps in sorted({r.mbps for r in rows})}}


def _spread(errors: Sequence[float]) -> dict[str, float]:
    sizes = [abs(error) for error in errors]
    return {'median': median(sizes), 'p95': quantile(sizes, 0.95), 'worst': max(sizes),
            'bias': median(errors)}


def show(name: str, rows: Sequence[Row], console: Console) -> None:
    """Print errors by strategy and bandwidth, and the worst schedules lane by lane."""
    found = summary(rows)
    real, columns = 'at_speed' in found['all'], ('median', '95 %', 'worst', 'bias')
    table = Table('of', 'schedules', *columns, *(f'at speed: {c}' for c in columns if real),
                  title=f'{name}: errors')
    for group in ({'all': found['all']}, found['strategies'], found['mbps']):
        for key, line in group.items():
            table.add_row(key, str(line['schedules']), *_cells(line),
                          *(_cells(line['at_speed']) if real else ()))
        table.add_section()
    console.print(table)
    worst = Table('strategy', 'Mbit/s', 'rate', 'predicted', 'measured', 'error',
                  *(('at speed', 'slower') if real else ()), 'failed',
                  *(lane for lane, _ in LANES),
                  title=f'{name}: the worst ten, ms; lanes: busy measured / predicted')
    for row in sorted(rows, key=lambda r: -abs(1 - r.reported / r.measured))[:10]:
        speed = () if row.at_speed is None else (
            f'{row.at_speed:+.0%}', ' '.join(f'{each:.2f}' for each in row.speeds.values()))
        worst.add_row(row.strategy, f'{row.mbps:g}', f'{row.rate:.1f}', f'{row.predicted:.1f}',
                      f'{row.measured:.1f}', f'{row.error:+.0%}', *speed, str(row.failed),
                      *(f'{row.busy[lane]:.1f} / {row.expected[lane]:.1f}' for lane, _ in LANES))
    console.print(worst)


def _cells(line: Mapping[str, float]) -> list[str]:
    return [*(f'{line[key]:.1%}' for key in ('median', 'p95', 'worst')), f'{line["bias"]:+.1%}']


def draw(results: Mapping[str, Sequence[Row]], path: Path) -> None:
    """Draw measured over predicted milliseconds (at speed, of real devices), by schedule."""
    figure = Figure(figsize=(5.2 * len(results), 4.8), layout='constrained')
    for axes, (name, rows) in zip(np.ravel(figure.subplots(1, len(results))), results.items()):
        for system, colour in STRATEGIES.items():
            own = [row for row in rows if row.strategy == system]
            if own:
                axes.scatter([r.reported for r in own], [r.measured for r in own], s=16,
                             color=colour, label=system)
        ends = np.array([min(r.reported for r in rows), max(r.measured for r in rows)])
        for factor, style in ((1.0, '-'), (0.9, ':'), (1.1, ':')):
            axes.plot(ends, ends * factor, color='grey', linewidth=0.8, linestyle=style)
        logarithmic(axes)
        axes.set(xlabel='predicted, ms', ylabel='measured, ms', title=name)
        axes.legend(frameon=False)
    save_picture(figure, path, 130)


if __name__ == '__main__':
    main()
