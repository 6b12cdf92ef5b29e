# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What becomes of one inference that a fleet was asked for."""
from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from intradp_ros.cluster.plan_id import PlanId
from intradp_ros.runtime.transport.timeline import Event
from intradp_ros.wire.frames import Stamp


@dataclass(frozen=True)
class FleetResult:
    """
    The model's own results, or None with the reason why there are none.

    `pipelined` means that the fleet computed them, by plan `plan`; else the
    asker did, for the `reason` given.  `latency` counts from the asking,
    `waited` is the part of it before the inference began (s).
    """

    inference: int
    outputs: Any
    pipelined: bool
    reason: str
    latency: float
    waited: float
    plan: PlanId
    stamp: Stamp = Stamp()
    events: tuple[Event, ...] = ()
