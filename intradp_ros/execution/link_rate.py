# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The rate to plan with, from what a channel measures both ways."""
from __future__ import annotations

import math
import threading
import time

from intradp_ros.execution.channel import Channel
from intradp_ros.link.both_ways import rate_of_both
from intradp_ros.link.predictor import RatePredictor

#: A rate that was measured longer ago (s) says nothing of now.
CURRENT = 0.3


class LinkRate:
    """
    Tells a predictor what a channel measures, each measurement once.

    What was measured of the way down counts by the ratio `down_ratio` of the
    rates, down over up, that plans assume; both ways count by the bytes that
    crossed in the last inference.
    """

    def __init__(self, channel: Channel, predictor: RatePredictor) -> None:
        self.predictor = predictor
        self._channel = channel
        self._told = float('-inf')
        self._crossed = 0.0, 0.0  # bytes up, and what those down are worth up
        self._predicting = threading.Lock()  # inferences ask, and those who watch the link

    def crossed(self, up: float, down: float, down_ratio: float) -> None:
        """Hear how many bytes crossed in an inference that was shared."""
        self._crossed = up, down / down_ratio

    def predicted(self, down_ratio: float) -> float:
        """Return bytes per second that the link is expected to carry up now; 0 if unknown."""
        report = self._channel.report()
        now, down = time.monotonic(), report.receive_rate / down_ratio
        ways = [(rate, age) for rate, age in (
            (report.send_rate, report.age), (down, report.receive_age))
            if rate > 0 and age < CURRENT]
        with self._predicting:
            measured = now - min((age for _, age in ways), default=math.inf)
            if measured > self._told + 1e-3:
                rate = ways[0][0] if len(ways) == 1 else rate_of_both(
                    report.send_rate, down, *self._crossed)
                self.predictor.update(rate, measured)
                self._told = measured
            return self.predictor.predict(now)
