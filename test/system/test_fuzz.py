# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A stranger on all topics: nothing crashes or grows, everything is counted, sharing goes on."""
from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
import json
from pathlib import Path
from random import Random
import time
from typing import Any

from node_processes import (
    DENSE,
    Nodes,
    nodes,
    Observer,
    own_domain,
    PATIENT,
    picture,
    QUICK_PLANNER,
    relative_difference,
    unsplit,
)
import pytest
from rclpy.qos import DurabilityPolicy, QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
from sensor_msgs.msg import Image
import small_models
from torch import nn

from intradp_lab.emulation.processes import Child
from intradp_ros.core.limits import MAX_MODEL_TEXT as MOST
from intradp_ros.msg import (
    ChunkAck,
    OperatorProfile,
    ScheduleBook,
    SessionControl,
    TensorChunk,
)
from intradp_ros.nodes.sensors.image_messages import rgb_to_image
from intradp_ros.wire.frames import ControlKind, PROTOCOL
from intradp_ros.wire.texts import packed, unpacked

K = ControlKind
BATCH = 100
#: Batches that no topic's history is too short for.
UNCOUNTED = 5
RELIABLE = QoSProfile(depth=1000)
BEST_EFFORT = QoSProfile(depth=1000, reliability=ReliabilityPolicy.BEST_EFFORT)
LATCHED = QoSProfile(depth=10, durability=DurabilityPolicy.TRANSIENT_LOCAL)
BOMB = packed(' ' * 10**8)  # a text that is too long, packed into 130 kB
#: Topic: type, quality of service, and the node that must count what is malformed.
TOPICS: dict[str, tuple[type, QoSProfile, str]] = {
    'offload/chunks_up': (TensorChunk, RELIABLE, 'offload_node'),
    'offload/control_up': (SessionControl, RELIABLE, 'offload_node'),
    'offload/pings_up': (SessionControl, BEST_EFFORT, 'offload_node'),
    'offload/acks_up': (ChunkAck, BEST_EFFORT, 'offload_node'),
    'offload/chunks_down': (TensorChunk, RELIABLE, 'inference_node'),
    'offload/control_down': (SessionControl, RELIABLE, 'inference_node'),
    'offload/pings_down': (SessionControl, BEST_EFFORT, 'inference_node'),
    'offload/acks_down': (ChunkAck, BEST_EFFORT, 'inference_node'),
    'image': (Image, RELIABLE, 'inference_node'),
    'schedule_book': (ScheduleBook, LATCHED, 'inference_node'),
    'operator_profiles': (OperatorProfile, LATCHED, 'planner_node')}
#: Images must not get lost here, and wait their turn however many come.
ROBOT = {**PATIENT, 'queue_size': 1000, 'mode': 'offload',
         'qos_overrides./image.subscription.reliability': 'reliable',
         'qos_overrides./image.subscription.depth': 1000}


class Stranger:
    """Publishes on all topics of the others, and listens to them."""

    def __init__(self, observer: Observer) -> None:
        self.observer = observer
        self.heard: dict[str, Any] = {}
        self.sent: Counter[str] = Counter()
        node = observer.node
        self.publishers = {}
        for topic, (kind, qos, _) in TOPICS.items():
            self.publishers[topic] = node.create_publisher(kind, topic, qos)
            if topic != 'image':
                node.create_subscription(
                    kind, topic, lambda m, topic=topic: self._hear(topic, m), qos)

    def _hear(self, topic: str, message: Any) -> None:
        with self.observer.changed:
            if isinstance(message, SessionControl):
                self.heard[f'{topic} {message.kind}'] = message
            elif not isinstance(message, TensorChunk) or message.inference:  # no probe
                self.heard.setdefault(topic, message)
            self.observer.changed.notify_all()

    def send(self, topic: str, message: Any) -> None:
        """Publish a message, or bytes."""
        self.publishers[topic].publish(message)
        acknowledgement = isinstance(message, ChunkAck)  # not reliable: some may get lost
        self.sent[f'{TOPICS[topic][2]} rate' if acknowledgement else TOPICS[topic][2]] += 1

    def bystander(self) -> None:
        """Send the robot a chunk of another's session, which is not an error."""
        self.publishers['offload/chunks_down'].publish(
            changed(self.heard['offload/chunks_down'], session=99))


