# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A stranger in a process of its own, without a key and with the middleware's own settings.

He has a reader or a writer of every topic that others publish.  `stalls` reads reliably, keeps all
and takes nothing; `repeats` says again what he heard, as it was, with bytes changed, or cut off.
"""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
import os
from pathlib import Path
import random
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, HistoryPolicy, QoSProfile, ReliabilityPolicy

STALLS, REPEATS = 'stalls', 'repeats'
#: What no node of this package reads, or anybody may say, with a key, too.
_OPEN = ('/rosout', '/parameter_events', '/image', '/result', '/diagnostics', '/stats')
_KEPT, _LOOKS, _PAUSE = 300, 12, 7e-4


class _Everywhere:
    """Endpoints of all topics."""

    def __init__(self, node: Node, how: str) -> None:
        self._node, self._how, self._random = node, how, random.Random(3)
        self.heard: dict[str, list[bytes]] = {}
        self._said: set[int] = set()
        self._publishers: dict[str, Any] = {}

    def look(self) -> None:
        """Join the topics that are new."""
        for topic, kinds in self._node.get_topic_names_and_types():
            told = [found.qos_profile for found in self._node.get_publishers_info_by_topic(topic)
                    if found.node_name != self._node.get_name()]
            if topic in self.heard or not told or self._how == REPEATS and topic.endswith(_OPEN):
                continue
            kind = _kind(kinds[0])
            durability = min((found.durability for found in told), key=lambda one: (
                one is DurabilityPolicy.TRANSIENT_LOCAL))
            best_effort = any(found.reliability is ReliabilityPolicy.BEST_EFFORT for found in told)
            self.heard[topic] = []
            if self._how == STALLS:
                self._node.create_subscription(kind, topic, print, QoSProfile(
                    depth=1, history=HistoryPolicy.KEEP_ALL, durability=durability,
                    reliability=ReliabilityPolicy.BEST_EFFORT if best_effort
                    else ReliabilityPolicy.RELIABLE))
                continue
            self._publishers[topic] = self._node.create_publisher(
                kind, topic, QoSProfile(depth=100, durability=durability))
            self._node.create_subscription(
                kind, topic, lambda data, topic=topic: self._hear(topic, data),
                QoSProfile(depth=100, reliability=ReliabilityPolicy.BEST_EFFORT), raw=True)

    def _hear(self, topic: str, data: bytes) -> None:
        kept = self.heard[topic]
        if hash(data) not in self._said:
            if len(kept) >= _KEPT:
                kept.pop(self._random.randrange(_KEPT))
            kept.append(data)

    def repeat(self) -> bool:
        """Say one message again; return whether there was any."""
        topic = self._random.choice(sorted(self.heard))
        kept, draw = self.heard[topic], self._random.random()
        if not kept:
            return False
        data = bytearray(self._random.choice(kept))
        if draw < 0.3 and len(data) > 4:
            data[self._random.randrange(4, len(data))] = self._random.randrange(256)
        elif draw < 0.4:
            del data[self._random.randrange(len(data)):]
        self._said.add(hash(bytes(data)))
        self._publishers[topic].publish(bytes(data))
        return True


def _kind(name: str) -> Any:
    """Return the type of a topic; that of an action's feedback has no name of its own."""
    package, room, name = name.split('/')
    action, feedback, _ = name.partition('_FeedbackMessage')
    found = getattr(import_module(f'{package}.{room}'), action)
    return found.Impl.FeedbackMessage if feedback else found


def _main(how: str) -> None:
    rclpy.init()
    node = rclpy.create_node(f'stranger_who_{how}')
    everywhere = _Everywhere(node, how)
    if how == REPEATS:
        threading.Thread(target=rclpy.spin, args=(node,), daemon=True).start()
    for _ in range(_LOOKS):
        everywhere.look()
        time.sleep(0.25)
    print(len(everywhere.heard), flush=True)
    said, looked = 0, time.monotonic()
    while how == STALLS:
        time.sleep(1.0)
    while True:
        said += everywhere.repeat()
        time.sleep(_PAUSE)
        if time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            everywhere.look()
            print(said, flush=True)


@contextmanager
def stranger_who(how: str) -> Iterator[Callable[[], int]]:
    """Run a stranger who knows all topics; yield what returns how often he spoke."""
    own = {name: value for name, value in os.environ.items()
           if name != 'FASTDDS_DEFAULT_PROFILES_FILE'}
    with subprocess.Popen([sys.executable, __file__, how], stdout=subprocess.PIPE, text=True,
                          stderr=subprocess.DEVNULL, env=own) as process:
        assert process.stdout is not None
        lines, said = process.stdout, [0]

        def count() -> None:
            for line in lines:
                said[0] = int(line)
        counting = threading.Thread(target=count, daemon=True)
        try:
            assert int(lines.readline()) > 3
            if how == STALLS:
                process.send_signal(signal.SIGSTOP)
            counting.start()
            yield lambda: said[0]
        finally:
            process.kill()
            if counting.ident:
                counting.join()


def resident(processes: Mapping[str, Any]) -> dict[str, float]:
    """Return the MB that processes take."""
    return {name: int(Path(f'/proc/{child.pid}/status').read_text().split('VmRSS:')[1].split()[0])
            / 1024 for name, child in processes.items()}


if __name__ == '__main__':
    _main(sys.argv[1])
