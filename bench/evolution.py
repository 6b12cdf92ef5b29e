# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Our schedules against LOSS by differential evolution with a minute at each point.

For each recording, inputs and bandwidth: predicted milliseconds of our
schedule and of the best that the solver `de` finds in `--seconds` of
processor time, with one seed after another.  It begins from all baselines,
with the encodings that ours takes.  Exits with 1 if `de` is better anywhere.
"""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import product
import json
from pathlib import Path
import sys

from costed import recorded_cases
from recorded import DELAY, evolved, OVERHEAD, ROUNDING, timed
from rich.console import Console
from rich.table import Table
import torch

from intradp_lab.testbed.evaluation_results import FLOAT32, SENSOR
from intradp_ros.core.workers import worker_pool
from intradp_ros.schedule.cost import LinkModel
from intradp_ros.systems.sharing.judge.judge import make_ready
from intradp_ros.systems.sharing.search.pool import Aim, candidates
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)

NETS = ('agrnav', 'densenet121', 'mobilenet_v3_small', 'vgg19_bn')


@dataclass(frozen=True)
class Task:
    """One point, and the processor seconds that differential evolution has there."""

    profiles: Path
    net: str
    inputs: str
    mbps: float
    seconds: float


@dataclass(frozen=True)
class Duel:
    """Milliseconds of ours and of `de` at one point, and the processor seconds each took."""

    net: str
    inputs: str
    operators: int
    mbps: float
    ours: float
    ours_seconds: float
    de: float
    de_seconds: float

    @property
    def lead(self) -> float:
        """Return the part of the latency of `de` that ours saves."""
        return 1 - self.ours / self.de

    @property
    def lost(self) -> bool:
        """Return whether `de` is better."""
        return self.de * (1 + ROUNDING) < self.ours


def duel(task: Task) -> Duel:
    """Plan one point twice."""
    torch.set_num_threads(1)
    case = next(recorded_cases(task.profiles, [task.net], inputs=[task.inputs]))
    link = LinkModel.symmetric(task.mbps, DELAY, OVERHEAD)
    make_ready(case.cost)
    ours, ours_seconds = timed(lambda: candidates(case.cost, link, Aim())[SHARED])
    latency, seconds = timed(lambda: evolved(case, link, task.seconds))
    return Duel(task.net, task.inputs, len(case.cost.split.operators), task.mbps,
                1e3 * ours.played.latency, ours_seconds, 1e3 * latency, seconds)


def show(duels: Sequence[Duel], console: Console) -> None:
    """Print all points."""
    table = Table('network', 'inputs', 'operators', 'Mbit/s', 'ours\nms', 'ours\nCPU s', 'de\nms',
                  'de\nCPU s', 'ours saves', title='predicted latency')
    for d in duels:
        table.add_row(d.net, d.inputs, str(d.operators), f'{d.mbps:g}', f'{d.ours:.2f}',
                      f'{d.ours_seconds:.2f}', f'{d.de:.2f}', f'{d.de_seconds:.0f}',
                      f'{d.lead:.2%}')
    console.print(table)
    console.print(f'{len(duels)} points, de is better at {sum(d.lost for d in duels)}')


def parsed() -> argparse.Namespace:
    """Return the arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--profiles', type=Path, required=True, help='folder of recordings')
    parser.add_argument('--nets', nargs='+', default=NETS)
    parser.add_argument('--inputs', nargs='+', default=(SENSOR,), choices=(FLOAT32, SENSOR))
    parser.add_argument('--mbps', type=float, nargs='+', default=(10.0, 40.0, 160.0))
    parser.add_argument('--seconds', type=float, default=60.0,
                        help='processor seconds for differential evolution at each point')
    parser.add_argument('--jobs', type=int, default=2, help='points at a time')
    parser.add_argument('--json', type=Path, help='write all points here')
    return parser.parse_args()


def main() -> int:
    """Plan and print; return 1 if `de` is better anywhere."""
    args, duels = parsed(), []
    console = Console(width=max(120, Console().width))
    tasks = [Task(args.profiles, *point, args.seconds)
             for point in product(args.nets, args.inputs, args.mbps)]
    with worker_pool(args.jobs, 'spawn') as processes:
        for done in processes.map(duel, tasks):
            duels.append(done)
            console.print(f'{done.net} {done.inputs} {done.mbps:g} Mbit/s: '
                          f'ours {done.ours:.2f} ms, de {done.de:.2f} ms', highlight=False)
    show(duels, console)
    if args.json:
        args.json.write_text(json.dumps([asdict(d) for d in duels], indent=1) + '\n')
    return int(any(d.lost for d in duels))


if __name__ == '__main__':
    sys.exit(main())
