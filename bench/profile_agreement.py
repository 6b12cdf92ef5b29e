# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How well profiles agree that were measured one after another.

Each network is measured several times, with the kernels chosen once.  Any two
measurements are compared part by part (an operator at a height), of parts that
take at least a two-hundredth of the whole: the logarithms of what the two say,
less what all parts are off by in the median (the device was faster the second
time).  ``off`` is the root of their mean square, ``worst`` the largest.
Printed are medians of what each part took, and medians at the usual speed of
the device (`SpeedTrack`), from the same runs; ``spread`` is that of the whole
network's time within a measurement.
"""
from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from itertools import chain, combinations
import json
from pathlib import Path
from statistics import median

from heights import held_to, ISAS, NETWORKS, spec_of
from models import print_table
import numpy as np
import numpy.typing as npt
import torch

from intradp_ros.profiling.machine import device_name, prepare_process
from intradp_ros.profiling.measure import measure_parts
from intradp_ros.profiling.parts import OperatorParts
from intradp_ros.profiling.tune import choose_tuning
from intradp_ros.split.calls.tuning import tuned
from intradp_ros.split.local_operator import SplitGraph

BUDGET = 10.0  # seconds of a measurement, as those of the nodes
COUNTS = 1 / 200  # of the whole


def main() -> None:
    """Measure networks in processes of their own, show the figures, and write them."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('networks', nargs='*', metavar='NETWORK', default=['hed', 'mobilenet_v2'],
                        help=f'which of {", ".join(NETWORKS)} (default: hed mobilenet_v2)')
    parser.add_argument('--isa', nargs='+', choices=list(ISAS), default=['all', 'sse41'])
    parser.add_argument('--times', type=int, default=5, help='measurements (default %(default)s)')
    parser.add_argument('--json', type=Path, help='write the figures here too')
    parser.add_argument('--one', help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        prepare_process(threads=1)
        print(json.dumps(agreement(args.one, args.times)))
        return
    results = [{'isa': isa, 'network': name,
                **held_to(isa, __file__, '--one', name, '--times', str(args.times))}
               for name in args.networks for isa in args.isa]
    print_table('profiles, measured again', ('network', 'instructions'),
                ('spread', 'medians: off', 'worst', 'usual speed: off', 'worst '),
                [(f['network'], f['isa'], *(f'{f[key]:.1%}' for key in (
                    'spread', 'medians_off', 'medians_worst', 'off', 'worst'))) for f in results])
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + '\n')


def agreement(name: str, times: int) -> dict[str, object]:
    """Return the figures of one network."""
    spec = spec_of(name)
    split, inputs = spec.load().split, [spec.example()]
    with torch.inference_mode():
        split = tuned(split, choose_tuning(split, inputs))
    medians, usual, spread = [], [], []
    for _ in range(times):
        plain, typical, runs = _measured(split, inputs)
        medians.append(plain)
        usual.append(typical)
        spread.append(np.subtract(*np.quantile(runs, (0.75, 0.25))) / np.median(runs))
    (off, worst), (plain_off, plain_worst) = map(_disagreement, (usual, medians))
    return {'device': device_name(), 'spread': float(median(spread)), 'off': off, 'worst': worst,
            'medians_off': plain_off, 'medians_worst': plain_worst}


Seconds = dict[tuple[int, int], float]


def _measured(split: SplitGraph, inputs: list[torch.Tensor],
              ) -> tuple[Seconds, Seconds, list[float]]:
    """Return the seconds of parts, by operator and rows, in two ways, and of the whole."""
    with torch.inference_mode():
        measured, runs = measure_parts(split, inputs, BUDGET, lambda done, count: None)

    def of_all(seconds: Callable[[OperatorParts], Iterable[float]]) -> Seconds:
        return {(k, part.rows): took for k, of_one in enumerate(measured)
                for part, took in zip(of_one.parts, seconds(of_one))}
    return of_all(_medians), of_all(lambda of_one: of_one.typical(runs.track)), runs.whole


def _medians(measured: OperatorParts) -> list[float]:
    return [median(part.samples) for part in measured.parts]


def _disagreement(measured: list[Seconds]) -> tuple[float, float]:
    """Return how far any two measurements are apart: the root mean square, and at most."""
    whole = sum({operator: seconds for (operator, _), seconds in sorted(measured[0].items())
                 }.values())  # at the most rows of each
    apart: list[npt.NDArray[np.float64]] = []
    for one, two in combinations(measured, 2):
        both = [key for key in one.keys() & two.keys() if one[key] > COUNTS * whole]
        logs = np.log([two[key] / one[key] for key in both])
        apart.append(np.abs(logs - np.median(logs)))
    every = np.array([*chain.from_iterable(apart)])
    return float(np.sqrt((every**2).mean())), float(every.max())


if __name__ == '__main__':
    main()
