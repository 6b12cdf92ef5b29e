# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""What a predictor is given of what a channel measures."""
from __future__ import annotations

from dataclasses import replace
import time
from typing import cast

import pytest

from intradp_ros.link.predictor import LastValue
from intradp_ros.runtime.transport.channel import Channel, LinkReport
from intradp_ros.runtime.transport.link_rate import LinkRate, TOGETHER


class Measured:
    """A channel that reports what it is later to."""

    def __init__(self, report: LinkReport) -> None:
        self.given = report
        self.at = time.monotonic()

    def report(self) -> LinkReport:
        """Return the report, as much older as time has passed."""
        past = time.monotonic() - self.at
        return replace(self.given, age=self.given.age + past,
                       receive_age=self.given.receive_age + past)


class Heard(LastValue):
    """Keeps what it was given, and when that was measured."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[tuple[float, float]] = []

    def update(self, rate: float, now: float) -> None:
        """Take a measurement."""
        super().update(rate, now)
        self.given.append((rate, time.monotonic() - now))


def link_rate(**report: float) -> tuple[LinkRate, Heard, Measured]:
    channel, heard = Measured(LinkReport(**report)), Heard()
    return LinkRate(cast(Channel, channel), heard), heard, channel


def test_nothing_is_reported_before_something_is_measured() -> None:
    rate, heard, _ = link_rate()
    assert rate.predicted(1.0) == 0.0 and not heard.given


def test_a_measurement_is_reported_once_however_old_it_is() -> None:
    """As after an inference of half a second in the first tenth of which all rows crossed."""
    rate, heard, channel = link_rate(send_rate=2e6, age=0.8)
    assert rate.predicted(1.0) == rate.predicted(1.0) == 2e6
    [(_, age)] = heard.given
    assert age == pytest.approx(0.8, abs=0.1)
    channel.given = LinkReport(send_rate=9e6, age=0.45)
    assert rate.predicted(1.0) == 9e6 and len(heard.given) == 2


@pytest.mark.parametrize('apart, wanted', [(0.9 * TOGETHER, 4e6), (1.1 * TOGETHER, 8e6)])
def test_ways_that_were_measured_together_count_together(apart: float, wanted: float) -> None:
    rate, _, _ = link_rate(send_rate=8e6, age=0.5, receive_rate=8e6 / 3, receive_age=0.5 + apart)
    assert rate.predicted(1.0) == pytest.approx(wanted)


def test_the_way_that_carries_more_counts_more() -> None:
    rate, _, channel = link_rate(send_rate=4e6, age=0.1, receive_rate=12e6, receive_age=0.1)
    rate.crossed(0.0, 1e6, 2.0)
    assert rate.predicted(2.0) == pytest.approx(6e6)
    channel.given = replace(channel.given, receive_rate=0.0, receive_age=float('inf'), age=0.05)
    assert rate.predicted(2.0) == 4e6
