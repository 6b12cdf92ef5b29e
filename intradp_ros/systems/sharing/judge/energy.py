# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
The robot's energy, and what a schedule may be chosen for: latency, energy, or both.

An objective takes a simulation and its link and returns a number of which
less is better.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from intradp_ros.power.power_states import PowerStates
from intradp_ros.schedule.cost import LinkModel
from intradp_ros.schedule.schedule import ROBOT
from intradp_ros.systems.sharing.judge.simulator import Simulation

Objective = Callable[[Simulation, LinkModel], float]
T = TypeVar('T')
# What is late is worse than anything in time, the more so the later: joules for each second.
_LATE = 1e6


def energy(power: PowerStates, simulation: Simulation, link: LinkModel) -> float:
    """Return the joules that a robot spends on an inference, from its power states."""
    return power.joules(simulation.latency, simulation.busy[ROBOT],
                        min(simulation.bytes_up / link.up, simulation.latency),
                        min(simulation.bytes_down / link.down, simulation.latency))


def latency(simulation: Simulation, link: LinkModel) -> float:
    """Return seconds: the objective of the paper."""
    return simulation.latency


@dataclass(frozen=True, slots=True)
class EnergyUnderDeadline:
    """Joules, of what takes no longer than `deadline` seconds; anything else is far worse."""

    power: PowerStates
    deadline: float = float('inf')

    def __call__(self, simulation: Simulation, link: LinkModel) -> float:
        """Return joules, and a penalty for each second beyond the deadline."""
        late = max(0.0, simulation.latency - self.deadline)
        return energy(self.power, simulation, link) + (_LATE * (1 + late) if late else 0.0)


@dataclass(frozen=True, slots=True)
class Weighted:
    """Seconds and joules added up, a joule being worth `seconds_per_joule`."""

    power: PowerStates
    seconds_per_joule: float

    def __call__(self, simulation: Simulation, link: LinkModel) -> float:
        """Return seconds."""
        joules = energy(self.power, simulation, link)
        return simulation.latency + self.seconds_per_joule * joules


def pareto_front(points: Iterable[T], price: Callable[[T], tuple[float, float]]) -> Sequence[T]:
    """
    Return the points that no other beats in both prices, by the first price, ascending.

    Of equal points the first one stays.
    """
    front: list[T] = []
    least = float('inf')
    for point in sorted(points, key=price):
        second = price(point)[1]
        if second < least:
            front.append(point)
            least = second
    return front
