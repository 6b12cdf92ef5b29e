# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Run the list of architectures: ``PYTHONPATH=tools python -m survey --help``."""
from __future__ import annotations

import argparse
from collections.abc import Sequence
from fnmatch import fnmatch
import json
from pathlib import Path
import sys

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from intradp_ros.cli.output_paths import result_folder
from intradp_ros.core.atomic_write import write_atomically
from survey.architectures import Architecture, LIST, read_list
from survey.measure import Record
from survey.table import markdown, summary
from survey.workers import Limits, run_all


def main(argv: Sequence[str]) -> int:
    """Run the command; 1 if a captured architecture is not exact."""
    args = _arguments().parse_args(argv)
    chosen = [a for a in read_list(args.list) if _wanted(a, args.only)]
    limits = Limits(args.timeout, int(args.memory * 2**30), args.jobs)
    records = _with_progress(chosen, args.out, limits, args.resume)
    write_atomically(args.out / 'zoo.json', json.dumps(
        {'summary': summary(records), 'architectures': records}, indent=1))
    write_atomically(args.out / 'zoo.md', markdown(records))
    Console().print_json(json.dumps(summary(records)))
    return 0 if all(r.get('exact', True) or r.get('undecided') for r in records) else 1


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser('python -m survey', description=__doc__)
    parser.add_argument('--list', type=Path, default=LIST, help='another list of architectures')
    parser.add_argument('--out', type=result_folder, default='out/zoo',
                        help='folder of the results')
    parser.add_argument('--only', nargs='+', default=['*'], metavar='NAME',
                        help='names or sources, with * and ? as wild cards')
    parser.add_argument('--jobs', type=int, default=1, help='processes at a time (default 1)')
    parser.add_argument('--resume', action='store_true', help='keep the results that are there')
    parser.add_argument('--timeout', type=float, default=600, metavar='SECONDS',
                        help='longest time for an architecture (default 600)')
    parser.add_argument('--memory', type=float, default=12, metavar='GIB',
                        help='most memory for an architecture (default 12; 0: no limit)')
    return parser


def _wanted(architecture: Architecture, patterns: Sequence[str]) -> bool:
    return any(fnmatch(text, pattern) for pattern in patterns
               for text in (architecture.name, architecture.source))


def _with_progress(chosen: Sequence[Architecture], out: Path, limits: Limits, resume: bool,
                   ) -> list[Record]:
    order = {architecture.name: k for k, architecture in enumerate(chosen)}
    columns = (TextColumn('{task.description:28}'), BarColumn(), MofNCompleteColumn(),
               TimeElapsedColumn())
    records = []
    with Progress(*columns, console=Console(stderr=True)) as progress:
        task = progress.add_task('', total=len(chosen))
        for record in run_all(chosen, out / 'each', limits, resume):
            records.append(record)
            progress.update(task, advance=1, description=record['name'])
            progress.print(f'{record["name"]:28} {record["status"]} {record.get("reason", "")}',
                           highlight=False, markup=False)
    return sorted(records, key=lambda record: order[record['name']])


if __name__ == '__main__':
    raise SystemExit(main(sys.argv[1:]))
