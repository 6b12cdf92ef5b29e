# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What faults cost a pipeline: ``python bench/fleet_faults.py --rounds 3`` (Linux, as root).

Device nodes a, b, c over DDS behind one emulated access point; a asks every
50 ms (`--interval`).  At random moments b or c is killed (and started again), stopped for 3
s, or cut from the link for 1 s, or the coordinator is killed (and started
again; a second candidate takes its place meanwhile).  Printed: for how long no
frame went through the pipeline after each fault, and what became of all frames.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
import random
import signal
import statistics
import tempfile
import time

from intradp_lab.emulation.fleet_network import fleet_network, FleetNetwork
from intradp_lab.emulation.processes import Child
from intradp_lab.fleet.fleet_figures import without_pipeline
from intradp_lab.fleet.node_fleet import COORDINATOR, NodeFleet, running, RunningFleet
from intradp_ros.dds.transport_profile import transport_environment

MODEL = 'intradp_lab.zoo.mobilenet_v2:mobilenet_v2 1x3x96x96 uint8'
DEVICES = ('a', 'b', 'c')
CALM = 3.0  # seconds between two faults, at least


class Faults:
    """Does things to a running fleet, and waits until it is whole again."""

    def __init__(self, run: RunningFleet, network: FleetNetwork, asker: Child) -> None:
        self.run, self.network, self.asker = run, network, asker

    def kill(self, name: str) -> None:
        """Kill a device with -9, and start it again when the others go on without it."""
        mark = len(self.asker.output())
        self.run.children[name].kill()
        self.run.wait_for_plan(self.asker, ', '.join(d for d in DEVICES if d != name), mark)
        self._anew(lambda: self.run.start_device(name))

    def kill_coordinator(self, name: str) -> None:
        """Kill the coordinator with -9 and start it again."""
        self.run.children[COORDINATOR].kill()
        self._anew(self.run.start_coordinator)

    def stop(self, name: str) -> None:
        """Stop a device for 3 s."""
        mark = len(self.asker.output())
        self.run.children[name].signal(signal.SIGSTOP)
        time.sleep(3.0)
        self.run.children[name].signal(signal.SIGCONT)
        self.run.wait_for_plan(self.asker, 'a, b, c', mark)

    def cut(self, name: str) -> None:
        """Cut a device from the link for 1 s; mostly that is too short for another plan."""
        self.network.cut(name)
        time.sleep(1.0)
        self.network.restore(name)
        time.sleep(CALM)

    def _anew(self, start: Callable[[], None]) -> None:
        mark = len(self.asker.output())
        start()
        self.run.wait_for_plan(self.asker, 'a, b, c', mark)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--interval', type=float, default=0.05, help='seconds between images')
    parser.add_argument('--seed', type=int, default=0)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, fleet_network(DEVICES, 100.0) as network:
        environment = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', **transport_environment('air')}
        fleet = NodeFleet(MODEL, 'a', dict.fromkeys(DEVICES, 1.0), Path(folder), 'a,b,c',
                          network=network, environment=environment, standby=1)
        play(running(fleet), network, args.rounds, random.Random(args.seed),
             args.interval)


def play(fleet: AbstractContextManager[RunningFleet], network: FleetNetwork, rounds: int,
         chance: random.Random, interval: float) -> None:
    """Run the faults in rounds and print the figures."""
    with fleet as run:
        asker, found = run.asker(interval=interval, frames=1 << 20), []
        begin = time.monotonic()
        run.wait_for_plan(asker, 'a, b, c')
        faults = Faults(run, network, asker)
        for fault in (faults.kill, faults.stop, faults.cut, faults.kill_coordinator) * rounds:
            time.sleep(CALM + chance.random())
            name, at = chance.choice('bc'), time.monotonic() - begin
            fault(name)
            time.sleep(CALM)
            found.append((fault.__name__, name, at, time.monotonic() - begin))
        seen = run.stop_asking(asker)
    gaps: dict[str, list[float]] = {}
    for kind, name, at, until in found:
        gap = without_pipeline(seen, at, until)
        gaps.setdefault(kind, []).append(gap)
        print(f'{kind} {name} at {at:.1f} s: {gap:.2f} s without the pipeline')
    for kind, seconds in gaps.items():
        print(f'{kind}: {len(seconds)} times, median {statistics.median(seconds):.2f} s, '
              f'longest {max(seconds):.2f} s')
    print(f'{len(seen)} frames, {sum(s.answered for s in seen)} answered, '
          f'{sum(s.pipelined for s in seen)} by the pipeline; largest difference '
          f'{max(s.difference for s in seen):.1e}, longest latency '
          f'{max(s.latency for s in seen):.2f} s')


if __name__ == '__main__':
    main()
