# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The channel over real DDS, with the other side in a process of its own."""
from __future__ import annotations

from collections.abc import Iterator
from random import Random
import threading
import time
from typing import Any

from echo_robot import cut, PATIENCE, peer, Robot
import pytest
import rclpy
from rclpy.executors import SingleThreadedExecutor
from rclpy.parameter import Parameter
from rclpy.qos import QoSProfile, ReliabilityPolicy
from rclpy.serialization import serialize_message
import torch
from waiting import wait_for

from intradp_ros.core.shared_key import SharedKey
from intradp_ros.dds.convert import chunk_to_message, control_to_message
from intradp_ros.dds.dds_channel import DdsChannel
from intradp_ros.msg import ChunkAck, SessionControl, TensorChunk
from intradp_ros.wire.frames import Control, ControlKind, Frame, MalformedFrameError


@pytest.fixture
def robot(context: rclpy.Context) -> Iterator[Robot]:
    """Return a robot's channel."""
    robot = Robot(context)
    yield robot
    robot.channel.close()


def test_tensors_cross_and_return_unchanged(robot: Robot) -> None:
    """Megabytes each way arrive bit by bit; the link is measured; nothing is rejected."""
    with peer():
        robot.ping()
        for inference in range(4):
            tensor = torch.rand(2_000_000 + 7 * inference)
            assert torch.equal(robot.echo(tensor, inference), tensor + 1)
        report = robot.channel.report()
        assert report.send_rate > 0 and report.receive_rate > 0
        assert 0 < report.round_trip < 10 and report.age < PATIENCE
        assert report.bytes_sent == sum(4 * (2_000_000 + 7 * n) for n in range(4))
        assert report.bytes_received == report.bytes_sent
        assert robot.channel.rejected == {}


def test_a_peer_that_is_absent_killed_and_restarted(robot: Robot) -> None:
    """Sending never blocks, and works again with a new peer without anything being done."""
    tensor = torch.rand(500_000)
    start = time.monotonic()
    robot.send(tensor, 100)
    robot.channel.abandon(robot.session, 100)
    with peer():
        robot.ping()
        assert torch.equal(robot.echo(tensor, 101), tensor + 1)
        robot.send(tensor, 102)
    robot.send(tensor, 103)
    robot.channel.abandon(robot.session, 102)
    robot.channel.abandon(robot.session, 103)
    with peer():
        robot.ping()
        assert torch.equal(robot.echo(tensor, 104), tensor + 1)
    assert 103 not in robot.tensors
    assert time.monotonic() - start < 3 * PATIENCE


def test_several_sessions_share_the_topics(context: rclpy.Context) -> None:
    """Two robots use one server at once; each gets its own tensors and acknowledgements."""
    robots = [Robot(context, session=n, namespace='', chunk_bytes=20_000) for n in (11, 12)]
    try:
        with peer():
            for robot in robots:
                robot.ping(len(robots))
            tensors = [torch.rand(700_000) for _ in robots]
            for robot, tensor in zip(robots, tensors):
                robot.send(tensor, 1)
            for robot, tensor in zip(robots, tensors):
                assert robot.wait(lambda r=robot: 1 in r.tensors)
                assert torch.equal(robot.tensors[1], tensor + 1)
                assert robot.channel.chunks_lost == 0
    finally:
        for robot in robots:
            robot.channel.close()


def garbage(random: Random) -> Iterator[tuple[type, bytes]]:
    """Yield serialised messages: cut short, with bytes changed, or plain noise."""
    chunk = next(cut(torch.rand(100), 77, 1, 1000))
    good = {
        TensorChunk: bytes(serialize_message(chunk_to_message(chunk, 3))),
        SessionControl: bytes(serialize_message(control_to_message(
            Control(ControlKind.HELLO, 77, body={'digest': 'abc'}), 3))),
        ChunkAck: bytes(serialize_message(ChunkAck(session=77, sequence=3, rate=1e6)))}
    while True:
        kind = random.choice(list(good))
        data = bytearray(good[kind])
        way = random.randrange(3)
        if way == 0:
            data = data[:random.randrange(len(data))]
        elif way == 1:
            for _ in range(random.randint(1, 8)):
                data[random.randrange(min(len(data), 150))] = random.randrange(256)
        else:
            data = bytearray(random.randbytes(random.randrange(len(data))))
        yield kind, bytes(data)


