# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Sharing while other work begins and ends on the machines of robot and server.

Nodes, link and video are those of ``intradp demo`` (Linux, as root).  Every
frame is played in all modes in turn.  Other work begins after ``--before``
frames, stays for ``--during`` frames and ends ``--after`` frames before the
end:

- ``robot``, ``server``: a process that never sleeps on that side's core takes
  half of it (all of it while the side waits);
- ``memory``: one that moves memory, on any core;
- ``robot-third``, ``server-third``: two processes leave a third of the core;
- ``host``: on each core a real-time process takes a third, in bursts of
  50 ms to 2 s, as a host that is shared with others does.

``ratio`` is the median of shared over that of the best other mode, once the
first ten frames after a change are over; ``settled`` after how many frames
the median ratio of five frames in a row is at most 1.03 (None: it never is);
``worst`` the slowest frame of mode shared after the first three, against that
median.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
from statistics import median
import sys
import tempfile
from typing import Any

from models import print_table

from intradp_lab.cli.demo import MODELS, PLANNER, PLAYER, ROBOT, SERVER
from intradp_lab.emulation.emulated_pair import emulated_pair, EmulatedPair, Side
from intradp_lab.emulation.processes import Child
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.processes import Command, module_arguments
from intradp_ros.report.result_tables import write_json
from intradp_ros.systems.sharing.strategies import (
    SHARED,
)

SETTLING, UNSETTLED, TOLERATED, RUN = 10, 3, 1.03, 5
TIMEOUT = 600.0
_HOST = ('--realtime', '--part', '0.333')


@dataclass(frozen=True)
class Work:
    """One process of other work: its options, and the side on whose cores it runs ('': any)."""

    side: str
    options: tuple[str, ...] = ()


KINDS: Mapping[str, tuple[Work, ...]] = {
    'robot': (Work('robot'),), 'server': (Work('server'),),
    'memory': (Work('', ('--memory',)),),
    'robot-third': (Work('robot'),) * 2, 'server-third': (Work('server'),) * 2,
    'host': (Work('robot', (*_HOST, '--seed', '1')), Work('server', (*_HOST, '--seed', '2'))),
}


@dataclass(frozen=True)
class Part:
    """What was seen before, during or after other work; milliseconds are medians of a mode."""

    kind: str
    part: str
    frames: int
    milliseconds: Mapping[str, float]
    expected: float
    ratio: float
    settled: int | None
    worst: float
    by_rows: float
    lost: int
    books: int


