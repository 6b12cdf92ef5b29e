# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Device nodes, a coordinator and an asker as processes behind one access point, over DDS."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
import time

from node_processes import own_domain
import pytest

from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.lab.emulation.fleet_network import fleet_network
from intradp_ros.lab.emulation.network import available
from intradp_ros.lab.fleet.asking import SeenAnswer
from intradp_ros.lab.fleet.node_fleet import COORDINATOR, NodeFleet, running, RunningFleet

MODEL = 'small_models:dense 1x3x64x96 uint8'
EXACT = 1e-4

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


@contextmanager
def fleet(folder: Path, stages: str, mbit: float = 100.0, devices: str = 'abc',
          **options: object) -> Iterator[RunningFleet]:
    """Run a fleet whose device a asks, each device in a network namespace."""
    environment = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', **transport_environment('udp')}
    with own_domain(folder), fleet_network(tuple(devices), mbit) as network, running(NodeFleet(
            MODEL, 'a', dict.fromkeys(devices, 1.0), folder, stages, network=network,
            environment=environment, **options)) as run:  # type: ignore[arg-type]
        yield run


def check(seen: list[SeenAnswer]) -> None:
    """See that every frame was answered, in order, exactly; and some by the fleet."""
    assert [s.inference for s in seen] == list(range(1, len(seen) + 1))
    assert all(s.answered and s.difference < EXACT for s in seen)
    assert all(s.pipelined or s.reason for s in seen)
    assert sum(s.pipelined for s in seen) > 5


def test_no_frame_is_lost_when_a_device_is_killed_and_comes_back(tmp_path: Path) -> None:
    with fleet(tmp_path, 'a,b,c') as run:
        asker = run.asker(interval=0.05, frames=10_000)
        run.wait_for_plan(asker, 'a, b, c')
        run.children['b'].kill()
        run.wait_for_plan(asker, 'a, c')
        mark = len(asker.output())
        run.start_device('b')
        run.wait_for_plan(asker, 'a, b, c', mark)
        time.sleep(1.0)
        seen = run.stop_asking(asker)
    check(seen)
    assert len({s.epoch for s in seen if s.pipelined}) >= 2
    assert seen[-1].pipelined


@pytest.mark.slow
def test_the_plan_goes_on_without_a_coordinator_and_a_new_one_takes_over(tmp_path: Path) -> None:
    with fleet(tmp_path, 'a,b,c') as run:
        asker = run.asker(interval=0.05, frames=10_000)
        run.wait_for_plan(asker, 'a, b, c')
        mark = len(asker.output())
        run.children[COORDINATOR].kill()
        time.sleep(2.0)
        run.start_coordinator()
        run.wait_for_plan(asker, 'a, b, c', mark)
        time.sleep(1.0)
        seen = run.stop_asking(asker)
    check(seen)
    assert all(s.pipelined for s in seen), [s.reason for s in seen if not s.pipelined]
