# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A fleet with a key over DDS, and a stranger who hears all, says it again, and forges.

All that it says is rejected, counted by cause and logged now and then: frames stay exact and
whole, devices go on to compute them together by the same plan, a device that dies is missed
although its heartbeats are replayed, and the others compute together again.

It takes the transport that robots have.  With Fast DDS's own default, shared memory, what waits
for the device that died holds up the others on this machine: for up to half a minute.
"""
from __future__ import annotations

from array import array
from collections import Counter, deque
from contextlib import closing
from copy import deepcopy
from itertools import combinations
from pathlib import Path
import random
import threading
from typing import Any

from node_processes import Observer, own_domain
import rclpy
from rclpy.context import Context
from stranger import spinning_alone

from intradp_lab.fleet.node_fleet import COORDINATOR, NodeFleet, running
from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.qos import chunk_qos, control_qos
from intradp_ros.dds.sealer import Sealer
from intradp_ros.msg import SessionControl, TensorChunk
from intradp_ros.wire.frames import ControlKind

MODEL = 'small_models:dense 1x3x64x96 uint8'
EXACT = 1e-4
HIGHEST = 2**62 - 1
#: Of each topic the stranger keeps so many of the first messages, and of the last ones.
KEPT = 100
COMMANDS = {ControlKind.CLAIM: '{"priority": 9}', ControlKind.BYE: '{}',
            ControlKind.HEARTBEAT: f'{{"term": {HIGHEST}}}', ControlKind.PREPARE: '{"plan": {}}',
            ControlKind.COMMIT: '{"boundary": 1}', ControlKind.ABORT: '{}'}


class Stranger:
    """Says again what it hears, and the like without a seal or with another fleet's."""

    def __init__(self, context: Context, fleet: str, names: str) -> None:
        self.node = rclpy.create_node('stranger', context=context)
        self.sent, self.active, self.random = Counter[str](), threading.Event(), random.Random(1)
        self._said: set[tuple[str, int, bytes]] = set()
        self._publishers: dict[str, Any] = {}
        self._heard: dict[str, tuple[list[Any], deque[Any]]] = {}
        self._sealers = {}
        for first, second in combinations(sorted([*names, COORDINATOR]), 2):
            for way in ('up', 'down'):
                for kind, name, qos in ((TensorChunk, 'chunks', chunk_qos(True)),
                                        (SessionControl, 'control', control_qos())):
                    # It listens without asking for repetitions: to flood a fleet is not the point.
                    topic = f'{fleet}/{first}/{second}/{name}_{way}'
                    self._publishers[topic] = self.node.create_publisher(kind, topic, qos)
                    self._heard[topic] = [], deque(maxlen=KEPT)
                    self._sealers[topic] = Sealer(SharedKey.generate(), way, way)
                    self.node.create_subscription(
                        kind, topic, lambda m, t=topic: self._hear(t, m), chunk_qos(False))
        self.node.create_timer(0.2, self._attack)

    def _say(self, cause: str, topic: str, message: Any) -> None:
        self._said.add((topic, message.sequence, bytes(message.mac)))
        self._publishers[topic].publish(message)
        self.sent[cause] += 1

    def _hear(self, topic: str, message: Any) -> None:
        if (topic, message.sequence, bytes(message.mac)) in self._said:
            return
        first, last = self._heard[topic]
        (last if len(first) >= KEPT else first).append(message)
        if self.active.is_set() and self.random.random() < 0.3:
            self._forge(topic, message)

    def _forge(self, topic: str, message: Any) -> None:
        """Say the like ahead of time: with the seal that it had, without, and with another's."""
        for ahead, seal in enumerate((None, array('B'), self._sealers[topic])):
            false = deepcopy(message)
            false.inference += ahead
            false.sequence += 10**6 + ahead
            if isinstance(false, TensorChunk):
                false.data = array('B', bytes(255 - b for b in bytes(message.data)))
            if isinstance(seal, Sealer):
                seal.seal(false)
            elif seal is not None:
                false.mac = seal
            self._say('unsealed' if not len(false.mac) else 'forged', topic, false)

    def _attack(self) -> None:
        if not self.active.is_set():
            return
        for topic, (first, last) in self._heard.items():
            heard = [*first, *last]
            if heard:
                self._say('replayed', topic, self.random.choice(heard))
            if 'control' in topic and last:
                for kind, body in COMMANDS.items():
                    false = SessionControl(kind=int(kind), session=HIGHEST, server=last[-1].server,
                                           sequence=10**9 + self.sent.total(), body=body)
                    self._say('unsealed', topic, false)
                    self._say('forged', topic, self._sealers[topic].seal(deepcopy(false)))


def test_with_a_key_nothing_of_a_stranger_counts(tmp_path: Path) -> None:
    SharedKey.generate().save(tmp_path / 'key')
    with own_domain(tmp_path, 'udp', local=True), running(NodeFleet(
            MODEL, 'a', dict.fromkeys('abc', 1.0), tmp_path, 'a,b,c',
            key_file=str(tmp_path / 'key'))) as run, \
            spinning_alone(lambda context: Stranger(context, run.fleet.name, 'abc')) as attack, \
            closing(Observer()) as observer:
        asker = run.asker(interval=0.2, frames=10_000, silence=20.0)
        run.wait_for_plan(asker, 'a, b, c')
        threading.Event().wait(1.0)
        attack.active.set()
        threading.Event().wait(4.0)
        for name in ('b', 'c', COORDINATOR):
            observer.wait(lambda n=name: {'rejected_forged', 'rejected_unsealed'} <= set(
                observer.status(n)), f'counts of {name}')
            assert observer.status(name)['authenticated'] == 'True'
        observer.wait(lambda: any('rejected_replayed' in observer.status(n)
                                  for n in ('b', 'c', COORDINATOR)), 'a recording')
        mark = len(asker.output())
        run.children['b'].kill()
        run.wait_for_plan(asker, 'a, c', mark)
        threading.Event().wait(5.0)  # while the attack goes on
        attack.active.clear()
        seen = run.stop_asking(asker)
        logged = {name: child.output().count('rejected (') for name, child in run.children.items()}
        assert all(run.children[name].returncode is None for name in ('c', COORDINATOR))
    assert min(attack.sent[cause] for cause in ('forged', 'unsealed', 'replayed')) > 30
    assert all(s.answered and s.difference < EXACT for s in seen)
    assert [s.inference for s in seen] == list(range(1, len(seen) + 1))
    assert sum(s.pipelined for s in seen[-10:]) > 5, [s.reason for s in seen[-10:]]
    attacked = [s for s in seen if 1.0 < s.asked < 4.0]  # while all are there
    assert sum(s.pipelined and s.epoch == seen[0].epoch for s in attacked) >= 0.9 * len(attacked)
    assert len(attacked) > 5
    assert all(count < 80 < attack.sent.total() / 4 for count in logged.values()), logged
    print(f'{dict(attack.sent)}: {len(seen)} frames exact, {sum(not s.pipelined for s in seen)} '
          f'finished alone; lines in logs: {logged}')
