# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The rate to plan with, from what a channel measures both ways."""
from __future__ import annotations

import math
import threading
import time

from intradp_ros.link.outlook import LinkPast, Outlook
from intradp_ros.link.predictor import RatePredictor
from intradp_ros.runtime.transport.channel import Channel, LinkReport

#: A rate measured longer (s) before that of the other way says nothing of the same moment.
TOGETHER = 0.3
#: The schedule that is chosen next may use the slower way more than the last one did: no more
#: than this many times its rate is believed.
MOST_OVER_SLOWER = 1.5


class LinkRate:
    """
    Tells a predictor what a channel measures, each measurement once.

    However old the newest is, it says more than those before it: in a long
    inference all may have crossed well before the next one begins.  What was
    measured of the way down counts by the ratio `down_ratio` of the rates,
    down over up, that plans assume; both ways count by the bytes that
    crossed in the last inference.
    """

    def __init__(self, channel: Channel, predictor: RatePredictor) -> None:
        self.predictor = predictor
        self._channel = channel
        self._past = LinkPast()
        self._reported = float('-inf')
        self._crossed = 0.0, 0.0  # bytes up, and what those down are worth up
        self._predicting = threading.Lock()  # inferences ask, and those who watch the link

    def crossed(self, up: float, down: float, down_ratio: float) -> None:
        """Hear how many bytes crossed in an inference that was shared."""
        self._crossed = up, down / down_ratio

    def predicted(self, down_ratio: float, report: LinkReport | None = None) -> float:
        """
        Return bytes per second that the link is expected to carry up now; 0 if unknown.

        `report` is the channel's, where somebody has just asked for it.
        """
        report, now = report or self._channel.report(), time.monotonic()
        up, down = report.send_rate, report.receive_rate / down_ratio
        up_age, down_age = (age if rate > 0 else math.inf for rate, age in (
            (up, report.age), (down, report.receive_age)))
        measured = now - min(up_age, down_age)
        with self._predicting:
            if measured > self._reported + 1e-3:
                self._reported = measured
                if abs(up_age - down_age) < TOGETHER:
                    rate = rate_of_both(up, down, *self._crossed)
                else:
                    rate = up if up_age < down_age else down
                self.predictor.update(rate, measured)
                self._past.update(rate, measured)
            return self.predictor.predict(now)

    def outlook(self, seconds: float, expected: float) -> Outlook | None:
        """Return how likely which rates up are in the next seconds; None if nothing is known."""
        with self._predicting:
            return self._past.outlook(time.monotonic(), seconds, expected)


def rate_of_both(up: float, down: float, bytes_up: float, bytes_down: float) -> float:
    """
    Return the rate at which bytes both ways take as long as they do at the rates of the ways.

    Schedules are made for one rate.  What crosses in a short burst is measured with little
    accuracy, mostly too low, and should not decide over the way that carries most of the bytes.
    Any unit; rates must be positive.  Without bytes both ways count alike.
    """
    if bytes_up + bytes_down <= 0:
        bytes_up = bytes_down = 1.0
    together = (bytes_up + bytes_down) / (bytes_up / up + bytes_down / down)
    return min(together, MOST_OVER_SLOWER * min(up, down))
