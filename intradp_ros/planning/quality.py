# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What the user wants (quality of experience), and how far a plan is from it."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
import math
import re

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.float64]

#: How much lateness weighs among plans that miss their target.
WEIGHT = 100.0
_TIMES = {'us': 1e-6, 'ms': 1e-3, 's': 1.0}


@dataclass(frozen=True)
class Quality:
    """
    The targets of a plan.

    `latency` is the most seconds from an input to its result (infinite: not
    asked for), `rate` the least inferences per second.  Where neither is
    given the plan with the least latency is wanted.  `energy` and `memory`
    are limits by device, in joules for an inference and in bytes.  `weight`
    is the lambda of Dora's Eq. 2: what a lateness of the whole target
    weighs among plans that miss their target, in units of the energy of the
    hungriest single device.

    :raises ValueError: if a target is not above zero, or the weight is negative.
    """

    latency: float = math.inf
    rate: float = 0.0
    energy: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, float] = field(default_factory=dict)
    weight: float = WEIGHT

    def __post_init__(self) -> None:
        """Check the figures."""
        limits = (*self.energy.values(), *self.memory.values())
        if not self.latency > 0 or not 0 <= self.rate < math.inf or not self.weight >= 0:
            raise ValueError('a latency target is above 0, a rate and a weight 0 or more, got '
                             f'{self.latency}, {self.rate} and {self.weight}')
        if not all(limit > 0 for limit in limits):
            raise ValueError('limits of energy and memory must be above 0')

    @property
    def fastest(self) -> bool:
        """Return whether there is no target, so that the fastest plan is wanted."""
        return math.isinf(self.latency) and not self.rate

    def lateness(self, latency: Numbers, period: Numbers) -> Numbers:
        """Return by how much of the targets plans miss them, 0 where they are met."""
        missed = np.zeros_like(latency)
        if math.isfinite(self.latency):
            missed += np.maximum(0.0, latency / self.latency - 1)
        if self.rate:
            missed += np.maximum(0.0, period * self.rate - 1)
        return missed


@dataclass(frozen=True, slots=True)
class Scale:
    """What energy and time are compared with: most joules, least seconds of a single device."""

    joules: float
    seconds: float


#: So little that it decides only between plans of equal energy.
_TIE = 1e-6


def score(quality: Quality, scale: Scale, joules: Numbers, latency: Numbers,
          period: Numbers) -> Numbers:
    """
    Return the objective of plans, less is better.

    Every plan that meets the target comes before every plan that misses it:
    those that meet rank by the energy of an inference and are below 1.  Those
    that miss rank by energy and lateness times its weight (Dora, Eq. 2, in
    parts of the scale) and are 1 or more.  Latency alone ranks where no target
    is given.
    """
    if quality.fastest:
        return latency / scale.seconds + _TIE * joules / scale.joules
    late = quality.lateness(latency, period)
    energy = joules / scale.joules + _TIE * latency / scale.seconds
    with np.errstate(invalid='ignore'):
        met = np.where(np.isfinite(energy), energy / (1 + energy), math.inf)
        return np.where(late > 0, 1 + energy + quality.weight * late, met)


def parse_quality(text: str) -> Quality:
    """
    Return the targets of a text such as ``latency=200ms,rate=5Hz,energy=min,weight=10``.

    ``energy=min`` is what any target means, and may be given; ``latency=min``
    asks for the fastest plan.

    :raises ValueError: if the text says something else.
    """
    quality, named = Quality(), set[str]()
    for item in filter(None, (part.strip() for part in text.split(','))):
        name, _, value = item.partition('=')
        if name in named:
            raise ValueError(f'{name} is there twice in {text!r}')
        named.add(name)
        if (name, value) in (('energy', 'min'), ('latency', 'min')):
            continue
        if name == 'latency':
            quality = replace(quality, latency=_seconds(value))
        elif name == 'rate' and (found := re.fullmatch(r'([\d.]+)\s*(Hz|fps)?', value)):
            quality = replace(quality, rate=_number(found[1]))
            if not quality.rate:
                raise ValueError('rate must be above 0 Hz; leave it out where any will do')
        elif name == 'weight':
            quality = replace(quality, weight=_number(value))
        else:
            raise ValueError(f'{item!r} is not a target; say latency=200ms, latency=min, '
                             'rate=5Hz, energy=min or weight=10')
    return quality


def _seconds(text: str) -> float:
    found = re.fullmatch(r'([\d.]+)\s*(us|ms|s)', text)
    if not found:
        raise ValueError(f'{text!r} is not a time; say 200ms or 0.2s')
    return _number(found[1]) * _TIMES[found[2]]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f'{text!r} is not a number') from None