@dataclass
class System:
    """The three nodes, who watches them, and who disturbs them."""

    nodes: Nodes
    observer: Observer
    model: nn.Module
    children: dict[str, Child]
    stranger: Stranger


@pytest.fixture(scope='module')
def system(tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    folder = tmp_path_factory.mktemp('fuzz')
    with own_domain(folder), nodes(folder / 'logs') as running:
        observer = Observer()
        stranger = Stranger(observer)
        children = {'planner_node': running.start('planner_node', QUICK_PLANNER),
                    'offload_node': running.start('offload_node', {'models': [DENSE]}),
                    'inference_node': running.start('inference_node', {'model': DENSE, **ROBOT})}
        system = System(running, observer, small_models.dense(), children, stranger)
        observer.infer_until(picture(0), system.model, lambda s: s.shared)
        yield system
        observer.close()


def resident_mb(child: Child) -> float:
    """Return the memory that a process takes."""
    status = Path(f'/proc/{child.pid}/status').read_text()
    return int(status.split('VmRSS:')[1].split()[0]) / 1024


def changed(message: Any, **fields: Any) -> Any:
    """Return a copy of a message with other fields."""
    copy = deepcopy(message)
    for name, value in fields.items():
        setattr(copy, name, value)
    return copy


def broken_bytes(message: Any, random: Random) -> bytes:
    """Return what cannot be deserialised: cut short, or noise after the first bytes."""
    good = bytes(serialize_message(message))
    if random.random() < 0.5:
        return good[:random.randrange(1, len(good) - 8)]
    return good[:4] + random.randbytes(random.randrange(len(good)))


def bad_chunk(good: TensorChunk, random: Random) -> TensorChunk:
    """Return a genuine chunk of an inference that is over, or one with an impossible field."""
    late = 2**40 + random.randrange(2**40)
    return changed(good, **random.choice([
        {}, {'epoch': random.getrandbits(32)},
        {'inference': late, 'schedule': 10**6}, {'inference': late, 'transfer': 10**6},
        {'inference': late, 'value': 5}, {'inference': late, 'start': 1},
        {'inference': late, 'stop': 2**32 - 1}, {'inference': late, 'start': 2**32 - 1},
        {'inference': late, 'dtype_code': 9}, {'inference': late, 'dtype_bits': 64},
        {'inference': late, 'codec': 3}, {'inference': late, 'count': 2**32 - 1},
        {'inference': late, 'chunk': 10**6}, {'inference': late, 'data': array('B', b'short')},
        {'inference': late, 'data': array('B', bytes(70_000))},
        {'inference': late, 'shape': array('I', [2**32 - 1] * 4)},
        {'inference': late, 'shape': array('I', [1] * 40)},
        {'header': changed(good.header, frame_id='x' * 5000)},
        {'header': changed(good.header, stamp=changed(good.header.stamp, nanosec=2**31))}]))


BAD_BODIES = ['', '{', '[]', '5', 'null', '{"a": NaN}', '{"a": Infinity}', '[' * 5000,
              '{"a":' * 5000, '\x00', '{"a": 1} x', '{"reason": "' + 'x' * 200_000]


def bad_control_up(session: int, random: Random) -> SessionControl:
    """Return a control frame that a server refuses."""
    hello = {'protocol': PROTOCOL, 'version': '', 'digest': 'abc', 'axis': 3}
    kind, body, known = random.choice([
        (random.choice([0, *range(12, 256)]), {}, True),
        (K.HELLO, {**hello, 'protocol': PROTOCOL + 1}, True), (K.HELLO, hello, True),
        (K.HELLO, {**hello, 'digest': [1]}, False), (K.HELLO, {}, False),
        (K.BOOK, {}, True), (K.BOOK, {'book': '{"format": 1}'}, True), (K.BOOK, {}, False),
        (K.CANCEL, {}, True), (K.CANCEL, {}, False), (K.PING, {}, True),
        (K.PING, {'robot': 'x'}, True), (K.BYE, {}, False), (K.REPORT, {'events': 1}, True),
        (K.PONG, {'robot': 1.0}, True), (K.WELCOME, {}, True), (K.FAILED, {}, False)])
    return SessionControl(
        kind=int(kind), session=session if known else random.getrandbits(64) | 2,
        epoch=random.getrandbits(32), inference=2**50 + random.randrange(2**50),
        body=random.choice(BAD_BODIES) if random.random() < 0.2 else json.dumps(body))


def bad_control_down(session: int, random: Random) -> SessionControl:
    """Return a control frame that a robot refuses."""
    kind, body = random.choice([
        (random.choice([0, *range(12, 256)]), {}), (K.HELLO, {}), (K.BOOK, {'book': '{}'}),
        (K.CANCEL, {}), (K.PING, {'robot': 1.0}), (K.BYE, {}), (K.REPORT, {'events': []}),
        (K.FAILED, {'reason': '\n\ud800'}), (K.PONG, {'robot': 1e300, 'server': 0.5}),
        (K.PONG, {'robot': -1e999, 'server': 0.5})])
    text = json.dumps(body).replace('-Infinity', '-1e999')
    return SessionControl(
        kind=int(kind), session=session, epoch=random.getrandbits(32),
        inference=2**50 + random.randrange(2**50),
        body=random.choice(BAD_BODIES) if random.random() < 0.2 else text)


def bad_image(random: Random) -> Image:
    """Return an image whose numbers do not fit."""
    return changed(rgb_to_image(picture(1, 8, 8)), **random.choice([
        {'encoding': 'mono99'}, {'encoding': 'x' * 500}, {'height': 2**32 - 1}, {'width': 0},
        {'width': 2**32 - 1}, {'step': 1}, {'height': 0}, {'data': array('B', b'12')},
        {'height': 0, 'step': 0, 'data': array('B')}]))


def bad_messages(stranger: Stranger, random: Random) -> Iterator[tuple[str, Any]]:
    """Yield malformed messages to robot and server, each with its topic."""
    session = stranger.heard['offload/chunks_up'].session
    up, down = stranger.heard['offload/chunks_up'], stranger.heard['offload/chunks_down']
    ping = stranger.heard[f'offload/pings_up {int(K.PING)}']
    whole = {'offload/chunks_up': up, 'offload/chunks_down': down, 'offload/control_up': ping,
             'offload/control_down': ping, 'image': rgb_to_image(picture(1, 8, 8))}
    make: dict[str, Callable[[], Any]] = {
        'offload/chunks_up': lambda: changed(
            bad_chunk(up, random), session=random.choice([session, random.getrandbits(64)])),
        'offload/chunks_down': lambda: bad_chunk(down, random),
        'offload/control_up': lambda: bad_control_up(session, random),
        'offload/control_down': lambda: bad_control_down(session, random),
        'image': lambda: bad_image(random)}
    while True:
        topic = random.choice([*make, 'offload/acks_up', 'offload/acks_down'])
        if topic not in make:
            rate = random.choice([-1.0, float('nan'), float('inf'), float('-inf')])
            yield topic, ChunkAck(session=session, sequence=random.getrandbits(64), rate=rate)
        elif random.random() < 0.3:
            yield topic, broken_bytes(whole[topic], random)
        else:
            yield topic, make[topic]()


def in_batches(system: System, count: int, random: Random) -> None:
    """Send malformed messages no faster than they are handled, so that none is overwritten."""
    stranger = system.stranger
    messages = bad_messages(stranger, random)
    for batch in range(1, count // BATCH + 1):
        for _, (topic, message) in zip(range(BATCH), messages):
            stranger.send(topic, message)
        stranger.bystander()
        time.sleep(0.05)
        if batch % UNCOUNTED == 0:  # chunks overtake what comes on other topics
            for node in ('offload_node', 'inference_node'):
                all_counted(system, node)


def bad_book(good: ScheduleBook, random: Random) -> ScheduleBook:
    """Return a book for the robot's model that cannot be used."""
    data = json.loads(unpacked(good.book, MOST))
    entry = data['entries'][random.randrange(len(data['entries']))]
    random.choice([
        lambda: entry.update(mbps=random.choice([0, -1, 1e999, 'x', None])),
        lambda: entry.update(predicted=-1.0), lambda: entry.pop('partition'),
        lambda: entry.update(partition=[]), lambda: entry['partition']['stages'].append({}),
        lambda: entry['partition']['stages'][0].update(share=1.5),
        lambda: entry['partition']['stages'][0].update(stop=10**9),
        lambda: entry['partition']['stages'][-1].update(stop=1e999),
        lambda: entry['partition']['stages'][0].update(robot_bands=10**6),
        lambda: entry['partition'].update(encodings=[[0, 'gzip']]),
        lambda: entry['partition'].update(encodings=[[10**9, 'zstd']]),
        lambda: entry['partition'].update(encodings=[[0, 'int8']]),
        lambda: data.update(format='other'), lambda: data.update(digest='other'),
        lambda: data.update(entries=[]),
        lambda: data.update(entries=data['entries'] * (1 + 1000 // len(data['entries']))),
        lambda: data.update(axis='x')])()
    text = random.choice(['', '[' * 10**5, json.dumps(data)[:-5]]) if random.random() < 0.2 \
        else json.dumps(data)
    unpackable = [text, good.book[:-9], BOMB]
    return changed(good, book=random.choice(unpackable) if random.random() < 0.2 else packed(text))


def bad_profile(good: OperatorProfile, random: Random) -> OperatorProfile:
    """Return a profile that cannot be used."""
    data, graph = json.loads(unpacked(good.profile, MOST)), unpacked(good.graph, MOST)
    random.choice([
        lambda: data.pop('timings'), lambda: data.update(timings=data['timings'][1:]),
        lambda: data.update(axis=1e999), lambda: data.update(scale=0),
        lambda: data['timings'][0].update(rows=[3, 2, 1]),
        lambda: data['timings'][0].update(seconds=[-1.0]), lambda: data.update(digest='x')])()
    return changed(good, **random.choice([
        {'role': 'x'}, {'digest': f'{random.getrandbits(200):x}'},
        {'profile': packed(json.dumps(data))}, {'graph': ''}, {'graph': packed('[' * 10**5)},
        {'graph': good.graph[:-9]},
        {'graph': packed(graph[:-9])}, {'graph': packed(graph.replace('aten.', 'os.'))},
        {'graph': BOMB}, {'profile': ''}]))


def books_and_profiles(system: System, count: int, random: Random) -> None:
    """Send them few at a time: their history is short, and what it overwrites is lost."""
    stranger = system.stranger
    kinds = {'schedule_book': bad_book, 'operator_profiles': bad_profile}
    for _ in range(count // 8):
        for topic, bad in kinds.items():
            good = stranger.heard[topic]
            for _ in range(8):
                broken = random.random() < 0.2
                stranger.send(topic, broken_bytes(good, random) if broken else bad(good, random))
                # The server hears profiles too: whether another speaks in its name.
                stranger.sent['offload_node'] += broken and topic == 'operator_profiles'
        for topic in kinds:
            all_counted(system, TOPICS[topic][2])


def bombs(system: System) -> None:
    """
    Send texts of which a part is unpacked, some at once, in every field that holds one.

    What that takes, 16 MB in the planner, the allocator keeps for the next ones.
    """
    for topic, name in (('schedule_book', 'book'), ('operator_profiles', 'profile'),
                        ('operator_profiles', 'graph')):
        for _ in range(8):
            system.stranger.send(topic, changed(system.stranger.heard[topic], **{name: BOMB}))
        all_counted(system, TOPICS[topic][2])


def bad_pings(system: System, random: Random) -> None:
    """Send few at a time: what a reader has no room for is lost."""
    stranger = system.stranger
    session = stranger.heard['offload/chunks_up'].session
    for topic, bad in (('offload/pings_up', bad_control_up),
                       ('offload/pings_down', bad_control_down)):
        for _ in range(16):
            stranger.send(topic, bad(session, random))
        all_counted(system, TOPICS[topic][2])


def all_counted(system: System, node: str) -> None:
    """
    Wait until a node has counted what was sent to it, all of it and no more.

    A server also counts those of the planner's profiles that are in its own name.
    """
    observer, sent, rate = system.observer, system.stranger.sent, 'rejected_rate'
    wanted = sent[node]

    def others() -> int:
        status = observer.status(node)
        own = status.get('rejected_profile', 0) if node == 'offload_node' else 0
        return observer.rejected(node) - int(status.get(rate, 0)) - int(own)

    try:
        observer.wait(lambda: others() >= wanted, f'{wanted} rejections of {node}', 20)
    except AssertionError as error:
        raise AssertionError(f'{error}: {observer.status(node)}') from None
    assert others() == wanted
    assert int(observer.status(node).get(rate, 0)) >= 0.9 * sent[f'{node} rate']


def test_ten_thousand_malformed_messages(system: System) -> None:
    """All are counted, memory does not grow, and inferences are shared as before."""
    stranger, observer, random = system.stranger, system.observer, Random(11)
    in_batches(system, 2000, random)
    bad_pings(system, random)
    books_and_profiles(system, 8, random)
    for _ in range(3):
        bombs(system)
    before = {name: resident_mb(child) for name, child in system.children.items()}
    in_batches(system, 10_000, random)
    books_and_profiles(system, 32, random)
    for name, child in system.children.items():
        assert child.returncode is None
        all_counted(system, name)
        grown = resident_mb(child) - before[name]
        assert grown < 16, f'{name} has grown by {grown:.1f} MB'
    assert int(observer.status('inference_node')['frames_of_other_sessions']) > 100
    stats = observer.infer_until(picture(1), system.model, lambda s: s.shared)
    assert stats.rejected >= stranger.sent['inference_node']


def plausible(heard: dict[str, Any], newest: int) -> list[tuple[str, Any]]:
    """Return messages that could be genuine, and disturb: sessions, cancellations, replays."""
    up, down = heard['offload/chunks_up'], heard['offload/chunks_down']
    hello = heard[f'offload/control_up {int(K.HELLO)}']

    def control(kind: ControlKind, **body: Any) -> SessionControl:
        return SessionControl(kind=int(kind), session=up.session, epoch=up.epoch,
                              inference=newest + 1, body=json.dumps(body))

    return [
        ('offload/control_up', changed(hello, session=2**62)),
        ('offload/control_up', changed(hello, inference=2**63)),
        ('offload/control_up', control(K.BYE)), ('offload/control_up', control(K.CANCEL)),
        ('offload/control_up', heard[f'offload/control_up {int(K.BOOK)}']),
        ('offload/chunks_up', changed(up, inference=2**63)), ('offload/chunks_up', up),
        ('offload/chunks_up', changed(up, inference=newest + 2)), ('offload/chunks_down', down),
        ('offload/control_down', control(K.FAILED, reason='as if')),
        ('offload/control_down', control(K.REFUSE, reason='as if')),
        ('offload/control_down', control(K.BOOK_READY)),
        ('offload/control_down', control(K.WELCOME)),
        ('offload/pings_down', control(K.PONG, robot=1.0, server=2.0, known=False)),
        ('offload/control_down', control(K.REPORT, events=[['a', 'b', 'c', 0.0, 1.0]]))]


def test_sharing_survives_what_could_be_genuine(system: System) -> None:
    """Each comes with a frame, which is answered, exact; then the server takes part again."""
    stranger, observer = system.stranger, system.observer
    wanted = unsplit(system.model, picture(2))
    for which in range(len(plausible(stranger.heard, 0))):
        stats = observer.infer_until(picture(2), system.model, lambda s: s.shared)
        topic, message = plausible(stranger.heard, stats.inference)[which]
        number = observer.publish(picture(2))
        stranger.send(topic, message)
        result, _ = observer.answer(number)
        assert relative_difference(result, wanted) <= 1e-4
    observer.infer_until(picture(2), system.model, lambda s: s.shared)
    assert all(child.returncode is None for child in system.children.values())
