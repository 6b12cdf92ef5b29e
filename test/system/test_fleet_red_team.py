# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A fleet without a key over DDS, and a stranger who sends plain ROS messages in its names."""
from __future__ import annotations

from array import array
from copy import deepcopy
from itertools import combinations
from pathlib import Path
import threading
from typing import Any

from node_processes import own_domain
import rclpy
from rclpy.context import Context
from stranger import spinning_alone

from intradp_lab.fleet.node_fleet import COORDINATOR, NodeFleet, running
from intradp_ros.dds.qos import chunk_qos, control_qos
from intradp_ros.msg import SessionControl, TensorChunk
from intradp_ros.wire.frames import ControlKind

MODEL = 'small_models:dense 1x3x64x96 uint8'
EXACT = 1e-4
HIGHEST = 2**62 - 1


class Stranger:
    """Says what it hears again, altered and for what comes next, and claims the highest term."""

    def __init__(self, context: Context, fleet: str, names: str) -> None:
        self.node = rclpy.create_node('stranger', context=context)
        self.sent, self.active, self._chunks = 0, threading.Event(), {}
        for first, second in combinations(sorted(names), 2):
            for way in ('up', 'down'):
                topic = f'{fleet}/{first}/{second}/chunks_{way}'
                self._chunks[topic] = self.node.create_publisher(
                    TensorChunk, topic, chunk_qos(True))
                self.node.create_subscription(
                    TensorChunk, topic, lambda m, t=topic: self._alter(t, m), chunk_qos(True))
        self._controls = [self.node.create_publisher(
            SessionControl, f'{fleet}/{first}/{second}/control_{way}', control_qos())
            for name in names for first, second in (sorted((name, COORDINATOR)),)
            for way in ('up', 'down')]
        self.node.create_timer(0.2, self._claim)

    def _alter(self, topic: str, message: TensorChunk) -> None:
        if not self.active.is_set() or message.header.frame_id == 'stranger':
            return
        for ahead in (0, 1, 2):
            false: Any = deepcopy(message)
            false.header.frame_id = 'stranger'
            false.inference += ahead
            false.sequence += 10**6 + ahead
            false.data = array('B', bytes(255 - b for b in bytes(message.data)))
            self._chunks[topic].publish(false)
            self.sent += 1

    def _claim(self) -> None:
        if self.active.is_set():
            for publisher in self._controls:
                for kind, body in ((ControlKind.CLAIM, '{"priority": 9}'), (ControlKind.BYE, '{}'),
                                   (ControlKind.HEARTBEAT, f'{{"term": {HIGHEST}}}')):
                    publisher.publish(SessionControl(kind=int(kind), session=HIGHEST, body=body))


def test_a_stranger_without_a_key_falsifies_nothing_and_ends_nothing(tmp_path: Path) -> None:
    with own_domain(tmp_path), running(NodeFleet(
            MODEL, 'a', dict.fromkeys('abc', 1.0), tmp_path, 'a,b,c')) as run, \
            spinning_alone(lambda context: Stranger(context, run.fleet.name, 'abc')) as attack:
        asker = run.asker(interval=0.1, frames=10_000)
        run.wait_for_plan(asker, 'a, b, c')
        threading.Event().wait(2.0)
        attack.active.set()
        threading.Event().wait(6.0)
        attack.active.clear()
        sent = attack.sent
        threading.Event().wait(6.0)
        asker.wait_for_line('rejected', 10.0)
        coordinator = run.children[COORDINATOR]
        run.children['b'].kill()
        mark = len(asker.output())
        run.wait_for_plan(asker, 'a, c', mark)
        threading.Event().wait(1.0)
        seen = run.stop_asking(asker)
        assert coordinator.returncode is None
    assert sent > 30
    assert all(s.answered and s.difference < EXACT for s in seen)
    assert [s.inference for s in seen] == list(range(1, len(seen) + 1))
    assert any(s.pipelined for s in seen[-5:]), [s.reason for s in seen[-5:]]
    print(f'{sent} false chunks: {len(seen)} frames exact, '
          f'{sum(not s.pipelined for s in seen)} finished alone')
