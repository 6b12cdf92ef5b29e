# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Frames per second with several inferences in flight, against one at a time.

Devices are emulated (operators take the time of a profile and compute
nothing), the link is one in memory with a rate and a delay.  Every byte that
arrives is checked, and that results come in the order of asking.  In the
end the link is cut while inferences are in flight: all must be answered.
"""
from __future__ import annotations

import argparse
from concurrent.futures import Future
from contextlib import closing
from dataclasses import asdict, dataclass, field
from statistics import median
import time

from rich.console import Console
from rich.table import Table

from intradp_lab.testbed.checking_channel import CheckingChannel
from intradp_lab.testbed.paced_pair import PacedPair
from intradp_lab.testbed.phases import wait_ready
from intradp_ros.cli.output_paths import result_file
from intradp_ros.link.predictor import make_predictor
from intradp_ros.profiling.machine import prepare_process
from intradp_ros.report.result_tables import write_json
from intradp_ros.runtime.models.catalogue import example_inputs
from intradp_ros.runtime.requests.outcome import Outcome
from intradp_ros.runtime.transport.channel import Channel
from intradp_ros.runtime.transport.memory_channel import memory_pair
from intradp_ros.schedule.schedule import ROBOT, SERVER
from intradp_ros.systems.sharing.book.book import ScheduleBook
from intradp_ros.systems.sharing.book.latency_calibration import LatencyCalibration
from intradp_ros.systems.sharing.session.robot import RobotClient
from intradp_ros.systems.sharing.session.server import OffloadServer
from intradp_ros.systems.sharing.session.stream import InferenceStream
from intradp_ros.systems.sharing.strategies import (
    CUT,
    OFFLOAD,
    SHARED,
)

DELAY = 0.001
STRATEGIES = (SHARED, OFFLOAD, CUT)


@dataclass
class Seen:
    """What a stream did: when results came, what each took, in which order, and how."""

    server: float
    strategy: str
    inflight: int
    at: list[float] = field(default_factory=list)
    latency: list[float] = field(default_factory=list)
    number: list[int] = field(default_factory=list)
    shared: int = 0
    recovered: int = 0
    failed: int = 0
    asked: int = 0
    wrong: int = 0

    @property
    def per_second(self) -> float:
        """Results a second, in the last three quarters of the results."""
        at = self.at[len(self.at) // 4:]
        return (len(at) - 1) / (at[-1] - at[0]) if len(at) > 1 else 0.0

    def take(self, future: Future[Outcome]) -> None:
        """Note a result."""
        if future.exception():
            self.failed += 1
            return
        stats = future.result().stats
        self.at.append(time.monotonic())
        self.latency.append(stats.latency)
        self.number.append(stats.inference)
        self.shared += stats.shared
        self.recovered += stats.recovered


def run(pair: PacedPair, book: ScheduleBook, args: argparse.Namespace, seen: Seen, *,
        cut: bool = False) -> Seen:
    """Let a robot infer for a while; `cut` the link for good after half of it."""
    ends = memory_pair(rate=args.mbps * 125e3, delay=DELAY)
    near, far = map(CheckingChannel, ends)
    model, robot = pair.device(SERVER), pair.device(ROBOT)

    def client(channel: Channel, number: int) -> RobotClient:
        return RobotClient(robot, channel, make_predictor('ewma'), lambda text: None,
                           experience=LatencyCalibration(), stream=number)

    inputs = example_inputs(robot)
    with closing(OffloadServer(far, {model.digest: model}, lambda text: None)), \
            closing(InferenceStream(near, seen.inflight, client)) as stream:
        stream.use_book(book)
        for each in stream.clients:
            wait_ready(each)
        begin = time.monotonic()
        while time.monotonic() < begin + args.seconds:
            seen.asked += 1
            stream.submit(inputs, seen.take, strategy=seen.strategy)
            if cut and time.monotonic() > begin + args.seconds / 2:
                ends[0].cut()
        stream.wait()
    seen.wrong = near.arrived.wrong + far.arrived.wrong
    return seen


def main() -> None:
    """Parse arguments, run and report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--mbps', type=float, default=20.0)
    parser.add_argument('--seconds', type=float, default=15.0, help='of each run')
    parser.add_argument('--servers', type=float, nargs='+', default=[0.33, 0.1], metavar='S',
                        help='seconds of the network on the server; 1 on the robot')
    parser.add_argument('--inflight', type=int, nargs='+', default=[1, 2, 3])
    parser.add_argument('--strategies', nargs='+', choices=STRATEGIES, default=[SHARED, OFFLOAD])
    parser.add_argument('--json', type=result_file)
    args = parser.parse_args()
    prepare_process()
    found = []
    for server in args.servers:
        pair = PacedPair(server=server)
        book = pair.book(2.0, 200.0, 8, delay=DELAY)
        found += [run(pair, book, args, Seen(server, strategy, inflight))
                  for strategy in args.strategies for inflight in args.inflight]
    broken = run(pair, book, args, Seen(server, SHARED, max(args.inflight)), cut=True)
    console = Console(width=110)
    console.print(table(found, args.mbps))
    console.print(f'link cut with {broken.inflight} in flight: asked {broken.asked}, answered '
                  f'{len(broken.at)}, failed {broken.failed}, in order {in_order(broken)}')
    if args.json:
        write_json(args.json, {'mbps': args.mbps, 'runs': [
            {**asdict(seen), 'per_second': seen.per_second} for seen in (*found, broken)]})


def in_order(seen: Seen) -> bool:
    """Return whether results came in the order of asking, each once."""
    return seen.number == list(range(1, seen.asked + 1))


def table(found: list[Seen], mbps: float) -> Table:
    """Return a line for each run."""
    shown = Table(title=f'HED at {mbps:g} Mbit/s, 1 s on the robot (emulated devices, '
                        'link in memory)')
    for column in ('server, s', 'mode', 'in flight', 'frames/s', 'against one', 'latency, ms',
                   'shared', 'recovered', 'in order', 'changed'):
        shown.add_column(column, justify='right')
    for seen in found:
        one = next((s for s in found if (s.server, s.strategy, s.inflight) ==
                    (seen.server, seen.strategy, 1)), seen)
        shown.add_row(
            f'{seen.server:g}', seen.strategy, str(seen.inflight),
            f'{seen.per_second:.2f}', f'{seen.per_second / one.per_second:.2f}',
            f'{1e3 * median(seen.latency):.0f}', f'{seen.shared} of {seen.asked}',
            str(seen.recovered), 'yes' if in_order(seen) and not seen.failed else 'NO',
            str(seen.wrong))
    return shown


if __name__ == '__main__':
    main()
