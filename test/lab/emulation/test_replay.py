# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass, field
import json
import os
import subprocess
import time

import pytest
from waiting import wait_for

from intradp_lab.emulation.network import DEVICE, shaped_link
from intradp_lab.emulation.replay import PERIOD, replaying
from intradp_lab.emulation.trace import LinkTrace

STEPS = LinkTrace((0.0, 0.5, 1.0, 1.5), (10.0, 0.0, 40.0, 20.0))
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason='network namespaces need root')


@dataclass
class NotedLink:
    """A link that keeps what it was given."""

    given: list[tuple[str, float]] = field(default_factory=list)
    broken: bool = False

    def set_rate(self, mbit: float) -> None:
        if self.broken and mbit == 40.0:
            self.given.append(('refused', mbit))
            raise OSError('the link refuses')
        self.given.append(('rate', mbit))

    def cut(self) -> None:
        self.given.append(('cut', 0.0))

    def restore(self) -> None:
        self.given.append(('restore', 0.0))


def test_rates_come_in_recorded_order_and_again() -> None:
    link = NotedLink()
    with replaying(link, STEPS):
        wait_for(lambda: len(link.given) >= 6)
    assert link.given[:6] == [
        ('rate', 10.0), ('cut', 0.0), ('rate', 40.0), ('restore', 0.0), ('rate', 20.0),
        ('rate', 10.0)]
    assert link.given[-1] == ('restore', 0.0)  # whatever the trace was at


def test_a_link_that_refuses_is_reported_at_the_end() -> None:
    link = NotedLink(broken=True)
    with pytest.raises(OSError, match='refuses'), replaying(link, STEPS):
        wait_for(lambda: len(link.given) >= 3)


@needs_root
def test_a_real_link_follows_a_trace() -> None:
    trace = LinkTrace((0.0, 4 * PERIOD), (8.0, 80.0))
    with shaped_link(1.0, 'intradp-test-replay') as link, replaying(link, trace) as replay:
        seen = set()
        end = time.monotonic() + 60
        while len(seen - {1.0}) < 2 and time.monotonic() < end:
            shown = subprocess.run(
                ['tc', '-n', link.namespaces['robot'], '-j', 'qdisc', 'show', 'dev', DEVICE],
                check=True, capture_output=True, text=True).stdout
            seen |= {q['options']['rate'] * 8e-6 for q in json.loads(shown) if 'options' in q}
        assert seen - {1.0} == {8.0, 80.0}
        assert replay.mbps in (8.0, 80.0)
