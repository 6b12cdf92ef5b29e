# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
What paths and media give now: measured rates and delays, with their age and their spread.

A transfer shows the rate of its path.  It shows the capacity of the medium
that holds it back: what all transfers that crossed that medium lately got
there together.  Small probes there and back measure delays.  What was never
measured is as declared.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
import math

from intradp_ros.cluster.topology import Medium, Topology
from intradp_ros.link.predictor import CautiousQuantile, RatePredictor

Ends = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Estimate:
    """
    A rate (bytes per second) or a delay (s), and how sure it is.

    `age` are the seconds since it was measured, infinite where it is only
    declared; `spread` is the standard deviation of its logarithm lately.
    """

    value: float
    age: float = math.inf
    spread: float = 0.0

    @property
    def measured(self) -> bool:
        """Whether it was ever measured."""
        return math.isfinite(self.age)


@dataclass
class _Rate:
    """A predictor and when it last learnt."""

    predictor: RatePredictor
    measured: float = -math.inf

    def update(self, rate: float, now: float) -> None:
        self.predictor.update(rate, now)
        self.measured = now

    def estimate(self, now: float) -> Estimate:
        return Estimate(self.predictor.predict(now), now - self.measured, self.predictor.spread())


class NetworkState:
    """
    The state of a topology's paths and media; all times are seconds of one steady clock.

    Rates measured within `together` seconds of each other are taken to share
    their media.  A delay is half of the shortest of the round trips of the
    last `memory` seconds.
    """

    def __init__(self, topology: Topology,
                 predictor: Callable[[], RatePredictor] = CautiousQuantile,
                 together: float = 0.2, memory: float = 10.0) -> None:
        self._topology, self._predictor = topology, predictor
        self._together, self._memory = together, memory
        self._paths: dict[Ends, _Rate] = {}
        self._media: dict[str, _Rate] = {}
        self._lately: dict[str, dict[Ends, tuple[float, float]]] = {}
        self._trips: dict[Ends, list[tuple[float, float]]] = {}

    def transferred(self, source: str, target: str, rate: float, now: float) -> None:
        """
        Take the rate at which a transfer went; one not positive and finite says nothing.

        :raises ValueError: if nothing joins the devices.
        """
        path = self._topology.path(source, target)
        if not path or not 0 < rate < math.inf:
            return
        ends = (source, target)
        self._paths.setdefault(ends, _Rate(self._predictor())).update(rate, now)
        for name in dict.fromkeys(path):
            self._lately.setdefault(name, {})[ends] = (rate * path.count(name), now)
        tight = min(dict.fromkeys(path),
                    key=lambda name: self.medium(name, now).value / path.count(name))
        together = sum(share for share, then in self._lately[tight].values()
                       if now - then <= self._together)
        self._media.setdefault(tight, _Rate(self._predictor())).update(together, now)

    def probed(self, source: str, target: str, round_trip: float, now: float) -> None:
        """Take the seconds of a small probe there and back."""
        if 0 < round_trip < math.inf and self._topology.path(source, target):
            trips = self._trips.setdefault(_pair(source, target), [])
            trips.append((now, round_trip / 2))
            trips[:] = [(then, delay) for then, delay in trips if then >= now - self._memory]

    def rate(self, source: str, target: str, now: float) -> Estimate:
        """Return what a transfer gets; where it was not measured, what its media leave it."""
        if found := self._paths.get((source, target)):
            return found.estimate(now)
        path = self._topology.path(source, target)
        crossings = [replace(medium, value=medium.value / path.count(name))
                     for name in dict.fromkeys(path) for medium in (self.medium(name, now),)]
        return min(crossings, key=lambda found: found.value, default=Estimate(math.inf))

    def delay(self, source: str, target: str, now: float) -> Estimate:
        """Return the seconds one way, in addition to the time of the bytes."""
        trips = self._trips.get(_pair(source, target))
        if not trips:
            return Estimate(self._topology.delay(source, target))
        delays = [delay for _, delay in trips]
        logs = [math.log(delay) for delay in delays]
        mean = sum(logs) / len(logs)
        spread = math.sqrt(sum((x - mean) ** 2 for x in logs) / len(logs))
        return Estimate(min(delays), now - trips[-1][0], spread)

    def medium(self, name: str, now: float) -> Estimate:
        """Return the capacity of a medium."""
        if found := self._media.get(name):
            return found.estimate(now)
        return Estimate(self._topology.medium(name).bytes_per_second)

    def topology(self, now: float) -> Topology:
        """Return the topology as it is now, for planners: media with what was measured."""
        media = tuple(Medium(m.name, self.medium(m.name, now).value, self._delay_of(m, now))
                      for m in self._topology.media)
        return Topology(self._topology.devices, media, self._topology.paths)

    def due(self, now: float, every: float) -> tuple[Ends, ...]:
        """Return the paths to probe: not measured for so long, the oldest first."""
        ages = {ends: min(self.rate(*ends, now).age if ends in self._paths else math.inf,
                          self.delay(*ends, now).age) for ends in self._topology.paths}
        return tuple(sorted((ends for ends, age in ages.items() if age > every),
                            key=lambda ends: (-ages[ends], ends)))

    def _delay_of(self, medium: Medium, now: float) -> float:
        """Return the least that the measured paths through a medium leave it, by their hops."""
        return min(self._shares(medium, now), default=medium.delay)

    def _shares(self, medium: Medium, now: float) -> Iterator[float]:
        for ends, path in self._topology.paths.items():
            if medium.name in path and (found := self.delay(*ends, now)).measured:
                declared = self._topology.delay(*ends)
                yield (found.value * medium.delay / declared if declared
                       else found.value / len(path))


def _pair(a: str, b: str) -> Ends:
    return (a, b) if a <= b else (b, a)
