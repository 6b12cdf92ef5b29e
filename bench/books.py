# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How long a whole schedule book takes.

For each network of the paper's evaluation, on the devices that were recorded
or fitted for it: its operators, the bandwidths of its book (20 from 1 to 400
Mbit/s, and those that were added where schedules change), and the seconds
until the book is there, planned in as many processes as there are
processors.  Every bandwidth has all strategies and the lower bound.  What is
compiled once after an installation is there before.
"""
from __future__ import annotations

import argparse
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
from tempfile import TemporaryDirectory
import time

from recorded import DELAY, OVERHEAD

from intradp_lab.testbed.evaluation_results import SENSOR
from intradp_lab.testbed.preparation import device_profile
from intradp_lab.testbed.workloads import Workload, WORKLOADS
from intradp_ros.graph.serialise import graph_to_json
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.runtime.models.model import share_module
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import ROBOT, SERVER, SIDES
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.plan_from_profiles import book_from_profiles, PlanRequest
from intradp_ros.systems.sharing.judge.judge import make_ready


@dataclass(frozen=True)
class Planned:
    """A book: the graph's operators, the book's bandwidths, and the seconds that it took."""

    network: str
    operators: int
    bandwidths: int
    seconds: float


def planned(workload: Workload, workers: int) -> Planned:
    """Plan a workload's book anew, with a sensor's inputs."""
    model = share_module(workload.module(SENSOR), (workload.example(SENSOR),))
    profiles = {side: device_profile(workload, model, side) for side in SIDES}
    make_ready(CostModel.from_profiles(model.split, profiles))
    request = PlanRequest(graph_to_json(model.split.captured), profiles[ROBOT].to_json(),
                          profiles[SERVER].to_json(), delay=DELAY, overhead=OVERHEAD)
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        text = book_from_profiles(request, Path(folder), workers=workers)
        seconds = time.perf_counter() - start
    return Planned(workload.title, len(model.split.operators),
                   len(ScheduleBook.from_json(text).bounds), seconds)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--nets', nargs='+', default=list(WORKLOADS), choices=WORKLOADS,
                        metavar='NET', help=f'of {", ".join(WORKLOADS)}')
    parser.add_argument('--workers', type=int, default=os.cpu_count() or 1, metavar='N',
                        help='processes (default: one for each processor)')
    parser.add_argument('--json', type=Path, help='write the results here')
    args = parser.parse_args()
    prepare_process()
    found = []
    print(f'{"network":40}{"operators":>10}{"bandwidths":>12}{"seconds":>9}')
    for name in args.nets:
        book = planned(WORKLOADS[name], args.workers)
        print(f'{book.network:40}{book.operators:10}{book.bandwidths:12}{book.seconds:9.1f}',
              flush=True)
        found.append(asdict(book))
    if args.json:
        args.json.write_text(json.dumps({'workers': args.workers, 'books': found}, indent=1)
                             + '\n')


if __name__ == '__main__':
    main()
