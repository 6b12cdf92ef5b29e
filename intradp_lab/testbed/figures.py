# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the inferences of a system add up to."""
from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median, pstdev
from typing import Any

import numpy as np

from intradp_lab.testbed.trial import Seen


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that the share of values does not exceed."""
    return float(np.quantile(values, share, method='inverted_cdf'))


def prediction_errors(seen: Seen) -> list[float]:
    """Return by how much predictions missed, relative to the latency, recovered ones left out."""
    rows = zip(seen.predicted, seen.latency, seen.recovered)
    return [abs(predicted - latency) / latency for predicted, latency, recovered in rows
            if predicted > 0 and not recovered]


def figures(seen: Seen) -> dict[str, Any]:
    """
    Return a system's figures: ms, bytes, joules and watts of one inference, shares from 0 to 1.

    Transmission is over the inferences whose events of both sides are known;
    its figures are None where there are none.
    """
    ms = [1e3 * latency for latency in seen.latency]
    errors = prediction_errors(seen)
    watts = [energy / latency for energy, latency in zip(seen.energy, seen.latency)]
    return {
        'frames': len(ms), 'mean_ms': fmean(ms), 'std_ms': pstdev(ms), 'median_ms': median(ms),
        'p95_ms': quantile(ms, 0.95), 'predicted_ms': 1e3 * median(seen.predicted),
        'error_median': median(errors) if errors else None,
        'error_p95': quantile(errors, 0.95) if errors else None,
        'waiting_share': sum(seen.waiting) / sum(seen.latency),
        'shared': sum(seen.shared), 'recovered': sum(seen.recovered),
        'switches': sum(a != b for a, b in zip(seen.schedule, seen.schedule[1:])),
        'bytes_up': round(fmean(seen.bytes_up)), 'bytes_down': round(fmean(seen.bytes_down)),
        'energy_j': fmean(seen.energy), 'energy_std_j': pstdev(seen.energy),
        'power_w': fmean(watts), 'power_std_w': pstdev(watts), 'energy_source': 'modelled',
        **transmission_figures(seen)}


def transmission_figures(seen: Seen) -> dict[str, float | None]:
    """Return for how long rows were on their way (ms), and for which share of the latency."""
    known = [(sent, latency) for sent, latency in zip(seen.transmission, seen.latency)
             if sent is not None]
    if not known:
        return dict.fromkeys(('transmission_ms', 'transmission_std_ms', 'transmission_share'))
    ms = [1e3 * sent for sent, _ in known]
    return {'transmission_ms': fmean(ms), 'transmission_std_ms': pstdev(ms),
            'transmission_share': sum(sent for sent, _ in known) / sum(s for _, s in known)}
