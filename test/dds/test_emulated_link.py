# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The channel between two network namespaces: the rate it measures, outages and full air."""
from __future__ import annotations

from dataclasses import asdict
import json
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

import pytest
from waiting import wait_for

from intradp_lab.emulation.network import (
    ADDRESSES,
    available,
    DEVICE,
    LinkSettings,
    shaped_link,
    ShapedLink,
    SIDES,
)
from intradp_lab.testbed.transport_bench import Job, STREAMED_BYTES
from intradp_ros.core.processes import module_arguments
from intradp_ros.dds.transport_profile import transport_environment

HERE = Path(__file__).parent
MBIT = 20.0
PATIENCE = 60.0

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


def burst(robot: subprocess.Popen[str]) -> dict[str, Any]:
    """Make the robot send one tensor; return what it says."""
    assert robot.stdin and robot.stdout
    robot.stdin.write('go\n')
    robot.stdin.flush()
    return dict(json.loads(robot.stdout.readline()))


@pytest.mark.parametrize('transport', ['udp', 'large_data'])
def test_rate_and_outage(transport: str, domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bursts of 130 kB show the link's rate; after an outage everything works as before."""
    monkeypatch.delenv('ROS_AUTOMATIC_DISCOVERY_RANGE')
    environment = {**os.environ, **transport_environment(transport)}
    with shaped_link(MBIT, prefix='intradp-test') as link:
        subprocess.Popen([*link.exec_prefix('server'), sys.executable, str(HERE / 'echo_peer.py')],
                         env=environment)
        robot = subprocess.Popen(
            [*link.exec_prefix('robot'), sys.executable, str(HERE / 'burst_robot.py')],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        before = [burst(robot) for _ in range(5)]
        assert all(answer['right'] for answer in before)
        # Tensor data is 86 to 95 % of what crosses; the rest is room for a busy machine.
        assert 0.6 * MBIT < before[-1]['send_rate'] * 8e-6 < 1.1 * MBIT
        assert 0.6 * MBIT < before[-1]['receive_rate'] * 8e-6 < 1.1 * MBIT
        link.cut()
        assert not burst(robot)['back']
        link.restore()
        end = time.monotonic() + PATIENCE
        while not (after := burst(robot))['back'] and time.monotonic() < end:
            pass
        assert after['right']
        assert all(burst(robot)['right'] for _ in range(4))


def sent_bytes(link: ShapedLink) -> int:
    """Return what both sides sent so far."""
    counter = f'/sys/class/net/{DEVICE}/statistics/tx_bytes'
    return sum(int(subprocess.check_output([*link.exec_prefix(side), 'cat', counter]))
               for side in SIDES)


@pytest.mark.parametrize('transport', ['udp', 'air'])
def test_what_full_air_lost_is_not_repeated_without_end(
        transport: str, domain: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Streams both ways, and a stranger who fills the air: not much more is sent than arrives."""
    monkeypatch.delenv('ROS_AUTOMATIC_DISCOVERY_RANGE')
    stream = Job(transport, MBIT / 2, sizes=(30_000,), repeat=1, seconds=6.0)
    settings = LinkSettings(MBIT, medium='shared', bottleneck='access_point')
    with shaped_link(settings, prefix='intradp-test') as link:
        def start(role: str, side: str, number: int) -> subprocess.Popen[str]:
            return subprocess.Popen(
                [*link.exec_prefix(side), *module_arguments(
                    'intradp_lab.testbed.transport_side', role, json.dumps(asdict(stream)))],
                env={**os.environ, **transport_environment(transport),
                     'ROS_DOMAIN_ID': str(number)}, stdout=subprocess.PIPE, text=True)

        start('sink', 'server', domain)
        start('sink', 'robot', domain + 1)
        sources = [start('source', 'robot', domain), start('source', 'server', domain + 1)]
        wait_for(lambda: sent_bytes(link) >= 3e6)  # until the streams are on
        subprocess.run([*link.exec_prefix('robot'), sys.executable, str(HERE / 'flood.py'),
                        ADDRESSES['server'], '2'], check=True)
        before = sent_bytes(link)
        assert all(source.communicate(timeout=PATIENCE)[0].startswith('result ')
                   for source in sources)
        assert sent_bytes(link) - before < 3 * len(sources) * stream.tensors * STREAMED_BYTES
