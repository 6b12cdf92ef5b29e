# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Add models as people have them, and compare each with its original on pictures.

Every example is archived by ``intradp model add``, compared with what the
original library says of four real pictures, and divided at random rows.
``PYTHONPATH=tools python -m model_examples``; exit status 1 if one fails.
"""
from __future__ import annotations

import argparse
import json
import os
from pathlib import Path
import sys
import tempfile

import torch

from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from model_examples.check import check, chosen, Record
from model_examples.example import Example
from model_examples.examples import EXAMPLES
from model_examples.refusals import REFUSALS, refused


def _checked(example: Example, folder: Path) -> Record:
    try:
        return check(example, folder)
    except Exception as error:  # whatever one of the libraries raises: the others are tried too
        return {'name': example.name, 'added': False, 'says': f'{type(error).__name__}: {error}'}


def _row(record: Record) -> str:
    if not record['added']:
        return f'| {record["name"]} | not added: {record["says"]} |'
    weights = 'trained' if record['trained'] else 'random'
    return (f'| {record["name"]} | {weights} | {record["head"]} | {record["operators"]} | '
            f'{record["megabytes"]:.1f} | {record["local_share"]:.0%} | {record["apart"]:.0e} | '
            f'{"yes" if record["split_exact"] else "NO"} | {record["moves"]:.0e} |')


def main() -> int:
    """Run the examples and the refusals."""
    parser = argparse.ArgumentParser(description=(__doc__ or '').strip().splitlines()[0])
    parser.add_argument('--only', nargs='*', default=[], help='parts of names')
    parser.add_argument('--json', type=result_file, help='write the records here too')
    args = parser.parse_args()
    torch.set_num_threads(1)
    os.environ.setdefault('YOLO_CONFIG_DIR', tempfile.gettempdir())
    print('| model | weights | head | operators | MB | local | apart | split exact | moves |\n'
          '|---|---|---|--:|--:|--:|--:|---|--:|', flush=True)
    records = []
    for example in chosen(EXAMPLES, args.only):
        with tempfile.TemporaryDirectory() as folder:
            records.append(_checked(example, Path(folder)))
        print(_row(records[-1]), flush=True)
    good = all(r['added'] and r['exact'] and r['split_exact'] for r in records)
    for refusal in REFUSALS if not args.only else ():
        with tempfile.TemporaryDirectory() as folder:
            reported = refused(refusal, Path(folder))
        good = good and refusal.says in reported
        print(f'refused: {refusal.name}: {reported}', flush=True)
    if args.json:
        write_atomically(args.json, json.dumps(records, indent=2) + '\n')
    return 0 if good else 1


if __name__ == '__main__':
    sys.exit(main())
