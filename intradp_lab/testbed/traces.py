# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The recorded links that come with the package, and a short stretch that stands for all."""
from __future__ import annotations

from collections.abc import Sequence
import csv
import math
from pathlib import Path

import numpy as np

from intradp_lab.emulation.trace import COLUMNS, LinkTrace, read_trace
from intradp_lab.testbed.package_data import package_data
from intradp_ros.core.atomic_write import replacing

#: Names of links as in the paper, and the recordings; see the README next to these.
TRACES = {'indoors': 'indoors_b', 'outdoors': 'outdoors_a'}
_EVERY = 5  # tenths of a second between the stretches that are compared


def shipped_trace(name: str) -> LinkTrace:
    """Return a recorded link by its name in `TRACES`."""
    return read_trace(package_data('links', f'{TRACES[name]}.csv'))


def typical_stretch(trace: LinkTrace, seconds: float) -> LinkTrace:
    """
    Return the stretch of a trace whose rates are spread most like those of all of it.

    That is the one of least Wasserstein distance; so a short run meets slow
    and fast links as often as a long one would, in recorded order.
    """
    fine = trace.resampled()
    if seconds >= trace.duration:
        return fine
    width = max(1, round(seconds / 0.1))
    parts = np.lib.stride_tricks.sliding_window_view(fine.mbps, width)[::_EVERY]
    # Of two samples sorted alike the distance is the mean difference, place by place.
    like = np.quantile(fine.mbps, (np.arange(width) + 0.5) / width)
    best = _EVERY * int(np.abs(np.sort(parts, axis=1) - like).mean(axis=1).argmin())
    return LinkTrace(fine.times[:width], fine.mbps[best:best + width])


def write_trace(trace: LinkTrace, path: Path) -> None:
    """Write a trace as `read_trace` reads it."""
    with replacing(path) as part, part.open('w', newline='') as file:
        rows = csv.writer(file, lineterminator='\n')
        rows.writerow(COLUMNS)
        rows.writerows((f'{t:.3f}', f'{mbps:g}') for t, mbps in trace)


def mean_over(trace: LinkTrace, points: Sequence[tuple[float, float]]) -> float:
    """
    Return the mean latency on a trace, if it depends on the rate alone.

    `points` are pairs of Mbit/s and latency, ascending; between them both
    logarithms change evenly.  The mean is one of inferences, of which a fast
    link sees more in the same time.
    """
    rates, latencies = (np.log([pair[k] for pair in points]) for k in (0, 1))
    wanted = np.log([max(mbps, 1e-9) for mbps in trace.resampled().mbps])
    return 1 / float(np.mean(np.exp(-np.interp(wanted, rates, latencies))))


def spread(trace: LinkTrace) -> tuple[float, float]:
    """Return mean and standard deviation of the rates over time, in Mbit/s."""
    rates = np.asarray(trace.resampled().mbps)
    return float(rates.mean()), math.sqrt(float(rates.var()))
