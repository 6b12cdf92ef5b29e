# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Links whose rate collapses, generated from seeds, as no recording may be at hand.

The logarithm of the rate is an autoregressive process of first order, as is
that of a recorded link outdoors (its correlation is 0.96 after 0.1 s, 0.7
after 1 s, 0.1 after 5 s), or the link is there and not there in turn.
"""
from __future__ import annotations

import numpy as np

from intradp_lab.emulation.trace import LinkTrace

STEP, SECONDS = 0.1, 300.0
MEDIAN = 30.0  # Mbit/s
LEAST, MOST = 0.05, 400.0
CORRELATED = 2.5  # seconds after which the correlation is 1/e
DEVIATIONS = (0.5, 1.0, 1.3, 1.7)
#: Mean seconds with a link and without.
SWITCHED = ((4.0, 1.0), (1.0, 0.3))


def log_normal(deviation: float, seed: int) -> LinkTrace:
    """Return a link whose log rate has a standard deviation."""
    random = np.random.default_rng(seed)
    kept = np.exp(-STEP / CORRELATED)
    noise = random.standard_normal(round(SECONDS / STEP))
    logs = np.empty_like(noise)
    now = noise[0]
    for k, fresh in enumerate(noise):
        now = kept * now + np.sqrt(1 - kept**2) * fresh
        logs[k] = now
    return _trace(MEDIAN * np.exp(deviation * logs))


def on_and_off(there: float, gone: float, seed: int) -> LinkTrace:
    """Return a link that is there and gone for random times of these means (seconds)."""
    random = np.random.default_rng(seed)
    leaves, returns = STEP / there, STEP / gone
    rates, up = [], True
    for chance in random.random(round(SECONDS / STEP)):
        up = chance >= leaves if up else chance < returns
        rates.append(MEDIAN if up else LEAST)
    return _trace(np.array(rates) * np.exp(0.1 * random.standard_normal(len(rates))))


def links() -> dict[str, LinkTrace]:
    """Return all links by name."""
    return {f'log deviation {d:g}': log_normal(d, seed) for seed, d in enumerate(DEVIATIONS)} | {
        f'{there:g} s on, {gone:g} s off': on_and_off(there, gone, 10 + seed)
        for seed, (there, gone) in enumerate(SWITCHED)}


def _trace(mbps: np.ndarray[tuple[int], np.dtype[np.float64]]) -> LinkTrace:
    rates = np.clip(mbps, LEAST, MOST)
    return LinkTrace(tuple(k * STEP for k in range(len(rates))), tuple(map(float, rates)))
