# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A coordinator that plans by itself: real nodes over DDS, an operator's service, statistics."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import json
import os
from pathlib import Path
import secrets
import threading
from typing import Any

from node_processes import LATCHED, own_domain, TIMEOUT
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor

from intradp_lab.fleet.node_fleet import NodeFleet, running
from intradp_ros.dds.transport_profile import transport_environment
from intradp_ros.msg import FleetQoe, FleetState
from intradp_ros.profiling.profile import OperatorTiming, Profile
from intradp_ros.runtime.models.catalogue import ModelSpec
from intradp_ros.schedule.stage_plan import StagePlan
from intradp_ros.srv import PlanModel

MODEL = 'small_models:dense 1x3x64x96 uint8'
#: The robot alone takes 0.5 s, the helper 0.1 s, the box 0.02 s: it is wanted, then the helper.
FLEET = """
devices:
  robot: {memory: 1 GB, speed: 1, power: {compute: 13, send: 5, idle: 4}}
  helper: {memory: 1 GB, speed: 5, power: {compute: 13, send: 5, idle: 4}}
  box: {memory: 1 GB, speed: 25, power: {compute: 13, send: 5, idle: 4}}
networks:
  wifi: {access point: 100 Mbit/s, devices: [robot, helper, box]}
"""


class Operator:
    """Sees what the coordinator publishes, and calls its service."""

    def __init__(self, fleet: str) -> None:
        self.state, self.qoe = FleetState(), FleetQoe()
        self._context = rclpy.Context()
        rclpy.init(context=self._context)
        node = self._node = rclpy.create_node('operator', context=self._context)
        node.create_subscription(FleetState, f'{fleet}/state', self._take_state, LATCHED)
        node.create_subscription(FleetQoe, 'coordinator/qoe', self._take_qoe, 10)
        self._service = node.create_client(PlanModel, 'coordinator/plan_model')
        self._changed = threading.Condition()
        self._executor = SingleThreadedExecutor(context=self._context)
        self._executor.add_node(node)
        self._thread = threading.Thread(target=self._executor.spin, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._executor.shutdown()
        self._thread.join()
        self._node.destroy_node()
        self._context.try_shutdown()

    def wait(self, condition: Any) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, TIMEOUT), (self.state, self.qoe)

    def see_frames(self, count: int = 10) -> None:
        """Wait until some frames more are answered."""
        seen = self.qoe.frames
        self.wait(lambda: self.qoe.frames >= seen + count)

    def devices(self) -> tuple[str, ...]:
        """Return who computes by the plan in use."""
        plan = self.state.plan
        return StagePlan.from_json(json.loads(plan)).devices if plan else ()

    def call(self, what: int, **fields: Any) -> PlanModel.Response:
        assert self._service.wait_for_service(TIMEOUT)
        done = threading.Event()
        future = self._service.call_async(PlanModel.Request(what=what, **fields))
        future.add_done_callback(lambda _: done.set())
        assert done.wait(TIMEOUT)
        return future.result()

    def _take_state(self, message: FleetState) -> None:
        with self._changed:
            self.state = message
            self._changed.notify_all()

    def _take_qoe(self, message: FleetQoe) -> None:
        with self._changed:
            self.qoe = message
            self._changed.notify_all()


@contextmanager
def operating(fleet: str) -> Iterator[Operator]:
    operator = Operator(fleet)
    try:
        yield operator
    finally:
        operator.close()


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a fleet file, and a profile by which the network takes 0.5 s at speed 1."""
    split = ModelSpec.parse(MODEL).load().split
    each = 0.5 / len(split.operators)
    profile = Profile('d', 2, 'board', 1, tuple(
        OperatorTiming((op.rows,), (each,)) for op in split.operators), 1.0)
    paths = tmp_path / 'fleet.yaml', tmp_path / 'profile.json'
    paths[0].write_text(FLEET)
    paths[1].write_text(profile.to_json())
    return paths


def test_it_plans_by_itself_and_does_as_an_operator_says(
        tmp_path: Path, files: tuple[Path, Path]) -> None:
    name = f'fleet_{secrets.token_hex(4)}'
    request = PlanModel.Request
    with own_domain(tmp_path):
        fleet = NodeFleet(
            MODEL, 'robot', dict.fromkeys(('robot', 'helper', 'box'), 1.0), tmp_path,
            qoe='latency=400ms', fleet_file=str(files[0]), measured=str(files[1]), name=name,
            environment={**os.environ, **transport_environment('air')})
        with operating(name) as operator, running(fleet) as run:
            asker = run.asker(interval=0.2, frames=10_000, silence=3.0)
            operator.wait(lambda: operator.devices() == ('box',))
            assert 'box: ' in operator.state.text and 'Mbit/s' in operator.state.text
            operator.wait(lambda: operator.qoe.frames > 5)
            reported = operator.call(request.TELL, without=['box'])
            assert reported.ok and 'helper' in reported.text and operator.devices() == ('box',)
            assert not operator.call(request.ADAPT, qoe='nonsense').ok
            assert operator.call(request.ADAPT, without=['box']).ok
            operator.wait(lambda: operator.devices() == ('helper',))
            operator.see_frames()
            assert operator.call(request.ADAPT).ok
            operator.wait(lambda: operator.devices() == ('box',))
            operator.see_frames()
            run.children['box'].kill()
            operator.wait(lambda: operator.devices() == ('helper',))
            operator.wait(lambda: operator.qoe.switches >= 3)
            operator.see_frames()
            seen, qoe = run.stop_asking(asker), operator.qoe
    assert [s.inference for s in seen] == list(range(1, len(seen) + 1))
    assert all(s.answered and s.difference < 1e-4 for s in seen)
    assert len({s.epoch for s in seen if s.pipelined}) >= 3
    assert 0 < qoe.frames <= len(seen) and qoe.joules > 0 and qoe.latency > 0
    assert qoe.latency_target == 0.4 and qoe.latency_expected < 0.4
