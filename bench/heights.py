# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Whether operators take at every height what their profile says.

Each network is profiled, and each of its operators then run on 1 to all of
its rows: once at each height, and where that took more than 1.5 times the
interpolated time again, until the median of five runs is below that or has
been above it three times; that is less what the first call since others ran
takes more, which profiles add.  What is above it then is run again once all
operators were, up to twice, and counts if it always was.  ``worst`` is the
largest ratio that is left, ``off`` how many operators have one above 1.5.
``halves`` is what a schedule with one border in the middle computes on both
sides, halos included, against the whole.  ``profiling`` is the time that the
profile took.  Networks run once for each of ``--isa``, in a process of its
own: oneDNN and ATen can be held to fewer instructions than the processor has.
"""
from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
import json
import os
from statistics import median
import subprocess
import sys
import time
from typing import Any

from models import print_table
import torch

from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.profiling.machine import device_name, prepare_process
from intradp_ros.profiling.measure import measure_profile
from intradp_ros.profiling.parts import Part, parts_of, time_part
from intradp_ros.profiling.profile import Profile
from intradp_ros.profiling.rounds import bind_whole, BoundOperator, given, Values
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.schedule.cost import CostModel
from intradp_ros.schedule.schedule import Compute, SIDES
from intradp_ros.split.calls.tuning import tuned
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.systems.sharing.partition.lowering import lower
from intradp_ros.systems.sharing.partition.partition import Partition, RowStage

_ZOO, _PUBLIC = 'intradp_lab.zoo.', 'pytorchcv.models.'
#: Networks of the package, and four public ones, with the sizes of their pictures.
NETWORKS: Mapping[str, tuple[str, tuple[int, ...]]] = {
    'hed': (_ZOO + 'hed:hed', (144, 336)),
    'mobilenet_v2': (_ZOO + 'mobilenet_v2:mobilenet_v2', (224, 224)),
    'segmenter': (_ZOO + 'dense:segmenter', (128, 256)),
    'depth': (_ZOO + 'dense:depth', (192, 256)),
    'detector_s': (_ZOO + 'yolo:detector_s', (160, 160)),
    'pose_l6': (_ZOO + 'yolo:pose_l6', (128, 128)),
    'convnext_base': (_ZOO + 'classifiers.convnext:convnext_base', (96, 96)),
    'densenet121': (_ZOO + 'classifiers.densenet:densenet121', (160, 160)),
    'mobilenet_v3_small': (_ZOO + 'classifiers.mobilenet_v3:mobilenet_v3_small', (224, 224)),
    'resnet101': (_ZOO + 'classifiers.resnet:resnet101', (128, 128)),
    'regnet_x_16gf': (_ZOO + 'classifiers.resnet:regnet_x_16gf', (96, 96)),
    'vgg19_bn': (_ZOO + 'classifiers.vgg:vgg19_bn', (96, 96)),
    'resnet50': (_PUBLIC + 'resnet:resnet50', (224, 224)),
    'mobilenetv3_large': (_PUBLIC + 'mobilenetv3:mobilenetv3_large_w1', (224, 224)),
    'shufflenetv2': (_PUBLIC + 'shufflenetv2:shufflenetv2_w1', (224, 224)),
    'efficientnet_b0': (_PUBLIC + 'efficientnet:efficientnet_b0', (160, 160)),
}
PIXELS = ('hed', 'mobilenet_v2', 'segmenter', 'depth', 'detector_s', 'pose_l6')
#: Environments that hold a process to some instructions, by name.
ISAS: Mapping[str, Mapping[str, str]] = {
    'all': {},
    'avx2': {'ONEDNN_MAX_CPU_ISA': 'AVX2', 'ATEN_CPU_CAPABILITY': 'avx2'},
    'sse41': {'ONEDNN_MAX_CPU_ISA': 'SSE41', 'ATEN_CPU_CAPABILITY': 'default'},
}
ALLOWED = 1.5
RUNS, REPEATS = 5, 3
#: A machine may be slow for seconds, which many heights in a row then show.
PASSES = 3


@dataclass(frozen=True)
class Off:
    """An operator at a height where it takes longer than its profile says."""

    operator: str
    rows: int
    of: int
    expected_us: float
    measured_us: float

    @property
    def ratio(self) -> float:
        """How many times as long it takes."""
        return self.measured_us / self.expected_us


def main() -> None:
    """Measure networks in processes of their own, show the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('networks', nargs='*', metavar='NETWORK', default=list(NETWORKS),
                        help=f'which of {", ".join(NETWORKS)} (default: all)')
    parser.add_argument('--isa', nargs='+', choices=list(ISAS), default=['all', 'avx2'])
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    parser.add_argument('--one', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        prepare_process(threads=1)
        print(json.dumps(measure(args.one)))
        return
    results = {isa: {name: _lasting(name, isa) for name in args.networks} for isa in args.isa}
    for isa, found in results.items():
        show(isa, found)
    if args.json:
        write_atomically(args.json, json.dumps(results, indent=2) + '\n')


def _lasting(name: str, isa: str) -> dict[str, object]:
    found = held_to(isa, __file__, '--one', name)
    print(f'{isa} {name}: {found["off"]} operators off', file=sys.stderr, flush=True)
    return found


def held_to(isa: str, *command: str) -> dict[str, Any]:
    """Run a script in a process that is held to some instructions; return what it prints last."""
    done = subprocess.run([sys.executable, *command], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, **ISAS[isa]})
    found: dict[str, Any] = json.loads(done.stdout.strip().rpartition('\n')[2])
    return found


