# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What the link's rate will be, from what it was.

A schedule chosen for more than the link gives comes late; one chosen for
less merely gains less.  The predictors differ in how they weigh the two.
`bench/predictors.py` tests them on recorded rates, `bench/replay.py` says what
their errors cost.
"""
from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Mapping
import math
from typing import Protocol

import numpy as np


class RatePredictor(Protocol):
    """Predicts a rate in bytes per second; times are seconds of a steady clock."""

    def update(self, rate: float, now: float) -> None:
        """Take a measured rate; one that is not positive and finite is not a measurement."""

    def predict(self, now: float) -> float:
        """Return the rate to plan with; 0.0 before the first measurement."""

    def spread(self) -> float:
        """Return the standard deviation of the rate's logarithm lately; 0.0 if it is not known."""


class _Remembering(ABC):
    """
    Keeps the measurements of the last `memory` seconds before the newest.

    A prediction without a measurement for `stale_after` seconds moves, with
    that half-life, to the lowest rate remembered: no further, for a link
    that is believed dead is never measured again.
    """

    def __init__(self, memory: float = 10.0, stale_after: float = 2.0) -> None:
        if not (memory > 0 and stale_after > 0):
            raise ValueError(f'memory and stale_after must be positive seconds, '
                             f'got {memory} and {stale_after}')
        self._memory = memory
        self._stale_after = stale_after
        self._samples: deque[tuple[float, float]] = deque()

    def update(self, rate: float, now: float) -> None:
        """Take a measured rate; one that is not positive and finite is not a measurement."""
        if math.isfinite(rate) and rate > 0.0:
            self._take(rate, now)

    def _take(self, rate: float, now: float) -> None:
        self._samples.append((now, rate))
        while self._samples[0][0] < now - self._memory:
            self._samples.popleft()

    def predict(self, now: float) -> float:
        """Return the rate to plan with; 0.0 before the first measurement."""
        if not self._samples:
            return 0.0
        overdue = now - self._samples[-1][0] - self._stale_after
        fresh = self._fresh()
        if overdue <= 0.0:
            return fresh
        lowest = min(rate for _, rate in self._samples)
        return lowest + (fresh - lowest) * math.pow(0.5, overdue / self._stale_after)

    def spread(self) -> float:
        """Return the standard deviation of the rate's logarithm lately; 0.0 if it is not known."""
        return float(np.std([math.log(rate) for _, rate in self._samples] or [0.0]))

    @abstractmethod
    def _fresh(self) -> float:
        """Return the prediction right after a measurement."""


class LastValue(_Remembering):
    """The last measurement."""

    def _fresh(self) -> float:
        return self._samples[-1][1]


class Ewma(_Remembering):
    """Mean with weights that halve every `half_life` seconds."""

    def __init__(
        self, half_life: float = 0.05, *, memory: float = 10.0, stale_after: float = 2.0,
    ) -> None:
        if not half_life > 0:
            raise ValueError(f'half_life must be positive seconds, got {half_life}')
        super().__init__(memory, stale_after)
        self._half_life = half_life
        self._mean = 0.0

    def _take(self, rate: float, now: float) -> None:
        elapsed = now - self._samples[-1][0] if self._samples else math.inf
        kept = math.pow(0.5, max(0.0, elapsed) / self._half_life)
        # Measurements at the same time must count too: at most nine tenths are kept.
        self._mean = rate + (self._mean - rate) * min(kept, 0.9)
        super()._take(rate, now)

    def _fresh(self) -> float:
        return self._mean


class CautiousQuantile(_Remembering):
    """
    The rate that all but the lowest `quantile` of the last measurements reached.

    Those are the measurements of the last `span` seconds, and at least three.
    """

    def __init__(
        self, quantile: float = 0.25, span: float = 0.3, *, memory: float = 10.0,
        stale_after: float = 2.0,
    ) -> None:
        if not 0.0 <= quantile <= 1.0 or not span > 0:
            raise ValueError(f'quantile must be in 0..1 and span positive seconds, '
                             f'got {quantile} and {span}')
        super().__init__(max(memory, span), stale_after)
        self._quantile = quantile
        self._span = span

    def _fresh(self) -> float:
        newest = self._samples[-1][0]
        recent = [rate for t, rate in self._samples if t >= newest - self._span]
        rates = sorted(recent if len(recent) >= 3 else [r for _, r in list(self._samples)[-3:]])
        return rates[int(self._quantile * (len(rates) - 1))]


PREDICTORS: Mapping[str, Callable[..., RatePredictor]] = {
    'last': LastValue,
    'ewma': Ewma,
    'cautious': CautiousQuantile,
}


def make_predictor(name: str, **options: float) -> RatePredictor:
    """
    Return the predictor of that name in `PREDICTORS`.

    :raises ValueError: if there is none of that name, or an option is out of its range.
    """
    if name not in PREDICTORS:
        raise ValueError(f'no predictor {name!r}; there are ' + ', '.join(PREDICTORS))
    return PREDICTORS[name](**options)
