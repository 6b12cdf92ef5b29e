# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How likely which rates of the link are from now on, from what followed on similar ones.

A single number says nothing of what a link may do.  Its own past does: the
rates that followed whenever it was about as fast as now are what it may do
next.  No process is assumed.
"""
from __future__ import annotations

from collections import deque
from dataclasses import dataclass
import math

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: Seconds for which rates are remembered.
_MEMORY = 60.0
#: How many past moments are remembered, and how many of the nearest are looked at.
_MOMENTS, _NEAREST = 600, 32
#: A moment counts fully if its rate is that of now, hardly at the edge of those that are asked,
#: which is at least this far away (in the logarithm).
_EDGE, _LEAST = 0.1, 0.05
#: What is assumed of an unknown link counts as this many moments: a spread of 0.2
#: of the logarithm around the expected rate (Gauss-Hermite, three points).
_THOUGHT = 4.0
_STEPS = np.exp(0.2 * math.sqrt(3) * np.array([-1.0, 0.0, 1.0]))
_LIKELY = np.array([1.0, 4.0, 1.0]) / 6
#: By how much a rate moves before plans are looked at again.
MOVED = 0.05


@dataclass(frozen=True, slots=True)
class Outlook:
    """Mean rates that may come (as measured: bytes per second, say), with weights of sum 1."""

    rates: Floats
    weights: Floats

    def quantile(self, part: float) -> float:
        """Return the lowest rate that at least this part of the weight does not exceed."""
        return weighted_quantile(self.rates, self.weights, part)


def weighted_quantile(values: Floats, weights: Floats, part: float) -> float:
    """Return the lowest value that at least this part of the weight (sum 1) does not exceed."""
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(weights[order]), part - 1e-9)
    return float(values[order[min(int(reached), len(order) - 1)]])


class LinkPast:
    """
    The rates of the last `_MEMORY` seconds before the newest; times are of a steady clock.

    A measurement is of the time since the one before.  At most `_MOMENTS`
    are kept, evenly: what comes faster is added up, and nothing is lost but
    moments to compare with.
    """

    def __init__(self) -> None:
        self._kept = np.zeros((3, 2 * _MOMENTS))  # times, logarithms, and what was carried until
        self._begin = self._end = 0

    def update(self, rate: float, now: float) -> None:
        """Take a measured rate; one that is not positive and finite is not a measurement."""
        if not (0.0 < rate < math.inf and math.isfinite(now)):
            return
        times, logs, carried = self._kept
        last = self._end - 1
        if last < self._begin:
            self._append(now, math.log(rate), 0.0)
            return
        now = max(now, times[last])
        until = carried[last] + rate * (now - times[last])
        close = last > self._begin and times[last] - times[last - 1] < _MEMORY / _MOMENTS
        if close or now == times[last]:
            times[last], logs[last], carried[last] = now, math.log(rate), until
        else:
            self._append(now, math.log(rate), until)
        self._begin += int(np.searchsorted(times[self._begin:self._end], now - _MEMORY))

    def _append(self, now: float, log: float, carried: float) -> None:
        if self._end == self._kept.shape[1]:
            kept = self._kept[:, max(self._begin, self._end - _MOMENTS):self._end].copy()
            before = kept[2, 0]
            kept[2] -= before
            carried -= before
            self._begin, self._end = 0, kept.shape[1]
            self._kept[:, :self._end] = kept
        self._kept[:, self._end] = now, log, carried
        self._end += 1

    def outlook(self, now: float, seconds: float, expected: float) -> Outlook | None:
        """
        Return how likely which mean rates of the next `seconds` are; None before a measurement.

        A past moment counts from as long after its measurement as now is
        after the newest one.  `expected` is the rate around which all is
        thought to be as long as little is known.
        """
        if self._end == self._begin:
            return None
        times, logs, carried = self._kept[:, self._begin:self._end]
        newest = logs[-1]
        thought = expected * _STEPS
        begins = times + max(0.0, now - times[-1])
        known = int(np.searchsorted(begins, times[-1] - seconds, side='right'))
        if not known or not seconds > 0:
            return Outlook(thought, _LIKELY)
        away = np.abs(logs[:known] - newest)
        near = np.argpartition(away, _NEAREST)[:_NEAREST] if known > _NEAREST else np.arange(known)
        starts = begins[near]
        followed = (np.interp(starts + seconds, times, carried)
                    - np.interp(starts, times, carried)) / seconds
        edge = max(float(away[near].max()), _EDGE)
        similar = np.maximum(1 - (away[near] / edge) ** 2, _LEAST)
        weights = np.concatenate([similar * (len(near) / similar.sum()), _THOUGHT * _LIKELY])
        rates = np.concatenate([np.maximum(followed, np.exp(logs.min())), thought])
        return Outlook(rates, weights / weights.sum())


class RateOutlook:
    """
    Rates as they were seen in the last seconds.

    A plan that just meets its target at the rate of this moment misses it at
    the next.  So it is judged by a low quantile of what was seen lately;
    plans that stand that leave room for the rest.
    """

    HORIZON, QUANTILE = 2.0, 0.1  # seconds, part of the rates

    def __init__(self) -> None:
        self._seen: deque[tuple[float, float]] = deque()

    def saw(self, rate: float, now: float) -> None:
        """Take a rate in bytes per second."""
        self._seen.append((now, rate))
        while self._seen[0][0] < now - self.HORIZON:
            self._seen.popleft()

    def rate(self, now: float) -> float:
        """Return the rate to plan for; 0 before anything was seen."""
        rates = [rate for _, rate in self._seen]
        return float(np.quantile(rates, self.QUANTILE)) if rates else 0.0