def test_ten_thousand_fuzzed_messages(context: rclpy.Context, robot: Robot) -> None:
    """The other side neither dies nor grows, counts what it refuses, and goes on sharing."""
    node = rclpy.create_node('stranger', context=context)
    topics = {TensorChunk: 'chunks_up', SessionControl: 'control_up', ChunkAck: 'acks_up'}
    publishers = {kind: node.create_publisher(kind, f'offload/{topic}', 256)
                  for kind, topic in topics.items()}
    random = Random(7)
    with peer() as process:
        before = robot.ping().body
        tensor = torch.rand(100_000)
        assert torch.equal(robot.echo(tensor, 0), tensor + 1)
        for number, (kind, data) in zip(range(10_000), garbage(random)):
            publishers[kind].publish(data)
            if number == 2000:
                before = robot.ping().body
            if number % 100 == 99:
                time.sleep(0.01)
        after = robot.ping().body
        assert process.poll() is None
        assert after['rejected']['undecodable'] > 2000
        assert {'index', 'dtype', 'codec', 'kind', 'body'} <= set(after['rejected'])
        assert after['resident_kb'] - before['resident_kb'] < 20_000
        assert torch.equal(robot.echo(tensor, 1), tensor + 1)
    node.destroy_node()


def test_acknowledgements_of_rates_that_no_link_has_are_refused(
        context: rclpy.Context, robot: Robot) -> None:
    node = rclpy.create_node('stranger', context=context)
    acks = node.create_publisher(ChunkAck, 'offload/acks_up', 256)
    rates = (-1.0, 1.1e11, float('inf'), float('nan'))
    with peer():
        robot.ping()
        assert robot.wait(lambda: acks.get_subscription_count() > 0)
        for rate in rates:
            acks.publish(ChunkAck(session=5, sequence=3, rate=rate))
        end = time.monotonic() + PATIENCE
        while robot.ping().body['rejected'].get('rate', 0) < len(rates):
            assert time.monotonic() < end
    node.destroy_node()


def test_frames_that_cannot_be_sent_are_counted(robot: Robot) -> None:
    """A body that JSON cannot say is refused here; the next frame still leaves."""
    with peer():
        robot.channel.send(Control(ControlKind.REPORT, body={'age': float('inf')}))
        robot.ping()
    assert robot.channel.rejected == {'unsendable': 1}


@pytest.mark.parametrize('error', [
    MalformedFrameError('half a character: \ud800', 'odd'), RuntimeError('half: \ud800')])
def test_a_failing_handler_does_not_stop_the_channel(
    context: rclpy.Context, error: Exception,
) -> None:
    """Whatever the handler raises is counted, even what no log can hold; the next frame comes."""
    server, robot = DdsChannel(context, side='server'), DdsChannel(context, side='robot')
    calls: list[Frame] = []

    def take(frame: Frame) -> None:
        calls.append(frame)
        raise error

    server.listen(take)
    end = time.monotonic() + PATIENCE
    while len(calls) < 3 and time.monotonic() < end:
        robot.send(Control(ControlKind.PING))
        time.sleep(0.05)
    robot.close()
    server.close()
    assert len(calls) >= 3
    assert server.rejected == {getattr(error, 'cause', 'handler'): len(calls)}


def test_pings_go_over_topics_that_confirm_nothing(context: rclpy.Context) -> None:
    """On topics of their own; of a channel without them, as of a fleet, like other frames."""
    with_pings, without = DdsChannel(context), DdsChannel(context, 'other', pings=False)
    node, executor = rclpy.create_node('listener', context=context), SingleThreadedExecutor(
        context=context)
    executor.add_node(node)
    heard: list[tuple[str, int]] = []
    for topic in ('offload/pings_up', 'offload/control_up', 'other/control_up'):
        node.create_subscription(
            SessionControl, topic, lambda m, topic=topic: heard.append((topic, m.kind)),
            QoSProfile(depth=10, reliability=ReliabilityPolicy.BEST_EFFORT))
    end = time.monotonic() + PATIENCE
    while len(set(heard)) < 4 and time.monotonic() < end:
        for channel in (with_pings, without):
            channel.send(Control(ControlKind.PING, 5))
            channel.send(Control(ControlKind.BYE, 5))
        executor.spin_once(timeout_sec=0.1)
    (publisher,) = node.get_publishers_info_by_topic('/offload/pings_up')
    assert publisher.qos_profile.reliability is ReliabilityPolicy.BEST_EFFORT
    assert not node.get_publishers_info_by_topic('/other/pings_up')
    assert set(heard) == {('offload/pings_up', ControlKind.PING),
                          ('offload/control_up', ControlKind.BYE),
                          ('other/control_up', ControlKind.BYE),
                          ('other/control_up', ControlKind.PING)}
    with_pings.close()
    without.close()
    executor.shutdown()
    node.destroy_node()


