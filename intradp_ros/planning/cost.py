# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What steps cost: compute seconds by operator and rows, link seconds by bytes."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from intradp_ros.operators.local_operator import SplitGraph
from intradp_ros.profiling.profile import Profile

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkModel:
    """
    A full-duplex link with one queue each way.

    Rates in bytes per second, `delay` (one way) and `overhead` (per
    transfer, on top of its bytes) in seconds.
    """

    up: float
    down: float
    delay: float = 0.0
    overhead: float = 0.0

    @classmethod
    def symmetric(cls, mbps: float, delay: float = 0.0, overhead: float = 0.0) -> LinkModel:
        """Return a link of that many Mbit/s each way."""
        return cls(mbps * 125e3, mbps * 125e3, delay, overhead)


@dataclass(frozen=True)
class CostModel:
    """
    Compute seconds of every operator on every device.

    ``seconds[device][operator]`` is an array indexed by the count of rows,
    0 to all.
    """

    split: SplitGraph
    seconds: Mapping[str, tuple[Floats, ...]]

    @classmethod
    def from_profiles(cls, split: SplitGraph, profiles: Mapping[str, Profile]) -> CostModel:
        """
        Interpolate measured times between the measured region heights.

        Raises
        ------
        ValueError
            If a profile was measured on another graph.

        """
        for device, profile in profiles.items():
            if len(profile.timings) != len(split.operators):
                raise ValueError(
                    f'the profile of {device} has {len(profile.timings)} operators, the graph '
                    f'{len(split.operators)}: profile this model again')
        return cls(split, {
            device: tuple(timing.table(op.rows) * profile.scale
                          for timing, op in zip(profile.timings, split.operators))
            for device, profile in profiles.items()})
