# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Training by the hundred: random plans and losses, kills, stops and cut links; memory over rounds.

- ``--threads N``: trainings with devices as threads, of random networks, optimisers, plans and
  0 to 3 losses, each compared with one process (weights, losses, norms of gradients, samples);
- ``--processes N``: the same with devices as processes that are killed;
- ``--faults N``: trainings over processes in network namespaces (Linux, as root) to whom
  something happens at random moments: a process is killed or stopped (for good, or for a time),
  a device's link or the link between two is cut (for good, or for a time);
- ``--rounds N``: memory of the worker processes over so many rounds.

Each ends with the result of one process, or with an error that says why, or it counts as hung.
"""
from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
import importlib
import json
import os
from pathlib import Path
import random
import signal
import sys
import time
from typing import Any

import torch

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.lab.emulation.namespaces import owned_namespaces, run
from intradp_ros.systems.training.layer_graph import capture
from intradp_ros.systems.training.layer_table import LayerTable
from intradp_ros.systems.training.process_fleet import NOWHERE, ProcessFleet
from intradp_ros.systems.training.round_commit import RoundCommit
from intradp_ros.systems.training.trainer import TrainingError
from intradp_ros.systems.training.worker import Settings

TESTS = Path(__file__).resolve().parents[1] / 'test'
sys.path.append(str(TESTS))  # small networks, random plans

fleet = importlib.import_module('training_fleet')
models = importlib.import_module('training_models')
bound_of, train_alone_drawing = models.bound_of, models.train_alone_drawing

NAMES = ('a', 'b', 'c', 'd')
EXACT, TIMEOUT, HUNG = 1e-10, 3.0, 150.0
KINDS = ('kill', 'stop', 'stop a while', 'cut', 'cut a while', 'cut two', 'cut two a while')
NO_TABLE = LayerTable(('none',), (0.0,), (0.0,), (0.0,), (0.0, 0.0), (0.0, 0.0), {})


@cache
def prepared(model: str, optimiser: Any, rounds: int) -> tuple[Any, Any, Any, float]:
    """Return a task, its layers, what one process makes of it, and how near that must be."""
    task = fleet.make_task(model, optimiser, rounds=rounds)
    alone = train_alone_drawing(task)
    chaotic = model == 'mobilenet' and optimiser is fleet.adam
    return task, capture(task), alone, max(EXACT, bound_of(task, alone) if chaotic else 0.0)


def wrong(task: Any, commit: RoundCommit, state: Any, alone: Any, bound: float) -> str:
    """Return what differs from one process; nothing where all is well."""
    if (apart := fleet.difference(state, alone)) > bound:
        return f'weights {apart:.1e} apart'
    for k in range(task.rounds):
        figures = commit.figures[k]
        if figures['samples'] != task.batch:
            return f'{figures["samples"]} samples in round {k}'
        for name, value in (('loss', alone.loss[k]), ('norm', alone.norm[k])):
            if abs(figures[name] / value - 1) > 10 * bound:
                return f'{name} of round {k} {abs(figures[name] / value - 1):.1e} apart'
    return ''


def threads(count: int, rng: random.Random) -> dict[str, Any]:
    """Train with devices as threads."""
    found: Counter[str] = Counter()
    worst = 0.0
    for number in range(count):
        model = rng.choice(['cnn', 'cnn', 'transformer', 'dropout', 'typed', 'mobilenet'])
        optimiser = rng.choice([fleet.sgd, fleet.adam])
        task, graph, alone, bound = prepared(model, optimiser, 20)
        names = NAMES[:rng.randint(2, 4)]
        actions = [*(f'{kind}{k}' for kind in 'FB' for k in range(task.micro_batches)), 'S', 'U']
        lost = rng.sample(names, rng.randint(0, len(names) - 1))
        faults = {name: (rng.randint(0, 19), rng.choice(actions)) for name in lost}
        trainer, state = fleet.train(
            task, names, fleet.shuffled(number, len(graph.layers), task), faults,
            rng.randint(1, 5), graph=graph, expected=False)
        reason = wrong(task, trainer.commit, state, alone, bound)
        worst = max(worst, 0.0 if bound > EXACT else fleet.difference(state, alone))
        found[reason or f'{len(trainer.commit.recoveries)} losses, exact'] += 1
        if reason:
            print(number, model, names, faults, reason, flush=True)
    return {'runs': count, 'largest_difference': worst, **found}


Call = Callable[[ProcessFleet], None]


@dataclass(frozen=True)
class Due:
    """Something that is done at a round, or at a time (s) after all devices have begun."""

    call: Call
    round: int = 0
    seconds: float = 0.0


@dataclass
class Watch:
    """Calls what is due; notes the longest time in which no new round counted."""

    due: list[Due]
    fleet: ProcessFleet | None = None
    stalled: float = 0.0
    begun: float = 0.0
    _reached: int = 0
    _since: float = 0.0

    def __call__(self, commit: RoundCommit) -> None:
        """Look at where training stands."""
        now = time.monotonic()
        if commit.plan is None or self.fleet is None:
            return
        if not self._since or commit.committed > self._reached:
            self._reached, self._since = max(commit.committed, self._reached), now
        self.stalled = max(self.stalled, now - self._since)
        self.begun = self.begun or now
        for one in [one for one in self.due if commit.committed >= one.round
                    and now - self.begun >= one.seconds]:
            self.due.remove(one)
            one.call(self.fleet)


def process_fleet(name: str, task: Any, graph: Any, names: tuple[str, ...], seed: int,
                  watch: Watch, address: str = '127.0.0.1', places: Any = NOWHERE,
                  ) -> ProcessFleet:
    """Return processes that train by random plans."""
    topology = behind_access_point([Device(one) for one in names], 1e8)
    return ProcessFleet(f'{TESTS}/training_fleet.py:{name}', task, graph, topology,
                        fleet.shuffled(seed, len(graph.layers), task), NO_TABLE,
                        Settings(TIMEOUT, 5, address), progress=watch, places=places)


def processes(count: int, rng: random.Random) -> dict[str, Any]:
    """Train with devices as processes, of which some are killed."""
    found: Counter[str] = Counter()
    for number in range(count):
        model, optimiser = rng.choice(['cnn', 'dropout']), rng.choice(['sgd', 'adam'])
        task, graph, alone, bound = prepared(model, getattr(fleet, optimiser), 20)
        names = NAMES[:rng.randint(2, 4)]
        watch = Watch([])
        for name in rng.sample(names, rng.randint(1, len(names) - 1)):
            watch.due.append(Due(_signal(name, signal.SIGKILL), rng.randint(1, 18)))
        with process_fleet(f'{model}_{optimiser}', task, graph, names, number, watch) as one:
            watch.fleet = one
            one.trainer.run(HUNG)
            reason = wrong(task, one.trainer.commit, one.trainer.collect(), alone, bound)
            found[reason or f'{len(one.trainer.commit.recoveries)} losses, exact'] += 1
    return {'runs': count, **found}


class Net:
    """Devices in network namespaces that a bridge joins; the trainer is at the bridge."""

    def __init__(self, spaces: dict[str, str]) -> None:
        self.spaces = spaces
        self.address = '10.79.0.254'
        self.of = {name: f'10.79.0.{k + 1}' for k, name in enumerate(spaces)}
        # an address of its own: else a bridge takes a port's, and another when that one goes
        run('ip', 'link', 'add', 'trainbr', 'address', '02:00:0a:4f:00:fe', 'type', 'bridge')
        run('ip', 'addr', 'add', f'{self.address}/24', 'dev', 'trainbr')
        run('ip', 'link', 'set', 'trainbr', 'up')
        for name, space in spaces.items():
            run('ip', 'netns', 'add', space)
            run('ip', 'link', 'add', f'train{name}', 'type', 'veth', 'peer', 'name', 'eth0',
                'netns', space)
            run('ip', 'link', 'set', f'train{name}', 'master', 'trainbr', 'up')
            run('ip', '-n', space, 'addr', 'add', f'{self.of[name]}/24', 'dev', 'eth0')
            run('ip', '-n', space, 'link', 'set', 'eth0', 'up')
            run('ip', '-n', space, 'link', 'set', 'lo', 'up')

    def cut(self, name: str, whole: bool = True) -> None:
        """Cut a device's link to all, or join it again."""
        run('ip', 'link', 'set', f'train{name}', 'down' if whole else 'up')

    def cut_two(self, a: str, b: str, way: str = 'replace') -> None:
        """Cut the link between two devices (`replace`), or join them again (`flush`)."""
        for here, there in ((a, b), (b, a)):
            run('ip', '-n', self.spaces[here], 'route', way, *(
                ('type', 'blackhole') if way == 'flush' else ('blackhole',)),
                f'{self.of[there]}/32')

    def whole(self) -> None:
        """Join all again."""
        for name, space in self.spaces.items():
            self.cut(name, False)
            run('ip', '-n', space, 'route', 'flush', 'type', 'blackhole')

    @property
    def places(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """Return each device's address, and the words before its command."""
        return {name: (self.of[name], ('ip', 'netns', 'exec', space))
                for name, space in self.spaces.items()}


@contextmanager
def network() -> Iterator[Net]:
    """Make the network; it is gone when it is left."""
    with owned_namespaces('intradptrain', list(NAMES)) as spaces:
        try:
            yield Net(dict(spaces))
        finally:
            run('ip', 'link', 'del', 'trainbr')


def _signal(name: str, number: int) -> Call:
    def send(one: ProcessFleet) -> None:
        one.links[name].process.send_signal(number)
    return send


def happening(kind: str, net: Net, rng: random.Random) -> list[Due]:
    """Return what happens at a random moment, and where it is for a time, its end."""
    name, other = rng.sample(NAMES, 2)
    first = rng.uniform(0.0, 6.0)

    def cut(one: ProcessFleet) -> None:
        net.cut(name) if 'two' not in kind else net.cut_two(name, other)

    def join(one: ProcessFleet) -> None:
        net.cut(name, False) if 'two' not in kind else net.cut_two(name, other, 'flush')

    begin: Call = cut
    end: Call = join
    if kind == 'kill':
        begin = _signal(name, signal.SIGKILL)
    elif kind.startswith('stop'):
        begin, end = _signal(name, signal.SIGSTOP), _signal(name, signal.SIGCONT)
    found = [Due(begin, seconds=first)]
    if kind.endswith('a while'):
        found.append(Due(end, seconds=first + rng.uniform(0.5, 15.0)))
    return found


def faults(count: int, rng: random.Random) -> dict[str, Any]:
    """Let one to three things happen to each training."""
    task = fleet.long_sgd()
    graph, alone = capture(task), train_alone_drawing(task)
    rows: list[dict[str, Any]] = []
    with network() as net:
        for number in range(count):
            kinds = [KINDS[number % len(KINDS)], *rng.choices(KINDS, k=rng.randint(0, 2))]
            watch = Watch([])
            for kind in kinds:
                watch.due += happening(kind, net, rng)
            row: dict[str, Any] = {'kinds': kinds}
            begun = time.monotonic()
            try:
                with process_fleet('long_sgd', task, graph, NAMES, number, watch, net.address,
                                   net.places) as one:
                    watch.fleet = one
                    one.trainer.run(HUNG)
                    row['recoveries'] = len(one.trainer.commit.recoveries)
                    net.whole()
                    reason = wrong(task, one.trainer.commit, one.trainer.collect(), alone, 1e-8)
                    row['end'] = f'WRONG: {reason}' if reason else 'trained, exact'
            except TrainingError as error:
                row['end'] = ('HUNG: ' if 'not done' in str(error) else 'error: ') + str(error)
            net.whole()
            row |= {'seconds': time.monotonic() - begun, 'stalled': watch.stalled}
            rows.append(row)
            print(json.dumps(row), flush=True)
    return {'runs': count, 'ends': Counter(row['end'].split(':')[0] for row in rows),
            'longest_stall': max(row['stalled'] for row in rows), 'rows': rows}


def memory(rounds: int) -> dict[str, Any]:
    """Train for so many rounds; return the MB of each process on the way."""
    os.environ['INTRADP_ROUNDS'] = str(rounds)
    task = fleet.many_rounds()
    graph = capture(task)
    rows: dict[int, dict[str, float]] = {}

    def note(at: int) -> Call:
        def held(one: ProcessFleet) -> None:
            rows[at] = {name: _resident(link.process.pid) for name, link in one.links.items()}
        return held
    watch = Watch([Due(note(at), at) for at in range(rounds // 10, rounds - 1, rounds // 10)])
    with process_fleet('many_rounds', task, graph, NAMES[:3], 1, watch) as one:
        watch.fleet = one
        one.trainer.run(600.0)
    return {'rounds': rounds, 'megabytes': rows}


def _resident(pid: int) -> float:
    lines = Path(f'/proc/{pid}/status').read_text().splitlines()
    return float(next(line.split()[1] for line in lines if line.startswith('VmRSS'))) / 1024


def main() -> None:
    """Run what is asked for, print figures, and write JSON if asked for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--threads', type=int, default=20)
    parser.add_argument('--processes', type=int, default=2)
    parser.add_argument('--faults', type=int, default=0)
    parser.add_argument('--rounds', type=int, default=0)
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', type=Path, help='write the figures here')
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng, found = random.Random(args.seed), dict[str, Any]()
    for name, job, count in (('threads', threads, args.threads),
                             ('processes', processes, args.processes),
                             ('faults', faults, args.faults)):
        if count:
            found[name] = job(count, rng)
            print(name, json.dumps({k: v for k, v in found[name].items() if k != 'rows'}))
    if args.rounds:
        found['memory'] = memory(args.rounds)
        print('memory', json.dumps(found['memory']))
    if args.json:
        args.json.write_text(json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
