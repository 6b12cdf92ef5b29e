# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A machine that takes part in a fleet."""
from __future__ import annotations

from dataclasses import dataclass
import math
import re

from intradp_ros.power.power_states import PowerStates

_PLACE = re.compile(r'(?:\[[0-9A-Fa-f:.]+\]|[\w.-]+):(\d{1,5})', re.ASCII)


@dataclass(frozen=True, slots=True)
class Battery:
    """What a battery holds, in joules, when full and now."""

    capacity: float
    charge: float

    @property
    def level(self) -> float:
        """Return the charge as a share of the capacity, 0 to 1."""
        return self.charge / self.capacity


@dataclass(frozen=True, slots=True)
class Device:
    """
    What a machine offers to its fleet, where it has a name of its own.

    `memory_bytes` is what plans may use; `speed` says how many times as fast
    as the profile it computes (1 where the profile was measured on it);
    `disk` names the medium that its loads go through, empty without one.
    `power` and `battery` are None where nothing is known of them.  `site` says where it stands,
    `gateway` where requests for that site are taken (HOST:PORT), empty on other devices.
    """

    name: str
    memory_bytes: float = math.inf
    speed: float = 1.0
    threads: int = 1
    disk: str = ''
    power: PowerStates | None = None
    battery: Battery | None = None
    site: str = ''
    gateway: str = ''


def gateway_place(text: str) -> str:
    """Return where a site takes requests, as it is; ValueError if it is not HOST:PORT."""
    found = _PLACE.fullmatch(text)
    if not found or not 1 <= int(found[1]) <= 65535:
        raise ValueError(f'{text[:80]!r} is not HOST:PORT')
    return text
