# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A stranger on the domain: another participant that hears all topics and speaks on all."""
from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
import hashlib
import json
from random import Random
import threading
import time
from typing import Any

import rclpy
from rclpy.executors import ExternalShutdownException, SingleThreadedExecutor
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy

from intradp_ros.core.limits import MAX_BOOK_TEXT, MAX_MODEL_TEXT
from intradp_ros.dds.tensor_context import end_tensor_context, tensor_context
from intradp_ros.dds.transport_profile import transport_in_use
from intradp_ros.msg import ChunkAck, OperatorProfile, ScheduleBook, SessionControl, TensorChunk
from intradp_ros.wire.frames import ControlKind
from intradp_ros.wire.texts import packed, unpacked

K = ControlKind
UP, DOWN = 'offload/chunks_up', 'offload/chunks_down'
CONTROL_UP, CONTROL_DOWN = 'offload/control_up', 'offload/control_down'
PINGS_UP, PINGS_DOWN = 'offload/pings_up', 'offload/pings_down'
ACK_DOWN, BOOK, PROFILE = 'offload/acks_down', 'schedule_book', 'operator_profiles'
RELIABLE = QoSProfile(depth=256)
BEST_EFFORT = QoSProfile(depth=256, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
TOPICS: dict[str, tuple[type, QoSProfile]] = {
    UP: (TensorChunk, RELIABLE), DOWN: (TensorChunk, RELIABLE),
    CONTROL_UP: (SessionControl, RELIABLE), CONTROL_DOWN: (SessionControl, RELIABLE),
    PINGS_UP: (SessionControl, BEST_EFFORT), PINGS_DOWN: (SessionControl, BEST_EFFORT),
    ACK_DOWN: (ChunkAck, BEST_EFFORT),
    BOOK: (ScheduleBook, LATCHED), PROFILE: (OperatorProfile, LATCHED)}
#: Chunks are reliable or not, as the transport has it: so a listener asks for less.
HEARING = dict.fromkeys((UP, DOWN), BEST_EFFORT)
#: What goes over the participant that carries tensors.
SESSION = TOPICS.keys() - {BOOK, PROFILE}


def changed(message: Any, **fields: Any) -> Any:
    """Return a copy of a message with other fields."""
    copy = deepcopy(message)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


@dataclass
class Stranger:
    """Keeps what it heard (the newest by topic, and of control frames by kind), and answers it."""

    random: Random = field(default_factory=lambda: Random(5))
    heard: dict[Any, Any] = field(default_factory=dict)
    shapes: dict[tuple[int, int], TensorChunk] = field(default_factory=dict)
    react: Callable[[Stranger, str, Any], None] = lambda stranger, topic, message: None
    sent: int = 0
    publishers: dict[str, Any] = field(default_factory=dict)
    _own: set[bytes] = field(default_factory=set)

    def open(self, node: Any, topics: Iterable[str]) -> None:
        """Create publishers and subscriptions."""
        for topic in topics:
            kind, qos = TOPICS[topic]
            self.publishers[topic] = node.create_publisher(kind, topic, qos)
            node.create_subscription(kind, topic, lambda m, topic=topic: self._hear(topic, m),
                                     HEARING.get(topic, qos))

    def send(self, topic: str, message: Any) -> None:
        """Publish a message."""
        self.sent += 1
        self._own.add(_name(message))
        self.publishers[topic].publish(message)

    def _hear(self, topic: str, message: Any) -> None:
        if _name(message) in self._own:
            return
        if isinstance(message, SessionControl):
            self.heard[topic, message.kind] = message
        elif not isinstance(message, TensorChunk) or message.inference:
            self.heard[topic] = self.heard[topic, getattr(message, 'role', '')] = message
            if topic == DOWN:
                self.shapes[message.transfer, message.chunk] = message
        self.react(self, topic, message)

    def control(self, kind: ControlKind, **body: Any) -> SessionControl:
        """Return a control frame of the session that goes on."""
        up = self.heard[UP]
        return SessionControl(
            kind=int(kind), session=up.session, server=up.server, epoch=up.epoch,
            inference=up.inference, sequence=self.random.getrandbits(63), body=json.dumps(body))

    def noise(self, size: int) -> array[int]:
        """Return random bytes."""
        return array('B', self.random.randbytes(size))


def _name(message: Any) -> bytes:
    return hashlib.sha256(repr(message).encode()).digest()


@contextmanager
def strangers_node() -> Iterator[Stranger]:
    """Provide a stranger with participants of its own, as the transport has them."""
    context = rclpy.Context()
    rclpy.init(context=context)
    stranger = Stranger()
    with tensor_context(context, transport_in_use()) as tensors:
        of_tensors = rclpy.create_node('stranger_of_tensors', context=tensors)
    node = rclpy.create_node('stranger', context=context)
    stranger.open(of_tensors, SESSION)
    stranger.open(node, TOPICS.keys() - SESSION)
    try:
        with spinning(of_tensors), spinning(node):
            yield stranger
    finally:
        end_tensor_context(tensors, context)
        context.try_shutdown()


@contextmanager
def spinning_alone(make: Callable[[rclpy.Context], Any]) -> Iterator[Any]:
    """Provide what is made of a context of its own, and let a thread spin its `node`."""
    context = rclpy.Context()
    rclpy.init(context=context)
    made = make(context)
    try:
        with spinning(made.node):
            yield made
    finally:
        context.try_shutdown()


@contextmanager
def spinning(node: Any) -> Iterator[None]:
    """Let a thread spin a node, which is destroyed in the end."""
    executor = SingleThreadedExecutor(context=node.context)
    executor.add_node(node)

    def spin() -> None:
        try:
            executor.spin()
        except ExternalShutdownException:
            return

    thread = threading.Thread(target=spin, daemon=True)
    thread.start()
    try:
        yield
    finally:
        executor.shutdown()
        thread.join()
        node.destroy_node()


def false_rows_down(stranger: Stranger, topic: str, message: Any) -> None:
    """Answer the robot's first chunk of an inference before the server can (attack 1)."""
    if topic == UP and message.inference and not message.chunk:
        for known in list(stranger.shapes.values()):
            stranger.send(DOWN, changed(
                known, session=message.session, server=message.server, epoch=message.epoch,
                schedule=message.schedule, inference=message.inference,
                sequence=stranger.random.getrandbits(63),
                data=stranger.noise(len(known.data))))


def false_rows_up(stranger: Stranger, topic: str, message: Any) -> None:
    """Send rows in the robot's name, of the inference at hand and of the next (attack 2)."""
    if topic == UP and message.inference:
        for ahead in (0, 1):
            stranger.send(UP, changed(
                message, inference=message.inference + ahead,
                sequence=stranger.random.getrandbits(63),
                data=stranger.noise(len(message.data))))


def false_controls(stranger: Stranger, topic: str, message: Any) -> None:
    """End, refuse, forget and cancel the session with every inference (attacks 7 and medium)."""
    if topic != UP or not message.inference or message.chunk:
        return
    control = stranger.control
    hello = stranger.heard.get((CONTROL_UP, int(K.HELLO)))
    for frame in (control(K.BYE), control(K.CANCEL), control(K.BOOK, book='x', used=0),
                  *([changed(hello, inference=2**63, sequence=2**62)] if hello else [])):
        stranger.send(CONTROL_UP, frame)
    for frame in (control(K.REFUSE, reason='as if'), control(K.FAILED, reason='as if')):
        stranger.send(CONTROL_DOWN, frame)
    pong = control(K.PONG, robot=1.0, server=2.0, known=False)
    for way in (CONTROL_DOWN, PINGS_DOWN):
        stranger.send(way, pong)


def false_news(stranger: Stranger, topic: str, message: Any) -> None:
    """Report vast times, another clock and the greatest load, with every inference."""
    if topic == UP and message.inference and not message.chunk:
        stranger.send(CONTROL_DOWN, stranger.control(
            K.REPORT, events=[['server', 'compute', 'x', 0.0, 1e9]]))
        stranger.send(PINGS_DOWN, stranger.control(
            K.PONG, robot=time.monotonic(), server=1e15, known=True, load=1000.0))


def old_frames(stranger: Stranger, topic: str, message: Any) -> None:
    """Say everything once more."""
    if topic in (UP, DOWN, CONTROL_UP, CONTROL_DOWN, PINGS_UP, PINGS_DOWN):
        stranger.send(topic, changed(message))


def impossible_rates(stranger: Stranger, topic: str, message: Any) -> None:
    """Acknowledge every chunk of the robot's with a rate that no link has (attack 15)."""
    if topic == UP:
        stranger.send(ACK_DOWN, ChunkAck(
            session=message.session, server=message.server, sequence=message.sequence,
            bytes=len(message.data), received_ns=1, rate=1e300))


def false_books(stranger: Stranger, topic: str, message: Any) -> None:
    """Announce books that nobody can live by (attacks 3, 4 and 6)."""
    if topic != UP or not message.inference or message.chunk:
        return
    good = stranger.heard[BOOK]
    data = json.loads(unpacked(good.book, MAX_BOOK_TEXT))
    without = {**data, 'entries': [e for e in data['entries'] if e['strategy'] != 'local']}
    far = {**data, 'entries': [{**e, 'predicted': 1e5} for e in data['entries']]}
    for text in (json.dumps(without), json.dumps(far), '[' + '[],' * 300_000 + '[]]'):
        stranger.send(BOOK, changed(good, epoch=9, book=packed(text),
                                    sequence=good.sequence + 10**9))


def false_profiles(stranger: Stranger, topic: str, message: Any) -> None:
    """Announce profiles that are too fast, too large, or of no model (attacks 5, 11, 12, 13)."""
    if topic != UP or not message.inference or message.chunk:
        return
    good = stranger.heard[PROFILE]
    profile = json.loads(unpacked(good.profile, MAX_MODEL_TEXT))
    fast = {**profile, 'scale': 1e-5}
    graph = unpacked(good.graph, MAX_MODEL_TEXT).replace('96', str(2**21))
    digest = f'{stranger.random.getrandbits(256):064x}'
    other = {**profile, 'digest': digest}
    for fields in ({'profile': packed(json.dumps(fast)), 'role': 'robot',
                    'name': '/inference_node'},
                   {'graph': packed(graph), 'role': 'server'},
                   {'digest': digest, 'profile': packed(json.dumps(other)), 'role': 'robot'},
                   {'digest': digest, 'profile': packed(json.dumps(other)), 'role': 'server'}):
        stranger.send(PROFILE, changed(good, sequence=good.sequence + 10**9, **fields))


ATTACKS = {attack.__name__: attack for attack in (
    false_rows_down, false_rows_up, false_controls, false_news, old_frames, impossible_rates,
    false_books, false_profiles)}
