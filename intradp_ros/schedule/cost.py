# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What steps cost: compute seconds by operator and rows, link seconds by bytes."""
from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from intradp_ros.profiling.profile import JoinCost, Profile, TransportCost
from intradp_ros.split.local_operator import SplitGraph
from intradp_ros.wire.codecs.registry import CODECS

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class LinkModel:
    """
    A link with a queue each way, or, if `shared`, with one queue for both.

    Rates in bytes per second, `delay` (one way) and `overhead` (per
    transfer, on top of its bytes) in seconds.  Shared is what both ways
    share the air of, as in Wi-Fi: one transfer at a time has all of its rate.
    """

    up: float
    down: float
    delay: float = 0.0
    overhead: float = 0.0
    shared: bool = False

    @classmethod
    def symmetric(cls, mbps: float, delay: float = 0.0, overhead: float = 0.0,
                  shared: bool = False) -> LinkModel:
        """Return a link of that many Mbit/s each way."""
        return cls.of_up(mbps, 1.0, delay, overhead, shared)

    @classmethod
    def of_up(cls, mbps: float, down_ratio: float, delay: float = 0.0, overhead: float = 0.0,
              shared: bool = False) -> LinkModel:
        """Return a link of that many Mbit/s up, and `down_ratio` times as many down."""
        return cls(mbps * 125e3, down_ratio * mbps * 125e3, delay, overhead, shared)


@dataclass(frozen=True, slots=True)
class WireCost:
    """
    What an encoding does to a value.

    `ratio` of its bytes cross the link; `encode` and `decode` are seconds for
    each plain byte, by device.
    """

    ratio: float = 1.0
    encode: Mapping[str, float] = field(default_factory=dict)
    decode: Mapping[str, float] = field(default_factory=dict)

    def scaled(self, factors: Mapping[str, float]) -> WireCost:
        """Return what it does on devices that are slower by some factors."""
        encode, decode = ({device: seconds * factors.get(device, 1.0)
                           for device, seconds in timings.items()}
                          for timings in (self.encode, self.decode))
        return replace(self, encode=encode, decode=decode)


@dataclass(frozen=True)
class CostModel:
    """
    Compute seconds of every operator on every device.

    ``seconds[device][operator]`` is an array indexed by the count of rows,
    0 to all.  ``wire[value, encoding]`` says what encodings do; of those
    that are not there it is not known, and rows are charged as plain ones.
    ``moving[device]`` says what moving bytes takes from the operators of a
    device without a free core; encoding and decoding take from them too.
    ``joining[device]`` is what putting rows together takes that an operator
    reads of several pieces (`schedule/joins.py`).
    """

    split: SplitGraph
    seconds: Mapping[str, tuple[Floats, ...]]
    wire: Mapping[tuple[int, str], WireCost] = field(default_factory=dict)
    moving: Mapping[str, TransportCost] = field(default_factory=dict)
    joining: Mapping[str, JoinCost] = field(default_factory=dict)

    def scaled(self, factors: Mapping[str, float]) -> CostModel:
        """
        Return the model of devices that are slower by some factors (loaded, throttled).

        They are with all that their processors do: operators, encodings, moving and joining.
        """
        return replace(self, seconds={
            device: tuple(table * factors.get(device, 1.0) for table in tables)
            for device, tables in self.seconds.items()},
            wire={key: wire.scaled(factors) for key, wire in self.wire.items()},
            moving={device: moving.scaled(factors.get(device, 1.0))
                    for device, moving in self.moving.items()},
            joining={device: joining.scaled(factors.get(device, 1.0))
                     for device, joining in self.joining.items()})

    @classmethod
    def from_profiles(cls, split: SplitGraph, profiles: Mapping[str, Profile]) -> CostModel:
        """
        Interpolate measured times between the measured region heights.

        :raises ValueError: if a profile was measured on another graph.
        """
        for device, profile in profiles.items():
            if len(profile.timings) != len(split.operators):
                raise ValueError(
                    f'the profile of {device} has {len(profile.timings)} operators, the graph '
                    f'{len(split.operators)}: profile this model again')
            if len(profile.encodings) not in (0, len(split.rows)):
                raise ValueError(
                    f'the profile of {device} has encodings of {len(profile.encodings)} values, '
                    f'the graph has {len(split.rows)}: profile this model again')
        return cls(split, {
            device: tuple(timing.table(op.rows) * profile.scale
                          for timing, op in zip(profile.timings, split.operators))
            for device, profile in profiles.items()}, wire_costs(profiles),
            {device: profile.moving for device, profile in profiles.items() if profile.crowded},
            {device: profile.joining for device, profile in profiles.items()})


def wire_costs(profiles: Mapping[str, Profile]) -> dict[tuple[int, str], WireCost]:
    """
    Return what encodings do that all devices have, by value and encoding.

    The first profile, the robot's, says what can be encoded and how small it
    gets: its inputs are the sensor's.  Where another device has not timed an
    encoding on a value, it is taken to be as fast as the first.
    """
    first, *others = profiles.values()
    modules = [{CODECS[name].module for found in profile.encodings
                for name in found if name in CODECS} for profile in others]
    costs: dict[tuple[int, str], WireCost] = {}
    for value, found in enumerate(first.encodings):
        for name, own in found.items():
            if name in CODECS and all(CODECS[name].module in have for have in modules):
                timings = {device: p.encodings[value].get(name, own)
                           for device, p in profiles.items()}
                costs[value, name] = WireCost(own.ratio, {d: t.encode for d, t in timings.items()},
                                              {d: t.decode for d, t in timings.items()})
    return costs
