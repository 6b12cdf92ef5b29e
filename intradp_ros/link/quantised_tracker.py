# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A number that follows measurements in steps, and stays where it is while they waver."""
from __future__ import annotations

import math

#: A measurement this part of a step away moves the number.
_APART = 0.75


class Steps:
    """
    A number above 0 that is its first value times a power of `step`.

    It moves, to the nearest of these, once a measurement is more than three
    quarters of a step away.  So what is made for one value is good for a
    while, and found again when the value comes back.

    :raises ValueError: if the step is not above 1.
    """

    def __init__(self, step: float, first: float) -> None:
        if not step > 1:
            raise ValueError(f'a step must be above 1, got {step}')
        self.value = self._first = first
        self._step = math.log(step)

    def follow(self, measured: float) -> float | None:
        """Take a measurement above 0; return the number if that has moved it."""
        if abs(math.log(measured / self.value)) <= _APART * self._step:
            return None
        steps = round(math.log(measured / self._first) / self._step)
        self.value = self._first * math.exp(self._step * steps)
        return self.value
