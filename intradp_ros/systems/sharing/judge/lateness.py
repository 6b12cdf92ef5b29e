# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""From when on a robot that waits for rows computes them itself."""
from __future__ import annotations

from dataclasses import dataclass
import math

#: Seconds of a wait after which a robot that works at once does: less is what machines and
#: transports delay anything by.
_AT_ONCE = 5e-3


@dataclass(frozen=True, slots=True)
class LateThreshold:
    """Rows are late for a robot that `ran` so many seconds, and `waited` these for them."""

    ran: float
    waited: float


NEVER_LATE = LateThreshold(math.inf, math.inf)
#: The robot works on whenever it has to wait, whatever was predicted.
AT_ONCE = LateThreshold(0.0, _AT_ONCE)
