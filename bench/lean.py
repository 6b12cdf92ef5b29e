# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the chosen kernels gain on this device, for the whole graph and for few rows.

The plain kernels and those that profiling chooses run in turns (A B A B) at
one thread.  Each operator counts with the shortest time it took, so that
what else the machine does is left out; ``few rows`` is the sum over all
operators of a sixteenth of their rows, as bands of a shared inference have.
``ratio`` below 1 is a gain.  ``two parts`` is what all operators take in two
halves of their rows, one after the other, against the whole: halos and fixed
costs; an operator that cannot be divided counts once.  With ``ONEDNN_MAX_CPU_ISA=SSE41`` and
``ATEN_CPU_CAPABILITY=default`` the device is the demo's slow robot.
"""
from __future__ import annotations

from collections import Counter
from typing import Any

from models import command_line, print_table
import torch

from intradp_ros.profiling.machine import device_name, prepare_process
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.parts import Part, time_part
from intradp_ros.profiling.rounds import bind, bind_whole, given, run_timed
from intradp_ros.profiling.tune import choose_tuning
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.runtime.models.model import share_module
from intradp_ros.split.calls.tuning import tuned
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.split.regions.region import Region


def whole_ms(splits: dict[str, SplitGraph], source: torch.Tensor, rounds: int) -> dict[str, float]:
    """Return the milliseconds of whole graphs that take turns."""
    bound = {name: bind_whole(split) for name, split in splits.items()}
    seconds = {name: [float('inf')] * len(ops) for name, ops in bound.items()}
    for _ in range(rounds):
        for name, split in splits.items():
            _, once = run_timed(split, bound[name], [source])
            seconds[name] = list(map(min, seconds[name], once))
    return {name: 1e3 * sum(times) for name, times in seconds.items()}


def measure(spec: ModelSpec, rounds: int) -> dict[str, Any]:
    """Return the figures of one model."""
    torch.manual_seed(0)
    source = spec.example()
    model = share_module(spec.module(), (source,))
    with torch.inference_mode():
        tuning = choose_tuning(model.split, [source])
        lean = tuned(model.split, tuning)
        times = whole_ms({'plain': model.split, 'chosen': lean}, source, rounds)
        halves = two_parts(lean, source, rounds)
    profile = measure_profile(model.split, [source])
    return {'plain_ms': times['plain'], 'chosen_ms': times['chosen'],
            'ratio': times['chosen'] / times['plain'], 'channels_last': tuning.channels_last,
            'variants': dict(Counter(tuning.variants.values())), 'scale': profile.scale,
            'two_parts': halves,
            'few_rows_ms': 1e3 * sum(t.seconds[0] for t in profile.timings)}


def two_parts(split: SplitGraph, source: torch.Tensor, rounds: int) -> float:
    """Return what operators take in two halves of their rows, against the whole."""
    bound = bind_whole(split)
    parts = [[Part(region, bind(split, op.local, region, op.overwrites))
              for region in whole_and_halves(op.local.rows)] for op in bound]
    for _ in range(rounds):
        values = given(split, [source])
        for op, of_one in zip(bound, parts):
            for part in of_one:
                time_part(split, op, part, values)
            op.finish(op.kernel(op.inputs(values)), values)
    whole = sum(of_one[0].least for of_one in parts)
    return sum(part.least for of_one in parts for part in of_one[1:] or of_one) / whole


def whole_and_halves(rows: int) -> list[Region]:
    """Return all rows, and those in two halves, if there is more than one."""
    middle = rows // 2
    halves = [Region(0, middle), Region(middle, rows)] if middle else []
    return [Region(0, rows), *halves]


def show(results: dict[str, dict[str, Any]]) -> None:
    """Print the figures as a table."""
    rows = []
    for name, f in results.items():
        kernels = ', '.join(f'{n} {variant}' for variant, n in f['variants'].items())
        rows.append([name, kernels or 'plain', f'{f["plain_ms"]:.1f}', f'{f["chosen_ms"]:.1f}',
                     f'{f["ratio"]:.2f}', f'{f["two_parts"]:.2f}', f'{f["few_rows_ms"]:.1f}',
                     f'{f["scale"]:.2f}'])
    print_table(f'kernel variants, {device_name()}', ['model', 'kernels'],
                ['plain ms', 'chosen ms', 'ratio', 'two parts', '1/16 rows ms', 'scale'], rows)


if __name__ == '__main__':
    prepare_process(threads=1)
    command_line(__doc__ or '', measure, show, repeats=10)
