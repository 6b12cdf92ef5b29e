# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The server's clock, from what it answers to pings."""
from __future__ import annotations

from dataclasses import dataclass, field
import math

from intradp_ros.wire.frames import MalformedFrameError


@dataclass
class ServerClock:
    """Offset of the server's monotonic clock, from the ping with the shortest round trip."""

    offset: float = 0.0
    round_trip: float = field(default=float('inf'))

    def update(self, sent: float, server: float, received: float) -> float:
        """
        Take one ping: seconds on the robot's, the server's and again the robot's clock.

        Returns the seconds of its round trip.

        Raises
        ------
        MalformedFrameError
            If no ping can have been sent and answered at these times.

        """
        round_trip = received - sent
        if not (math.isfinite(server) and 0.0 <= round_trip < math.inf):
            raise MalformedFrameError(f'a ping sent at {sent}, answered at {server}', 'pong')
        if round_trip <= self.round_trip * 1.001:
            self.offset = server - (sent + received) / 2
            self.round_trip = round_trip
        return round_trip
