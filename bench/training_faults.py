# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Training by the hundred: random plans and losses, kills, stops and cut links; memory over rounds.

- ``--threads N``: trainings with devices as threads, of random networks, optimisers, plans and
  0 to 3 losses, each compared with one process (weights, losses, norms of gradients, samples);
- ``--processes N``: the same with devices as processes that are killed;
- ``--faults N``: trainings over processes in network namespaces (Linux, as root) to whom
  something happens at random moments: a process is killed or stopped (for good, or for a time),
  a device's link or the link between two is cut (for good, or for a time), a killed device comes
  back, one that never was there joins, training is paused; ``--kinds`` chooses among these;
- ``--churn N``: the same with one device that becomes four and one again, twice, with pauses;
- ``--rounds N``: memory of trainer and workers over so many rounds, with a new plan half-way;
  an allocator that fragments settles within some thousand rounds, so take many.

Each ends with the result of one process, or with an error that says why, or it counts as hung.
"""
from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
import importlib
import json
import os
from pathlib import Path
import random
import signal
import statistics
import sys
import time
from typing import Any

import torch

from intradp_lab.emulation.namespaces import owned_namespaces, run
from intradp_ros.cli.output_paths import result_file
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.process_fleet import NOWHERE, ProcessFleet
from intradp_ros.systems.training.service.round_commit import Phase, RoundCommit
from intradp_ros.systems.training.service.trainer import TrainingError

TESTS = Path(__file__).resolve().parents[1] / 'test'
sys.path.append(str(TESTS))  # small networks, random plans

fleet = importlib.import_module('training_fleet')
models = importlib.import_module('training_models')
bound_of, train_alone_drawing = models.bound_of, models.train_alone_drawing

NAMES = ('a', 'b', 'c', 'd')
LATE = 'e'  # is not there when training begins
EXACT, TIMEOUT, HUNG = 1e-10, 3.0, 150.0
KINDS = ('kill', 'stop', 'stop a while', 'cut', 'cut a while', 'cut two', 'cut two a while',
         'come back', 'join', 'pause')
LONG = 10.0  # seconds of standing still whose causes are printed
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

    @property
    def name(self) -> str:
        """Return what it is called in a journal."""
        call = self.call.func if isinstance(self.call, partial) else self.call
        return str(getattr(call, '__qualname__', call))


@dataclass
class Watch:
    """
    Calls what is due; notes the longest time in which no round counted, pauses left out.

    `behind` is the longest in which no new one did: rounds that are played again are none.

    `journal` has what changed, and when (s).
    """

    due: list[Due]
    fleet: ProcessFleet | None = None
    stalled: float = 0.0
    behind: float = 0.0
    begun: float = 0.0
    journal: list[str] = field(default_factory=list)
    _state: str = ''
    _reached: int = 0
    _last: int = 0
    _since: float = 0.0
    _new: float = 0.0

    def __call__(self, commit: RoundCommit) -> None:
        """Look at where training stands."""
        now = time.monotonic()
        if commit.plan is None or self.fleet is None:
            return
        paused = not self._since or commit.phase is Phase.PAUSED
        if paused or commit.committed > self._last:
            self._since = now
        if paused or commit.committed > self._reached:
            self._reached, self._new = max(commit.committed, self._reached), now
        self._last = commit.committed
        self.stalled = max(self.stalled, now - self._since)
        self.behind = max(self.behind, now - self._new)
        self.begun = self.begun or now
        course = commit.course
        state = f'{commit.phase.value} plan {commit.number.epoch} of ' \
            f'{",".join(commit.plan.participants)}; there {",".join(sorted(commit.alive))}; ' \
            f'idle {",".join(sorted(course.idle))}; ready {",".join(sorted(course.ready))}; ' \
            f'left out {",".join(sorted(commit.away.left_out))}'
        if state != self._state:
            self._state = state
            self.journal.append(f'{now - self.begun:.2f} round {commit.committed}: {state}')
            self.journal += [f'    {name}: {report["error"]} {report["cut"]}' for name, report in
                             commit.course.idle.items() if report['error']]
        for one in [one for one in self.due if commit.committed >= one.round
                    and now - self.begun >= one.seconds]:
            self.due.remove(one)
            self.journal.append(f'{now - self.begun:.2f} {one.name}')
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
    with owned_namespaces('intradptrain', [*NAMES, LATE]) as spaces:
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
    if kind in ('kill', 'come back'):
        begin, end = _signal(name, signal.SIGKILL), _start(name)
    elif kind.startswith('stop'):
        begin, end = _signal(name, signal.SIGSTOP), _signal(name, signal.SIGCONT)
    elif kind == 'join':
        begin = _start(LATE)
    elif kind == 'pause':
        begin, end = _pause, _resume
    found = [Due(begin, seconds=first)]
    if kind.endswith('a while') or kind in ('come back', 'pause'):
        found.append(Due(end, seconds=first + rng.uniform(0.5, 15.0)))
    return found


def _start(name: str) -> Call:
    return lambda one: one.start(name)


def _pause(one: ProcessFleet) -> None:
    one.trainer.pause()


def _resume(one: ProcessFleet) -> None:
    one.trainer.resume()


@dataclass
class Course:
    """Trainings of one task on a network, each compared with one process; notes a row of each."""

    net: Net
    task: Any
    rows: list[dict[str, Any]]

    def __post_init__(self) -> None:
        """Train in one process."""
        self.graph, self.alone = capture(self.task), train_alone_drawing(self.task)

    def train(self, names: tuple[str, ...], seed: int, watch: Watch, row: dict[str, Any]) -> None:
        """Train once; whatever the end, the network is whole again."""
        begun = time.monotonic()
        try:
            with process_fleet('long_sgd', self.task, self.graph, names, seed, watch,
                               self.net.address, self.net.places) as one:
                watch.fleet = one
                one.trainer.run(HUNG * max(1.0, self.task.rounds / 600))
                commit = one.trainer.commit
                row |= {'recoveries': len(commit.recoveries), 'plans': commit.number.epoch,
                        'to_come': len(watch.due)}
                self.net.whole()
                reason = wrong(self.task, commit, one.trainer.collect(), self.alone, 1e-8)
                row['end'] = f'WRONG: {reason}' if reason else 'trained, exact'
        except TrainingError as error:
            row['end'] = ('HUNG: ' if 'not done' in str(error) else 'error: ') + str(error)
        self.net.whole()
        row |= {'seconds': time.monotonic() - begun, 'stalled': watch.stalled,
                'behind': watch.behind}
        self.rows.append(row)
        print(json.dumps(row), flush=True)
        if watch.stalled > LONG or 'exact' not in row['end']:
            print(*watch.journal, sep='\n', flush=True)

    def figures(self) -> dict[str, Any]:
        """Return how trainings ended, and how long they stood still."""
        found: dict[str, Any] = {
            'runs': len(self.rows), 'ends': Counter(row['end'].split(':')[0] for row in self.rows)}
        for name in ('stalled', 'behind', 'seconds'):
            values = sorted(row[name] for row in self.rows)
            found[name] = {'median': values[len(values) // 2],
                           '90 %': values[len(values) * 9 // 10], 'longest': values[-1]}
        return found | {'rows': self.rows}


def faults(count: int, rng: random.Random, kinds: tuple[str, ...] = KINDS) -> dict[str, Any]:
    """Let one to three things happen to each training."""
    with network() as net:
        course = Course(net, fleet.long_sgd(), [])
        for number in range(count):
            some = [kinds[number % len(kinds)], *rng.choices(kinds, k=rng.randint(0, 2))]
            due = [one for kind in some for one in happening(kind, net, rng)]
            course.train(NAMES, number, Watch(due), {'kinds': some})
        return course.figures()


def _come(rng: random.Random, gone: set[str], one: ProcessFleet) -> None:
    """Let a device come that is not there."""
    if absent := sorted(set(NAMES) - (set(one.links) - gone)):
        name = rng.choice(absent)
        gone.discard(name)
        one.start(name)


def _go(rng: random.Random, gone: set[str], one: ProcessFleet) -> None:
    """Kill or stop one of those that are there, unless it is the last."""
    if len(there := sorted(one.trainer.commit.alive - gone)) > 1:
        name = rng.choice(there)
        gone.add(name)
        one.links[name].process.send_signal(rng.choice([signal.SIGKILL, signal.SIGSTOP]))


def churn(count: int, rng: random.Random) -> dict[str, Any]:
    """Let one device become four and one again, twice, at random moments, with pauses."""
    os.environ['INTRADP_ROUNDS'] = '6000'
    with network() as net:
        course = Course(net, fleet.long_sgd(), [])
        for number in range(count):
            first, at, due, gone = rng.choice(NAMES), 0.0, list[Due](), set[str]()
            for kind in (_come, _go, _come, _go):
                for _ in range(3):
                    at += rng.uniform(0.0, 4.0)
                    due.append(Due(partial(kind, rng, gone), seconds=at))
                    if rng.random() < 0.2:
                        due += [Due(_pause, seconds=at + rng.uniform(0.0, 2.0)),
                                Due(_resume, seconds=at + rng.uniform(2.0, 5.0))]
                at += rng.uniform(4.0, 12.0)  # in which those that came take part
            course.train((first,), number, Watch(due), {'kinds': ['churn']})
        return course.figures()


def memory(rounds: int, network: str) -> dict[str, Any]:
    """
    Train a network for so many rounds; a device is killed half-way, so that a new plan is made.

    Return the MB that the trainer and each worker have at every fiftieth part, and how they grow
    in 100 rounds (least squares) in the second half of each plan.
    """
    os.environ['INTRADP_ROUNDS'], os.environ['INTRADP_NETWORK'] = str(rounds), network
    task = fleet.many_rounds()
    graph, every = capture(task), max(1, rounds // 50)
    rows: dict[int, dict[str, float]] = {}

    def note(at: int) -> Call:
        def held(one: ProcessFleet) -> None:
            rows[at] = {'trainer': _resident(os.getpid())} | {
                name: _resident(link.process.pid) for name, link in one.links.items()
                if link.process.poll() is None}
        return held
    half = rounds // 2
    watch = Watch([Due(note(at), at) for at in range(every, rounds - 1, every)]
                  + [Due(_signal('c', signal.SIGKILL), half)])
    with process_fleet('many_rounds', task, graph, NAMES[:3], 1, watch) as one:
        watch.fleet = one
        one.trainer.run(7200.0)
        recoveries = len(one.trainer.commit.recoveries)
    slopes = {}
    for name, low, high in [(name, *part) for name in ('trainer', *NAMES[:3])
                            for part in ((half // 2, half), (half + half // 2, rounds))]:
        found = [(at, row[name]) for at, row in rows.items() if low <= at <= high and name in row]
        if len(found) > 2:
            slopes[f'{name}, rounds {low} to {high}'] = round(100 * statistics.linear_regression(
                *zip(*found)).slope, 3)
    return {'rounds': rounds, 'recoveries': recoveries, 'mb_per_100_rounds': slopes,
            'megabytes': rows}


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
    parser.add_argument('--kinds', default=','.join(KINDS), help='of faults (default: all)')
    parser.add_argument('--churn', type=int, default=0)
    parser.add_argument('--rounds', type=int, default=0)
    parser.add_argument('--network', choices=('cnn', 'mobilenet'), default='cnn',
                        help='whose memory --rounds looks at (default: %(default)s)')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--json', type=result_file, help='write the figures here')
    args = parser.parse_args()
    kinds = tuple(args.kinds.split(','))
    if unknown := set(kinds) - set(KINDS):
        parser.error(f'no kind of fault: {", ".join(sorted(unknown))}; there are '
                     f'{", ".join(KINDS)}')
    torch.set_num_threads(1)
    rng, found = random.Random(args.seed), dict[str, Any]()
    for name, job, count in (('threads', threads, args.threads),
                             ('processes', processes, args.processes),
                             ('faults', partial(faults, kinds=kinds), args.faults),
                             ('churn', churn, args.churn)):
        if count:
            found[name] = job(count, rng)
            print(name, json.dumps({k: v for k, v in found[name].items() if k != 'rows'}))
    if args.rounds:
        found['memory'] = memory(args.rounds, args.network)
        print('memory', json.dumps(found['memory']))
    if args.json:
        write_atomically(args.json, json.dumps(found, indent=1))


if __name__ == '__main__':
    main()
