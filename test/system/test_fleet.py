# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Device nodes, a coordinator and an asker as processes behind one access point, over DDS."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
import signal
import time

from node_processes import own_domain
import pytest

from intradp_lab.emulation.fleet_network import fleet_network
from intradp_lab.emulation.network import available
from intradp_lab.fleet.asking import SeenAnswer
from intradp_lab.fleet.node_fleet import COORDINATOR, NodeFleet, running, RunningFleet
from intradp_ros.dds.transport_profile import transport_environment

MODEL = 'small_models:dense 1x3x64x96 uint8'
EXACT = 1e-4
TIMEOUT = 60.0

pytestmark = pytest.mark.skipif(available() is not None, reason=str(available()))


@contextmanager
def fleet(folder: Path, stages: str, mbit: float = 100.0, devices: str = 'abc',
          **options: object) -> Iterator[RunningFleet]:
    """Run a fleet whose device a asks, each device in a network namespace."""
    environment = {'ROS_AUTOMATIC_DISCOVERY_RANGE': 'SUBNET', **transport_environment('air')}
    with own_domain(folder), fleet_network(tuple(devices), mbit) as network, running(NodeFleet(
            MODEL, 'a', dict.fromkeys(devices, 1.0), folder, stages, network=network,
            environment=environment, **options)) as run:
        yield run


def check(seen: list[SeenAnswer]) -> None:
    """See that every frame was answered, in order, exactly; and some by the fleet."""
    assert [s.inference for s in seen] == list(range(1, len(seen) + 1))
    assert all(s.answered and s.difference < EXACT for s in seen)
    assert all(s.pipelined or s.reason for s in seen)
    assert sum(s.pipelined for s in seen) > 5
    newest = max(s.epoch for s in seen)
    assert any(s.pipelined for s in seen if s.epoch == newest)


def test_no_frame_is_lost_when_a_device_is_killed_and_comes_back(tmp_path: Path) -> None:
    with fleet(tmp_path, 'a,b,c') as run:
        asker = run.asker(interval=0.2, frames=10_000)
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


def test_a_stopped_device_and_a_dead_coordinator_cost_no_frame(tmp_path: Path) -> None:
    """A device stops for 3 s; then the coordinator dies, and the other candidate takes over."""
    with fleet(tmp_path, 'a,b,c', standby=1) as run:
        asker = run.asker(interval=0.2, frames=10_000)
        run.wait_for_plan(asker, 'a, b, c')
        first, second = (run.children[name] for name in run.fleet.coordinators)
        first.wait_for_line('coordinates in term', TIMEOUT)
        run.children['b'].signal(signal.SIGSTOP)
        run.wait_for_plan(asker, 'a, c')
        time.sleep(3.0)
        mark = len(asker.output())
        run.children['b'].signal(signal.SIGCONT)
        run.wait_for_plan(asker, 'a, b, c', mark)
        mark = len(asker.output())
        first.kill()
        second.wait_for_line('coordinates in term', TIMEOUT)
        run.wait_for_plan(asker, 'a, b, c', mark)
        time.sleep(1.0)
        seen = run.stop_asking(asker)
    check(seen)
    assert len({s.epoch for s in seen if s.pipelined}) >= 3


@pytest.mark.slow
def test_the_plan_goes_on_without_a_coordinator_and_a_new_one_takes_over(tmp_path: Path) -> None:
    with fleet(tmp_path, 'a,b,c') as run:
        asker = run.asker(interval=0.2, frames=10_000)
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


def test_a_device_without_a_model_fetches_its_weights_and_a_liar_is_found_out(
        tmp_path: Path) -> None:
    """
    Device b hands out altered weights; c is killed, and finds its weights in its store.

    It comes when a and b hand out weights, and waits for each: so it asks both for some.
    """
    def parameters(given: str) -> dict[str, object]:
        return {'fetch': 'always', 'serve': 'always', 'store': str(tmp_path / given),
                'store_mb': 100.0}

    with fleet(tmp_path, 'a,b,c', parameters={
            'b': parameters('b'), 'c': {**parameters('c'), 'models': []}},
            modules={'b': 'lying_device', 'c': 'patient_device'}, later=('c',)) as run:
        asker = run.asker(interval=0.2, frames=10_000, serves=True)
        run.wait_for_plan(asker, 'a, b')
        run.start_device('c')
        run.wait_for_plan(asker, 'a, b, c')
        said = run.children['c'].output()
        assert 'blobs fetched' in said and ' of a' in said
        assert 'b sent something else than the weights' in said
        mark = len(asker.output())
        run.children['c'].kill()
        run.wait_for_plan(asker, 'a, b', mark)
        mark = len(asker.output())
        run.start_device('c')
        run.wait_for_plan(asker, 'a, b, c', mark)
        assert 'fetched' not in run.children['c'].output()
        time.sleep(1.0)
        seen = run.stop_asking(asker)
    check(seen)
