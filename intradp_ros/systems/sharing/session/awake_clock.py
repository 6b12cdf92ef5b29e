# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Clocks of a session: the time in which this process could hear, and the server's clock."""
from __future__ import annotations

from dataclasses import dataclass
import math
import threading

from intradp_ros.wire.frames import MalformedFrameError


class AwakeClock:
    """
    Counts the seconds in which the process ran, by how often its threads look at it.

    A busy host may stop a process for seconds; what was sent to it meanwhile
    still waits to be read when it goes on.  Of the time between two looks no
    more counts than `step` seconds, so somebody has to look more often than
    that; the heartbeat does.  Thread-safe.

    :raises ValueError: if `step` is not positive.
    """

    def __init__(self, now: float, step: float) -> None:
        if not step > 0:
            raise ValueError(f'step must be positive seconds, got {step}')
        self._looked, self._awake, self._step = now, 0.0, step
        self._looking = threading.Lock()

    def read(self, now: float) -> float:
        """Return the seconds awake since the beginning; `now` is on a steady clock."""
        with self._looking:
            self._awake += min(max(0.0, now - self._looked), self._step)
            self._looked = max(self._looked, now)
            return self._awake


class Hearing:
    """
    When the server was heard last, and for how long it has been silent; times are seconds.

    `heard` is on the steady clock, `broken` whether nothing was heard for longer than `most`
    since it was set.  Silence is counted while this process runs (`AwakeClock`).
    """

    def __init__(self, now: float, step: float, most: float) -> None:
        self.heard, self.broken = -math.inf, False
        self._clock, self._heard_awake, self._most = AwakeClock(now, step), 0.0, most

    def hear(self, now: float) -> None:
        """Take note that a frame came."""
        self.broken |= self.quiet(now) > self._most
        self.heard, self._heard_awake = now, self.awake(now)

    def awake(self, now: float) -> float:
        """Return the seconds for which this process has run."""
        return self._clock.read(now)

    def quiet(self, now: float) -> float:
        """Return the seconds awake in which nothing was heard."""
        return self.awake(now) - self._heard_awake


@dataclass
class ServerClock:
    """
    Offset of the server's monotonic clock, from the ping with the shortest round trip.

    `load` is how many times as long it said last that it computes because of other sessions.
    """

    offset: float = 0.0
    round_trip: float = math.inf
    load: float = 1.0

    def update(self, sent: float, server: float, received: float) -> float:
        """
        Take one ping: seconds on the robot's, the server's and again the robot's clock.

        Returns the seconds of its round trip.

        :raises MalformedFrameError: if no ping can have been sent and answered at these times.
        """
        round_trip = received - sent
        if not (math.isfinite(server) and 0.0 <= round_trip < math.inf):
            raise MalformedFrameError(f'a ping sent at {sent}, answered at {server}', 'pong')
        if round_trip <= self.round_trip * 1.001:
            self.offset = server - (sent + received) / 2
            self.round_trip = round_trip
        return round_trip
