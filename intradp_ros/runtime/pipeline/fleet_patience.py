# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""How long the asker of a pipeline waits for its fleet."""
from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class FleetPatience:
    """
    Limits in seconds.

    `silence`: nothing was heard of a device, though it is asked every
    `heartbeat`.  Inferences are late when nothing came back for `late_factor`
    times what the longest of the last took (`unknown` before the first), and
    `late_slack` on top.
    """

    heartbeat: float = 0.1
    silence: float = 0.6
    late_factor: float = 3.0
    late_slack: float = 1.0
    unknown: float = 5.0

    def late(self, quiet: float, longest: float | None) -> bool:
        """Return whether so much time without an answer is too long."""
        usual = self.unknown if longest is None else longest
        return quiet > self.late_factor * usual + self.late_slack