def spec_of(name: str) -> ModelSpec:
    """Return one of the networks; its weights are the same each time, if it is loaded next."""
    source, size = NETWORKS[name]
    torch.manual_seed(0)
    return ModelSpec(source, (1, 3, *size), torch.uint8 if name in PIXELS else torch.float32)


def measure(name: str) -> dict[str, object]:
    """Return the figures of one network."""
    spec = spec_of(name)
    shared = spec.load()
    inputs = [spec.example()]
    start = time.perf_counter()
    profile = measure_profile(shared.split, inputs)
    seconds = time.perf_counter() - start
    lean = tuned(shared.split, profile.tuning)
    with torch.inference_mode():
        off = lasting(lean, profile, inputs)
    return {'device': device_name(), 'profiling_s': seconds, 'operators': len(lean.operators),
            'whole_ms': 1e3 * profile.whole_seconds, 'least_ms': 1e3 * profile.least_seconds,
            'heights': sum(len(t.rows) for t in profile.timings) / len(profile.timings),
            'variants': sorted(set(profile.tuning.variants.values())),
            'halves': halves(lean, profile), 'off': len({o.operator for o in off}),
            'worst': max((o.ratio for o in off), default=0.0), 'where': [asdict(o) for o in off]}


def lasting(split: SplitGraph, profile: Profile, inputs: list[torch.Tensor]) -> list[Off]:
    """Return where operators take more than they may, in each of some passes over all heights."""
    found = everywhere(split, profile, inputs)
    for _ in range(PASSES - 1):
        if found:
            only = {(off.operator, off.rows) for off in found}
            found = everywhere(split, profile, inputs, only)
    return found


def everywhere(split: SplitGraph, profile: Profile, inputs: list[torch.Tensor],
               only: Collection[tuple[str, int]] | None = None) -> list[Off]:
    """Return where operators take more than they may, of all heights or of some."""
    values, found = given(split, inputs), []
    for op, timing in zip(bind_whole(split), profile.timings):
        table = timing.table(op.local.rows)
        for rows in range(1, op.local.rows + 1):
            if only is not None and (op.local.operator.name, rows) not in only:
                continue
            [part] = parts_of(split, op.local, op.overwrites, [rows])
            time_part(split, op, part, values)  # makes the kernel
            expected = table[rows] - timing.once
            measured = _settled(split, op, part, values, ALLOWED * expected)
            if measured > ALLOWED * expected:
                found.append(Off(op.local.operator.name, rows, op.local.rows,
                                 1e6 * expected, 1e6 * measured))
        op.finish(op.kernel(op.inputs(values)), values)
    return found


def _settled(split: SplitGraph, op: BoundOperator, part: Part, values: Values, allowed: float,
             ) -> float:
    """Return the seconds of a part: of one run if that is fast enough, else of several."""
    best = float('inf')
    for runs in (1, *[RUNS] * REPEATS):
        part.forget()
        for _ in range(runs):
            time_part(split, op, part, values)
        best = min(best, median(part.samples))
        if best <= allowed:
            break
    return best


def halves(split: SplitGraph, profile: Profile) -> float:
    """Return what both sides compute with one border in the middle, against the whole."""
    cost = CostModel.from_profiles(split, dict.fromkeys(SIDES, profile))
    schedule = lower(split, Partition((RowStage(len(split.operators), 0.5),)))
    both = sum(float(cost.seconds[side][step.operator][step.region.rows])
               for side in SIDES for step in schedule.programs[side] if isinstance(step, Compute))
    return both / sum(float(table[-1]) for table in cost.seconds[SIDES[0]])


def show(isa: str, results: Mapping[str, Mapping[str, Any]]) -> None:
    """Print the figures of one set of instructions as a table."""
    rows = [[name, ', '.join(f['variants']) or 'plain', str(f['operators']),
             f'{f["heights"]:.1f}', str(f['off']), f'{f["worst"]:.2f}' if f['off'] else '-',
             f'{f["halves"]:.2f}', f'{f["whole_ms"]:.1f}', f'{f["least_ms"]:.1f}',
             f'{f["profiling_s"]:.0f}'] for name, f in results.items()]
    print_table(f'heights, instructions: {isa}', ['network', 'kernels'],
                ['operators', 'heights', 'off', 'worst', 'halves', 'ms', 'least ms',
                 'profiling s'], rows)


if __name__ == '__main__':
    main()
