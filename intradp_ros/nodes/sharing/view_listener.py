# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
Listens to what nodes publish anyway: a child of ``intradp view``, while somebody looks.

It asks nobody for anything: readers are best-effort but for what is latched, the newest messages
are taken ten times a second, and a topic that costs too much is left alone for a while.
"""
from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
import json
import math
import time
from typing import Any

from diagnostic_msgs.msg import DiagnosticArray
import rclpy
from rclpy.node import Node
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import deserialize_message
from sensor_msgs.msg import Image

from intradp_ros.core.child_process import ChildSide
from intradp_ros.msg import (
    DeviceState,
    FleetQoe,
    FleetState,
    InferenceStats,
    InferenceTimeline,
    LinkState,
    ScheduleBook,
    SharingEvent,
)
from intradp_ros.nodes.common.plain_messages import PICTURE_TOPICS, plain, small_png
from intradp_ros.nodes.common.unused_overrides import NO_LOG_FILE

#: Seconds between two looks for messages, and for topics.
PERIOD, SEARCH = 0.1, 0.5
#: Topics that are listened to; messages of one that are taken at a look; bytes of a message.
MOST_TOPICS, MOST_TAKEN, MOST_BYTES = 256, 20, 8 << 20
#: Share of a core above which the dearest topic is left alone: at least so many seconds, and so
#: long that it costs no more than another share in the long run.
SHARE, MUTED, LASTING = 0.08, 10.0, 0.04
#: Seconds of processor time that starting may take before shares are counted.
SETTLING = 3.0
#: Bytes a second of what others measure or send only for us: pictures and timelines.
BUDGET = 10_000
_NEWEST = QoSProfile(depth=MOST_TAKEN, reliability=ReliabilityPolicy.BEST_EFFORT)
_LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
_KINDS: dict[str, tuple[type, QoSProfile]] = {
    f'intradp_ros/msg/{kind.__name__}': (kind, qos) for kind, qos in (
        (InferenceStats, _NEWEST), (LinkState, _NEWEST), (FleetQoe, _NEWEST),
        (SharingEvent, _LATCHED), (DeviceState, _LATCHED), (FleetState, _LATCHED),
        (ScheduleBook, _LATCHED))} | {
    'diagnostic_msgs/msg/DiagnosticArray': (DiagnosticArray, _NEWEST)}
#: What is listened to only on a wish, and for one message at a time.
_WISHED: dict[str, tuple[str, type]] = {
    'intradp_ros/msg/InferenceTimeline': ('timelines', InferenceTimeline),
    'sensor_msgs/msg/Image': ('pictures', Image)}

Observation = tuple[str, str, float, Any]


@dataclass
class _Heard:
    kind: type
    subscription: Any
    once: bool
    taken: int = 0
    nbytes: int = 0


class ViewListener:
    """Readers of all topics that a view is made of; one thread calls it."""

    def __init__(self, node: Node, clock: Callable[[], float] = time.monotonic,
                 used: Callable[[], float] = time.process_time) -> None:
        self.node, self.wishes = node, frozenset[str]()
        self._clock, self._used = clock, used
        self._heard: dict[str, _Heard] = {}
        self._rest: dict[str, float] = {}
        self._searched, self._began = -math.inf, clock()
        self._looked, self._spent = clock(), used()

    def look(self) -> Iterator[Observation]:
        """Yield what has come since the last look."""
        now = self._clock()
        if now - self._searched >= SEARCH:
            self._searched = now
            self._search(now)
        for topic, heard in list(self._heard.items()):
            yield from self._take(topic, heard, now)
        if now - self._looked >= 1.0:
            yield from self._weigh(now)

    def _search(self, now: float) -> None:
        there = dict(self.node.get_topic_names_and_types())
        for topic in [each for each in self._heard if each not in there]:
            self._drop(topic)
        for topic, kinds in there.items():
            if topic in self._heard or len(self._heard) >= MOST_TOPICS or \
                    now < self._rest.get(topic, 0.0):
                continue
            if known := next((_KINDS[kind] for kind in kinds if kind in _KINDS), None):
                self._listen(topic, *known, once=False)
            elif wished := self._wished(topic, kinds):
                self._listen(topic, wished, _NEWEST, once=True)

    def _wished(self, topic: str, kinds: list[str]) -> type | None:
        """Return the messages of a topic that somebody wishes to see."""
        name, kind = next((_WISHED[kind] for kind in kinds if kind in _WISHED), ('', None))
        return kind if name in self.wishes and (
            kind is not Image or topic.endswith(PICTURE_TOPICS)) else None

    def _listen(self, topic: str, kind: type, qos: QoSProfile, once: bool) -> None:
        self._heard[topic] = _Heard(kind, self.node.create_subscription(
            kind, topic, lambda message: None, qos, raw=True), once)

    def _drop(self, topic: str) -> None:
        self.node.destroy_subscription(self._heard.pop(topic).subscription)

    def _take(self, topic: str, heard: _Heard, now: float) -> Iterator[Observation]:
        handle, found = heard.subscription.handle, list[bytes]()
        with handle:
            while len(found) < MOST_TAKEN and (one := handle.take_message(heard.kind, True)):
                found.append(one[0])
        heard.taken += len(found)
        heard.nbytes += (nbytes := sum(map(len, found)))
        if heard.once and found:  # more may have been sent until it is left again
            self._rest[topic] = now + nbytes / BUDGET
            self._drop(topic)
            del found[:-1]
        for data in found:
            if len(data) <= MOST_BYTES and (read := _read(heard.kind, data)) is not None:
                yield heard.kind.__name__, topic, time.time(), read

    def _weigh(self, now: float) -> Iterator[Observation]:
        """Leave the topic alone that costs most, where all together cost too much."""
        spent, past = self._used() - self._spent, now - self._looked
        self._looked, self._spent = now, self._spent + spent
        weights = Counter({topic: 1000 * heard.taken + heard.nbytes
                           for topic, heard in self._heard.items()})
        for heard in self._heard.values():
            heard.taken = heard.nbytes = 0
        if spent > SHARE * past and now - self._began > SETTLING and weights:
            topic, weight = weights.most_common(1)[0]
            if weight > 20_000:
                self._rest[topic] = now + (rest := max(MUTED, spent / LASTING))
                self._drop(topic)
                yield 'Notice', topic, time.time(), {
                    'text': f'{topic} sends more than this page looks at: it is listened to for '
                            f'a moment every {rest:.0f} s'}


def _read(kind: type, data: bytes) -> Any:
    """Return a message as plain data, None for one that is none."""
    try:
        message: Any = deserialize_message(data, kind)
        return {'png': small_png(message).hex()} if kind is Image else plain(message)
    except Exception:  # noqa: BLE001 - rclpy has no common class for what strangers send
        return None


def main() -> None:
    """Send what is heard to the parent until it is gone."""
    side = ChildSide()
    rclpy.init(args=NO_LOG_FILE)
    listener = ViewListener(Node('intradp_view', start_parameter_services=False))

    def wish(message: bytearray) -> None:
        listener.wishes = frozenset(map(str, json.loads(message)))

    side.listen(wish)
    while rclpy.ok():
        if found := list(listener.look()):
            side.send(json.dumps(found).encode())
        time.sleep(PERIOD)


if __name__ == '__main__':
    main()
