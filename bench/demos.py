# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Each demo again and again, as on a new machine: ``python bench/demos.py --runs 20`` (root).

Each run has an empty cache and an empty folder of results.  Conditions:

quiet   nothing else runs, as far as this program knows
load    six processes compute without end
onednn  kernels of oneDNN as on a processor with SSE4.1 alone (``ONEDNN_MAX_CPU_ISA``)
aten    kernels of PyTorch as on a processor without vectors (``ATEN_CPU_CAPABILITY``)

Prints of each run its exit status, its seconds, and what failed; exit status 1 if one failed.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
import json
import os
from pathlib import Path
import re
import statistics
import subprocess
import sys
import tempfile
import time

from intradp_lab.emulation.processes import ChildError, starter
from intradp_ros.cli.output_paths import result_file, result_folder
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.core.processes import Command, module_arguments

DEMOS = ('demo', 'demo-pipeline', 'demo-fleet', 'demo-language', 'demo-training', 'demo-serving')
CONDITIONS: Mapping[str, Mapping[str, str]] = {
    'quiet': {}, 'load': {}, 'onednn': {'ONEDNN_MAX_CPU_ISA': 'SSE41'},
    'aten': {'ATEN_CPU_CAPABILITY': 'default'}}
BUSY = 6
#: Seconds after which a run counts as hung, of a machine that has time for it.
MOST = 3600.0
#: Lines of a failed run that are kept, and letters of each.
_LINES, _LETTERS = 12, 300


@dataclass(frozen=True)
class Run:
    """One run of a demo: its exit status (None: it hung), its seconds, the end of what it said."""

    demo: str
    condition: str
    number: int
    status: int | None
    seconds: float
    failed: str


def run_once(demo: str, condition: str, number: int, options: Sequence[str], keep: Path | None,
             ) -> Run:
    """Run a demo with nothing of an earlier run; its results are kept in a folder if it fails."""
    with tempfile.TemporaryDirectory(prefix='intradp-demos-') as name:
        folder = Path(name)
        environment = {**CONDITIONS[condition], 'XDG_CACHE_HOME': str(folder / 'cache'),
                       'INTRADP_CACHE': ''}
        with starter(folder / 'said') as start, busy(BUSY if condition == 'load' else 0):
            begun = time.monotonic()
            child = start(Command(demo, module_arguments(
                'intradp_ros.cli.main', demo, '--out', str(folder / 'out'), *options),
                environment=environment))
            try:
                status: int | None = child.wait(MOST)
            except ChildError:
                status = None
            seconds = time.monotonic() - begun
            said = child.output()
        if status and keep:
            kept = keep / f'{demo}-{condition}-{number}'
            kept.parent.mkdir(parents=True, exist_ok=True)
            folder.rename(kept)
            folder.mkdir()
    return Run(demo, condition, number, status, seconds, '' if status == 0 else failure(said))


def failure(said: str) -> str:
    """Return the end of what a demo printed, as far as a person would read it."""
    lines = [line for line in re.split(r'[\n\r]+', said) if line.strip()]
    return '\n'.join(line.strip()[:_LETTERS] for line in lines[-_LINES:])


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Let so many processes compute meanwhile."""
    working = [subprocess.Popen([sys.executable, '-I', '-S', '-c', 'while True: pass'])
               for _ in range(count)]
    try:
        yield
    finally:
        for process in working:
            process.kill()
            process.wait()


def summary(runs: Sequence[Run]) -> str:
    """Return a line for each demo and condition."""
    lines = [f'{"demo":<16}{"condition":<10}{"runs":>5}{"failed":>8}{"s, median":>11}{"most":>8}']
    for demo, condition in dict.fromkeys((run.demo, run.condition) for run in runs):
        each = [run for run in runs if (run.demo, run.condition) == (demo, condition)]
        seconds = [run.seconds for run in each]
        lines.append(f'{demo:<16}{condition:<10}{len(each):>5}'
                     f'{sum(run.status != 0 for run in each):>8}'
                     f'{statistics.median(seconds):>11.0f}{max(seconds):>8.0f}')
    return '\n'.join(lines)


def main() -> int:
    """Run all that is asked for."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--demos', nargs='+', choices=DEMOS, default=DEMOS, metavar='DEMO')
    parser.add_argument('--runs', type=int, default=1, help='of each in each condition')
    parser.add_argument('--conditions', nargs='+', choices=list(CONDITIONS),
                        default=list(CONDITIONS), metavar='CONDITION')
    parser.add_argument('--options', default='', metavar='WORDS',
                        help='further options for the demos, in one word')
    parser.add_argument('--keep', type=result_folder, metavar='FOLDER',
                        help='what failed runs leave behind is moved here')
    parser.add_argument('--json', type=result_file, metavar='FILE', help='write all runs here')
    args = parser.parse_args()
    if args.runs < 1:
        parser.error('--runs must be 1 or more')
    runs: list[Run] = []
    for number in range(args.runs):
        for demo in args.demos:
            for condition in args.conditions:
                runs.append(run_once(demo, condition, number, args.options.split(), args.keep))
                last = runs[-1]
                print(f'{demo} {condition} {number}: rc {last.status}, {last.seconds:.0f} s, '
                      f'load {os.getloadavg()[0]:.1f}', last.failed, sep='\n' if last.failed else
                      '', flush=True)
                if args.json:
                    write_atomically(args.json, json.dumps(
                        [asdict(run) for run in runs], indent=1))
    print(summary(runs))
    return int(any(run.status != 0 for run in runs))


if __name__ == '__main__':
    sys.exit(main())
