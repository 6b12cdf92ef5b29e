# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Medians with what is sure of them, of one series and of two that were taken in turn.

Intervals are made of order statistics, so nothing is assumed of how the
values spread: the median is between two of the sorted values unless more
coins than that fall on one side (Conover, Practical Nonparametric
Statistics, section 3.2).
"""
from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the bounds between which the true one is, with `CONFIDENCE` at least."""

    median: float
    low: float
    high: float


def median_interval(values: Sequence[float]) -> Interval:
    """
    Return the median of some values and its interval.

    Of fewer than six values the interval is all of them, which is less sure.

    :raises ValueError: if there are no values.
    """
    if not values:
        raise ValueError('no values, so no median')
    ordered = sorted(values)
    skipped = _skipped(len(ordered))
    return Interval(median(ordered), ordered[skipped], ordered[-1 - skipped])


def _skipped(count: int) -> int:
    """
    Return how many values at each end may be left out of the interval.

    The median is below the (k + 1)-th value if k or fewer of the others are.
    """
    tail, skipped = 1 / 2**count, 0
    while 2 * (tail + comb(count, skipped + 1) / 2**count) <= 1 - CONFIDENCE:
        skipped += 1
        tail += comb(count, skipped) / 2**count
    return skipped


def paired_ratio(ours: Sequence[float], others: Sequence[float]) -> Interval:
    """
    Return how many times the others' values ours are, pair by pair.

    Values taken in turn share what the machine did meanwhile, which then
    falls out.

    :raises ValueError: if they are not as many, or there are none.
    """
    return median_interval([a / b for a, b in zip(ours, others, strict=True)])
