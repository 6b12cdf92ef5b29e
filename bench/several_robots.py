# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Several robots on one server: what each gets, and what the simulator says for its share.

Devices are emulated (operators take the time of a profile and compute
nothing), each robot has a link of its own in memory, and the server is one
device whose processor all sessions share.  First each robot infers alone,
then all at once; every byte that arrives is checked.  With ``--minutes``
robots leave and join every few seconds for so long, and it is shown that
memory, sessions, threads and descriptors stay as many.

"simulated" is what the simulator says of the schedule of the median frame,
on a server that computes for so many times as long as it reported.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
import os
from pathlib import Path
from random import Random
from statistics import median
import threading
import time

from rich.console import Console
from rich.table import Table

from intradp_lab.soak.process_resources import process_resources
from intradp_lab.testbed.checking_channel import CheckingChannel
from intradp_lab.testbed.joined_channel import JoinedChannel
from intradp_lab.testbed.paced_pair import PacedPair
from intradp_lab.testbed.phases import wait_ready
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import prepare_process, trim_heap
from intradp_ros.report.result_tables import write_json
from intradp_ros.runtime.models.catalogue import example_inputs
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)

RATES = (5.0, 20.0, 50.0, 100.0)
DELAY = 0.001
WARM_UP = 8
CHANGE = 4.0  # seconds between two robots that leave or join


@dataclass
class Seen:
    """What one robot saw: seconds of its frames, and loads reported and schedules at each."""

    latency: list[float] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    schedule: list[int] = field(default_factory=list)
    simulated: list[float] = field(default_factory=list)
    shared: int = 0
    recovered: int = 0


@dataclass
class Robot:
    """A robot at the end of a link."""

    mbps: float
    client: RobotClient
    ends: tuple[CheckingChannel, CheckingChannel]
    strategy: str

    @property
    def wrong(self) -> int:
        """Chunks that did not arrive as they were sent."""
        return sum(end.arrived.wrong for end in self.ends)


class Site:
    """One emulated server, and robots that come and go."""

    def __init__(self, pair: PacedPair, book: ScheduleBook) -> None:
        self.pair, self.book = pair, book
        self.channel = JoinedChannel()
        model = pair.device(SERVER)
        self.server = OffloadServer(self.channel, {model.digest: model}, lambda text: None)

    @contextmanager
    def robot(self, mbps: float, strategy: str) -> Iterator[Robot]:
        """Let a robot join, and leave in the end."""
        near, far = map(CheckingChannel, memory_pair(rate=mbps * 125e3, delay=DELAY))
        self.channel.join(far)
        client = RobotClient(self.pair.device(ROBOT), near, make_predictor('ewma'),
                             lambda text: None, experience=LatencyCalibration())
        try:
            with closing(client):
                client.use_book(self.book)
                wait_ready(client)
                yield Robot(mbps, client, (near, far), strategy)
                client.connection.close()  # says good-bye, which takes the link some time
                time.sleep(10 * DELAY)
        finally:
            self.channel.part(far)

    def infer(self, robot: Robot, seconds: float, seen: Seen) -> None:
        """Let a robot infer, frame after frame."""
        inputs = example_inputs(robot.client.model)
        for _ in range(WARM_UP):
            robot.client.infer(inputs, strategy=robot.strategy)
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            outcome = robot.client.infer(inputs, strategy=robot.strategy)
            stats, load = outcome.stats, robot.client.connection.load
            seen.latency.append(stats.latency)
            seen.load.append(load)
            seen.schedule.append(stats.schedule)
            seen.shared += stats.shared
            seen.recovered += stats.recovered


