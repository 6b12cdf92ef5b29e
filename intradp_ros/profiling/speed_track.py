# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
How fast a device was while its operators were measured, as these show.

A host that gives a core unevenly, or a board that throttles, takes half as
long again for seconds and is fast again.  A few measurements of an operator
then say more of these moments than of the operator.  But every operator is
measured in each round, and whatever is measured about the same moment is as
slow: of all measurements together, both what each part takes and how fast the
device was can be known.
"""
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy.optimize import linprog

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.intp]

#: Measurements that show the speed: those of the longest parts (a second of a core for so many).
MOST_SAMPLES = 1600
#: A change of speed must explain so many measurements of middle length.
CHANGE = 2.0
_LEAST_SECONDS = 1e-9
_SOLVING = 10.0  # seconds


@dataclass(frozen=True, eq=False)
class SpeedTrack:
    """
    The logarithm of how many times as long as typically a device took, by moment (ascending).

    Typically is: in the middle of the time that was measured.
    """

    moments: Floats
    logs: Floats

    def slowness(self, when: npt.ArrayLike) -> Floats:
        """Return how many times as long as typically the device took at some moments."""
        found: Floats = np.exp(np.interp(np.asarray(when, float), self.moments, self.logs))
        return found


#: Of a device that always takes as long.
STEADY = SpeedTrack(np.zeros(1), np.zeros(1))


def track_speed(parts: npt.ArrayLike, when: npt.ArrayLike, seconds: npt.ArrayLike) -> SpeedTrack:
    """
    Return how fast a device was.

    The sum of absolute differences between the logarithms of measured times
    and of what their part takes times the slowness of their moment is made
    least, together with what slowness changes by from one measurement to the
    next (a linear program): so it stays what it is for as long as it can.

    :param parts, when, seconds: of each measurement: the number of what was measured, its moment
        (s) and what it took.
    """
    order = np.argsort(np.asarray(when, float), kind='stable')
    number, moments, took = (np.asarray(a)[order] for a in (parts, when, seconds))
    took = np.maximum(took.astype(float), _LEAST_SECONDS)
    longest = _longest(number.astype(np.intp), took)
    if not longest.any():
        return STEADY
    logs = _slowness(np.unique(number[longest], return_inverse=True)[1], took[longest])
    return SpeedTrack(moments[longest], logs - _middle(logs, took[longest]))


def _longest(parts: Ints, seconds: Floats) -> npt.NDArray[np.bool_]:
    """Return which measurements are of the parts that took the longest, and were taken again."""
    counts = np.bincount(parts, minlength=1)
    longest = np.argsort(-np.bincount(parts, seconds, minlength=1), kind='stable')
    longest = longest[counts[longest] > 1]
    return np.isin(parts, longest[np.cumsum(counts[longest]) <= MOST_SAMPLES])


def _slowness(parts: Ints, seconds: Floats) -> Floats:
    """Return the logarithm of how slow the device was in each of ascending measurements."""
    count, of_parts = len(parts), int(parts.max()) + 1
    here = sparse.csr_matrix((np.ones(count), (np.arange(count), parts)), (count, of_parts))
    one, change = sparse.eye(count), sparse.eye(count - 1)
    step = sparse.diags([-1.0, 1.0], [0, 1], shape=(count - 1, count))
    # Unknown are what parts take, the slowness, and the sizes of differences and of changes.
    above = sparse.bmat([[here, one, -one, None], [-here, -one, -one, None],
                         [None, step, None, -change], [None, -step, None, -change]], 'csr')
    logs, weights = np.log(seconds), np.sqrt(seconds / seconds.mean())
    solved = linprog(
        np.concatenate([np.zeros(of_parts + count), weights, np.full(count - 1, CHANGE)]),
        above, np.concatenate([logs, -logs, np.zeros(2 * (count - 1))]),
        bounds=[(None, None)] * (of_parts + count) + [(0, None)] * (2 * count - 1),
        method='highs', options={'time_limit': _SOLVING})
    if solved.x is None:  # out of time on a very slow machine: as if the speed had not changed
        return np.zeros(count)
    found: Floats = solved.x[of_parts:of_parts + count]
    return found


def _middle(values: Floats, weights: Floats) -> float:
    """Return the weighted median."""
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    return float(values[order][np.searchsorted(below, below[-1] / 2)])