def play(kind: str, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Play all frames while other work of a kind begins and ends; return the player's report."""
    total = options.before + options.during + options.after
    spec = MODELS[options.model]
    with emulated_pair(options.rate, 'udp', folder / 'logs', print) as pair:
        everywhere = Side(pair.robot.prefix, (), pair.server.environment)
        player = pair.node(everywhere, PLAYER, {
            'model': spec, 'frames': total, 'every': 2, 'kill_after': 0,
            'modes': [*options.modes], 'output': str(folder)})
        player.wait_for_line('^phase waiting for robot and server$', TIMEOUT)
        pair.node(pair.server, SERVER, {'models': [spec]})
        pair.node(Side(pair.server.prefix, (), pair.server.environment), PLANNER, {})
        pair.node(pair.robot, ROBOT, {'model': spec, 'queue_size': 64})
        player.wait_for_line(f'^frame {options.before}$', TIMEOUT)
        with _working(pair, KINDS[kind]):
            player.wait_for_line(f'^frame {options.before + options.during}$', TIMEOUT)
        player.wait_for_line('^phase done$', TIMEOUT)
    report: dict[str, Any] = json.loads((folder / 'player.json').read_text())
    return report


@contextmanager
def _working(pair: EmulatedPair, works: Sequence[Work]) -> Iterator[None]:
    children: list[Child] = []
    try:
        for number, work in enumerate(works):
            cores = {'robot': pair.robot, 'server': pair.server}.get(work.side, Side()).cores
            children.append(pair.start(Command(
                f'other-work-{number}',
                module_arguments('intradp_lab.emulation.other_work', *work.options), (),
                cores)))
        yield
    finally:
        for child in children:
            child.kill()


def evaluate(kind: str, report: Mapping[str, Any], options: argparse.Namespace) -> list[Part]:
    """Return what was seen before, during and after."""
    ends = (0, options.before, options.before + options.during,
            options.before + options.during + options.after)
    return [_part(kind, name, report, first, last, SETTLING if first else 0)
            for name, first, last in zip(('before', 'during', 'after'), ends, ends[1:])]


def _part(kind: str, name: str, report: Mapping[str, Any], first: int, last: int, settling: int,
          ) -> Part:
    modes = report['modes']
    taken = {mode: dict(zip(phase['frame'], phase['latency_ms']))
             for mode, phase in modes.items()}
    predicted = dict(zip(modes[SHARED]['frame'], modes[SHARED]['predicted_ms']))
    rows = dict(zip(modes[SHARED]['frame'], modes[SHARED]['by_rows']))
    frames = [f for f in range(first, last) if all(f in t for t in taken.values())]
    steady = [f for f in frames if f >= first + settling] or frames
    middle = {mode: median(t[f] for f in steady) for mode, t in taken.items()}
    others = [mode for mode in taken if mode != SHARED]
    best = min(others, key=lambda mode: middle[mode])
    ratios = [taken[SHARED][f] / taken[best][f] for f in frames]
    slow = [taken[SHARED][f] for f in frames if f >= first + UNSETTLED]
    return Part(
        kind, name, len(frames), middle, median(predicted[f] for f in steady),
        middle[SHARED] / middle[best], _settled(ratios), max(slow) / middle[best],
        sum(rows[f] for f in steady) / len(steady), last - first - len(frames), report['books'])


def _settled(ratios: Sequence[float]) -> int | None:
    return next((i for i in range(len(ratios) - RUN + 1)
                 if median(ratios[i:i + RUN]) <= TOLERATED), None)


def _row(part: Part) -> list[str]:
    return [part.kind, part.part, str(part.frames),
            ' '.join(f'{mode} {value:.0f}' for mode, value in part.milliseconds.items()),
            f'{part.expected:.0f}', f'{part.ratio:.2f}', str(part.settled), f'{part.worst:.2f}',
            f'{part.by_rows:.0%}', str(part.lost), str(part.books)]


def main() -> int:
    """Run the benchmark; return 1 if a frame was lost."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--kinds', nargs='+', choices=KINDS, default=list(KINDS))
    parser.add_argument('--model', choices=MODELS, default='hed')
    parser.add_argument('--modes', nargs='+', default=['local', 'offload', 'cut', SHARED],
                        help=f'what is compared, {SHARED} among it')
    parser.add_argument('--rate', type=float, default=20.0, metavar='MBPS')
    parser.add_argument('--before', type=int, default=15, help='frames')
    parser.add_argument('--during', type=int, default=60, help='frames')
    parser.add_argument('--after', type=int, default=25, help='frames')
    parser.add_argument('--json', type=result_file, metavar='FILE')
    options = parser.parse_args()
    if SHARED not in options.modes or len(options.modes) < 2:
        parser.error(f'--modes needs {SHARED} and another one')
    parts: list[Part] = []
    with tempfile.TemporaryDirectory() as cache:
        os.environ['INTRADP_CACHE'] = cache
        for kind in options.kinds:
            with tempfile.TemporaryDirectory() as folder:
                parts += evaluate(kind, play(kind, options, Path(folder)), options)
            print_table(f'Sharing next to other work: {kind}', (
                'kind', 'part'), ('frames', 'median ms', 'expected', 'ratio', 'settled', 'worst',
                'by rows', 'lost', 'books'), [_row(p) for p in parts if p.kind == kind])
    if options.json:
        write_json(options.json, [asdict(part) for part in parts])
    return 1 if any(part.lost for part in parts) else 0


if __name__ == '__main__':
    sys.exit(main())
