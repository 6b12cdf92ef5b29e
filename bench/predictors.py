# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Back-test the rate predictors on recorded rates.

Each trace is a CSV file with the header `t_seconds,Mbps`.  Before every
sample each predictor says what it expects and is then given the sample.  The
figures: median of the relative error, the share of samples that came more
than a tenth below their prediction (`late`: so would a schedule be), and the
part of the rate, summed over the samples, that the other predictions used.
"""
from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median

from intradp_lab.emulation.trace import LinkTrace, read_trace
from intradp_ros.cli.output_paths import result_file
from intradp_ros.core.atomic_write import write_atomically
from intradp_ros.link.predictor import make_predictor, PREDICTORS, RatePredictor


def back_test(predictor: RatePredictor, trace: LinkTrace) -> dict[str, float]:
    """Return the figures of one predictor on one trace."""
    pairs = []
    for now, rate in trace:
        predicted = predictor.predict(now)
        predictor.update(rate, now)
        if predicted > 0 and rate > 0:
            pairs.append((predicted, rate))
    used = sum(min(p, r) for p, r in pairs if p <= 1.1 * r)
    return {
        'median_error': median(abs(p - r) / r for p, r in pairs),
        'late': sum(p > 1.1 * r for p, r in pairs) / len(pairs),
        'used': used / sum(rate for _, rate in pairs),
    }


def main() -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument('traces', type=Path, nargs='+', help='CSV files (t_seconds,Mbps)')
    parser.add_argument('--json', type=result_file, help='write the figures here too')
    args = parser.parse_args()
    results = {path.stem: {name: back_test(make_predictor(name), read_trace(path))
                           for name in PREDICTORS} for path in args.traces}
    print(f'{"trace":16}{"predictor":12}{"median error":>14}{"late":>8}{"used":>8}')
    for trace, figures in results.items():
        for name, f in figures.items():
            print(f'{trace:16}{name:12}{f["median_error"]:14.1%}{f["late"]:8.1%}{f["used"]:8.1%}')
    if args.json:
        write_atomically(args.json, json.dumps(results, indent=2) + '\n')


if __name__ == '__main__':
    main()
