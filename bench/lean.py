# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the chosen kernels gain on this device, for the whole graph and for few rows.

The plain kernels and those that profiling chooses run in turns (A B A B) at
one thread.  Each operator counts with the shortest time it took, so that
what else the machine does is left out; ``few rows`` is the sum over all
operators of a sixteenth of their rows, as bands of a shared inference have.
``ratio`` below 1 is a gain.  With ``ONEDNN_MAX_CPU_ISA=SSE41`` and
``ATEN_CPU_CAPABILITY=default`` the device is the demo's slow robot.
"""
from __future__ import annotations

import argparse
from collections import Counter
import importlib.util
import json
from pathlib import Path
from typing import Any

from overhead import MODELS
from rich.console import Console
from rich.table import Table
import torch

from intradp_ros.execution.catalogue import ModelSpec
from intradp_ros.execution.model import share_module
from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.operators.tuning import tuned
from intradp_ros.profiling.device import device_name, prepare_process
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.rounds import bind_whole, run_timed
from intradp_ros.profiling.tune import choose_tuning


def whole_ms(splits: dict[str, SplitGraph], source: torch.Tensor, rounds: int) -> dict[str, float]:
    """Return the milliseconds of whole graphs that take turns."""
    bound = {name: bind_whole(split) for name, split in splits.items()}
    seconds = {name: [float('inf')] * len(ops) for name, ops in bound.items()}
    for _ in range(rounds):
        for name, split in splits.items():
            run_timed(split, bound[name], [source], seconds[name])
    return {name: 1e3 * sum(times) for name, times in seconds.items()}


def measure(spec: ModelSpec, rounds: int) -> dict[str, Any]:
    """Return the figures of one model."""
    torch.manual_seed(0)
    source = spec.example()
    model = share_module(spec.module(), (source,))
    with torch.inference_mode():
        tuning = choose_tuning(model.split, [source])
        times = whole_ms({'plain': model.split, 'chosen': tuned(model.split, tuning)}, source,
                         rounds)
    profile = measure_profile(model.split, [source])
    return {'plain_ms': times['plain'], 'chosen_ms': times['chosen'],
            'ratio': times['chosen'] / times['plain'], 'channels_last': tuning.channels_last,
            'variants': dict(Counter(tuning.variants.values())), 'scale': profile.scale,
            'few_rows_ms': 1e3 * sum(t.seconds[0] for t in profile.timings)}


def show(results: dict[str, dict[str, Any]]) -> None:
    """Print the figures as a table."""
    table = Table('model', 'kernels', title=f'kernel variants, {device_name()}')
    for heading in ('plain ms', 'chosen ms', 'ratio', '1/16 rows ms', 'scale'):
        table.add_column(heading, justify='right')
    for name, f in results.items():
        kernels = ', '.join(f'{n} {variant}' for variant, n in f['variants'].items())
        table.add_row(name, kernels or 'plain', f'{f["plain_ms"]:.1f}', f'{f["chosen_ms"]:.1f}',
                      f'{f["ratio"]:.2f}', f'{f["few_rows_ms"]:.1f}', f'{f["scale"]:.2f}')
    Console(width=110).print(table)


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('models', nargs='*', metavar='MODEL', default=list(MODELS),
                        help=f'which of {", ".join(MODELS)} (default: all that are installed)')
    parser.add_argument('--rounds', type=int, default=10, help='runs of each (default 10)')
    parser.add_argument('--json', type=Path, help='write the figures here too')
    args = parser.parse_args()
    prepare_process(threads=1)
    results = {}
    for name in args.models:
        if name not in MODELS:
            parser.error(f'no model {name!r}; there are {", ".join(MODELS)}')
        if importlib.util.find_spec(MODELS[name].source.partition('.')[0]) is None:
            print(f'{name} is left out: its package is not installed')
            continue
        results[name] = measure(MODELS[name], args.rounds)
    show(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
    main()