def together(site: Site, rates: Sequence[float], seconds: float, strategy: str,
             ) -> tuple[list[Seen], int]:
    """Let robots with links of these rates infer at once; return what they saw."""
    found, wrong = [Seen() for _ in rates], [0] * len(rates)

    def one(index: int) -> None:
        with site.robot(rates[index], strategy) as robot:
            site.infer(robot, seconds, found[index])
            wrong[index] = robot.wrong

    threads = [threading.Thread(target=one, args=(i,)) for i in range(len(rates))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for mbps, seen in zip(rates, found):
        seen.simulated = [site.pair.simulated(
            site.book.entries[k].partition, mbps, delay=DELAY, server=load)
            for k, load in zip(seen.schedule, seen.load)]
    return found, sum(wrong)


def holds() -> dict[str, float]:
    """Return what this process holds: memory (MB, without what is free), threads, descriptors."""
    trim_heap()
    found = process_resources(os.getpid(), time.monotonic())
    assert found, 'this process is there'
    return {'MB': found.resident_bytes / 1e6, 'threads': threading.active_count(),
            'descriptors': found.descriptors}


def come_and_go(site: Site, minutes: float, strategy: str) -> list[dict[str, float]]:
    """Let robots with random links come and go, four at a time; return what is held when."""
    random, end, rows = Random(1), time.monotonic() + 60 * minutes, []
    stopped = threading.Event()

    def visits() -> None:
        while time.monotonic() < end and not stopped.is_set():
            with site.robot(random.choice(RATES), strategy) as robot:
                site.infer(robot, random.uniform(CHANGE, 3 * CHANGE), Seen())

    threads = [threading.Thread(target=visits) for _ in RATES]
    for thread in threads:
        thread.start()
    start = time.monotonic()
    while any(thread.is_alive() for thread in threads):
        time.sleep(min(10.0, 6 * minutes))
        rows.append({'seconds': time.monotonic() - start, **holds(),
                     'sessions': len(site.server.sessions)})
    return rows


def main() -> None:
    """Parse arguments, run and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--seconds', type=float, default=20.0, help='of each phase')
    parser.add_argument('--minutes', type=float, default=0.0, help='robots come and go')
    parser.add_argument('--rates', type=float, nargs='+', default=RATES, metavar='MBPS')
    parser.add_argument('--server', type=float, default=0.25, metavar='S',
                        help='seconds of the network on the server; 1 on a robot')
    parser.add_argument('--strategy', default=SHARED)
    parser.add_argument('--json', type=Path)
    args = parser.parse_args()
    prepare_process()
    pair, console = PacedPair(server=args.server), Console(width=110)
    book = pair.book(2.0, 200.0, 8, delay=DELAY)
    site = Site(pair, book)
    with closing(site.server):
        alone = [together(site, [mbps], args.seconds / 2, args.strategy) for mbps in args.rates]
        found, wrong = together(site, args.rates, args.seconds, args.strategy)
        console.print(table(args.rates, [seen for (seen,), _ in alone], found))
        wrong += sum(count for _, count in alone)
        console.print(f'chunks that arrived changed: {wrong}')
        before, rows = holds(), come_and_go(site, args.minutes, args.strategy)
        if rows:
            console.print(leaving_table(rows))
            console.print(f'before: {before}, after: {holds()}, sessions left: '
                          f'{len(site.server.sessions)}, load left: {site.server.processor.load}')
    if args.json:
        write_json(args.json, {'rates': list(args.rates), 'wrong': wrong, 'rows': rows,
                               'alone': [asdict(seen) for (seen,), _ in alone],
                               'together': [asdict(seen) for seen in found]})


def table(rates: Sequence[float], alone: Sequence[Seen], found: Sequence[Seen]) -> Table:
    """Return what the robots saw, a line for each."""
    shown = Table(title='Robots on one server (medians, ms; emulated devices, links in memory)')
    for column in ('Mbit/s', 'alone', 'simulated', 'together', 'simulated ', 'differs', 'load',
                   'frames', 'shared', 'recovered'):
        shown.add_column(column, justify='right')
    for mbps, one, seen in zip(rates, alone, found):
        took, said = median(seen.latency), median(seen.simulated)
        shown.add_row(
            f'{mbps:g}', f'{1e3 * median(one.latency):.0f}', f'{1e3 * median(one.simulated):.0f}',
            f'{1e3 * took:.0f}', f'{1e3 * said:.0f}', f'{100 * (took / said - 1):+.1f} %',
            f'{median(seen.load):.2f}', str(len(seen.latency)), str(seen.shared),
            str(seen.recovered))
    return shown


def leaving_table(rows: Sequence[dict[str, float]]) -> Table:
    """Return what was held while robots left and joined."""
    shown = Table(title=f'Four robots at a time, each for {CHANGE:g} to {3 * CHANGE:g} s')
    for column in rows[0]:
        shown.add_column(column, justify='right')
    for row in rows:
        shown.add_row(*(f'{value:.0f}' for value in row.values()))
    return shown


if __name__ == '__main__':
    main()