def test_mismatched_quality_of_service_is_reported(
    context: rclpy.Context, capfd: pytest.CaptureFixture[str],
) -> None:
    """QoS can be overridden by parameters, and what then does not fit is in the log."""
    name = 'qos_overrides./offload/chunks_up.publisher.reliability'
    robot = DdsChannel(context, 'offload', 'robot',
                       parameter_overrides=[Parameter(name, value='best_effort')])
    server = DdsChannel(context, 'offload', 'server')
    log, end = '', time.monotonic() + PATIENCE
    while 'incompatible QoS' not in log and time.monotonic() < end:
        time.sleep(0.05)
        log += capfd.readouterr().err
    assert 'chunks_up' in log
    assert robot.peers == 0
    robot.close()
    server.close()


def test_closing_delivers_the_last_control_frame(context: rclpy.Context) -> None:
    """What was sent before `close` still arrives; closing twice is harmless."""
    server, robot = DdsChannel(context, side='server'), DdsChannel(context, side='robot')
    frames: list[Frame] = []
    server.listen(frames.append)
    end = time.monotonic() + PATIENCE
    while not frames and time.monotonic() < end:
        robot.send(Control(ControlKind.PING))
        time.sleep(0.05)
    robot.send(Control(ControlKind.BYE))
    robot.close()
    robot.close()
    robot.send(Control(ControlKind.PING))
    wait_for(lambda: frames[-1] == Control(ControlKind.BYE))
    assert frames[-1] == Control(ControlKind.BYE)
    server.close()


def test_closing_after_the_context_has_ended(domain: int) -> None:
    """When ROS is shut down first, as by Ctrl-C, closing neither hangs nor raises."""
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    channel = DdsChannel(context)
    for chunk in cut(torch.rand(100_000), 1, 1, channel.chunk_bytes):
        channel.send(chunk)
    context.shutdown()
    channel.send(Control(ControlKind.BYE))
    channel.close()
    assert not [t for t in threading.enumerate() if t.name.startswith(('channel', 'offload'))]


@pytest.mark.parametrize('options', [{'name': 'a b'}, {'side': 'left'}, {'chunk_bytes': 0},
                                     {'chunk_bytes': 10**6}])
def test_impossible_settings_are_refused(context: rclpy.Context, options: dict[str, Any]) -> None:
    """The error names the value."""
    with pytest.raises(ValueError, match=f'got .*{list(options.values())[0]}'):
        DdsChannel(context, **options)


def test_with_a_key_recorded_pings_keep_no_robot_out(context: rclpy.Context) -> None:
    """A server that has just started hears those of a robot that runs from a stranger first."""
    key, node = SharedKey.generate(), rclpy.create_node('stranger', context=context)
    best_effort = QoSProfile(depth=32, reliability=ReliabilityPolicy.BEST_EFFORT)
    recorded: list[SessionControl] = []
    node.create_subscription(SessionControl, 'offload/pings_up', recorded.append, best_effort)
    executor, robot = SingleThreadedExecutor(context=context), DdsChannel(context, key=key)
    executor.add_node(node)
    end = time.monotonic() + PATIENCE
    while len(recorded) < 5:
        robot.send(Control(ControlKind.PING, 5))
        executor.spin_once(0.05)
        assert time.monotonic() < end
    again = rclpy.create_node('stranger_again', context=context)
    publisher = again.create_publisher(SessionControl, 'offload/pings_up', best_effort)
    server, heard = DdsChannel(context, side='server', key=key), list[Frame]()
    server.only(lambda session: False)
    server.listen(heard.append)
    while not heard:
        publisher.publish(recorded[0])
        time.sleep(0.02)
        assert time.monotonic() < end
    while not any(isinstance(frame, Control) and frame.kind is ControlKind.HELLO
                  for frame in heard):
        publisher.publish(recorded[1])
        robot.send(Control(ControlKind.HELLO, 5, server=7))
        time.sleep(0.02)
        assert time.monotonic() < end, server.rejected
    assert not server.rejected
    for channel in (robot, server):
        channel.close()
    executor.shutdown()
    for made in (node, again):
        made.destroy_node()
