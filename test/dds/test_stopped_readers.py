# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A stranger that reads all topics, reliably, and then stops holds up nobody."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from echo_robot import peer, Robot
import pytest
import rclpy
import torch

from intradp_lab.emulation.network import available, shaped_link
from intradp_ros.dds.transport_profile import local_environment, transport_environment

#: Has readers as a ROS node has them by default, of all topics of a channel, and takes nothing.
STRANGER = """
import sys, time, rclpy
from rclpy.qos import HistoryPolicy, QoSProfile, ReliabilityPolicy
from intradp_ros.msg import ChunkAck, SessionControl, TensorChunk
rclpy.init()
node = rclpy.create_node('stranger')
KINDS = {'chunks': TensorChunk, 'control': SessionControl, 'acks': ChunkAck,
         'pings': SessionControl}
topics = [f'offload/{name}_{way}' for name in KINDS for way in ('up', 'down')]
for topic in topics:
    name = topic.split('/')[1].split('_')[0]
    reliable = name in ('chunks', 'control')
    qos = QoSProfile(depth=1, reliability=ReliabilityPolicy.RELIABLE if reliable
                     else ReliabilityPolicy.BEST_EFFORT)
    if reliable:
        qos.history = HistoryPolicy.KEEP_ALL
    node.create_subscription(KINDS[name], topic, print, qos)
while not all(node.count_publishers(topic) for topic in topics):
    time.sleep(0.05)
print('matched', flush=True)
time.sleep(600)
"""
#: Echoes after the stranger has stopped, of which each takes some 20 ms.
ECHOES, LONGEST = 100, 2.0
#: Says that this is a network of its own, for `large_data`: LOCALHOST would replace it by UDP.
TCP = 'STOPPED_READERS_OVER_TCP'


@contextmanager
def stopped_stranger() -> Iterator[subprocess.Popen[str]]:
    """Run a stranger until its readers are known, and stop it."""
    # It has the middleware's own settings, not ours.
    theirs = {name: value for name, value in os.environ.items()
              if name != 'FASTDDS_DEFAULT_PROFILES_FILE'}
    if TCP in os.environ:  # who would reach it has its transport
        theirs['FASTDDS_BUILTIN_TRANSPORTS'] = 'LARGE_DATA'
    with subprocess.Popen([sys.executable, '-c', STRANGER], stdout=subprocess.PIPE, text=True,
                          env=theirs, cwd=Path(__file__).parent) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == 'matched\n'
            time.sleep(0.5)  # each end learns of the other by itself
            process.send_signal(signal.SIGSTOP)
            yield process
        finally:
            process.kill()


@pytest.mark.slow  # a machine that is busy delays echoes by itself
@pytest.mark.parametrize('transport', ['large_data'] if TCP in os.environ else ['default', 'udp'])
def test_a_reader_that_stops_or_dies_holds_up_nobody(transport: str, domain: int,
                                                     monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv('FASTDDS_DEFAULT_PROFILES_FILE', raising=False)
    if TCP in os.environ:
        monkeypatch.delenv('ROS_AUTOMATIC_DISCOVERY_RANGE')
    for name, value in transport_environment(transport).items():
        monkeypatch.setenv(name, value)
    context = rclpy.Context()
    rclpy.init(context=context, domain_id=domain)
    robot = Robot(context)
    tensor, took = torch.rand(100_000), list[float]()

    def echo() -> None:
        begin = time.monotonic()
        assert torch.equal(robot.echo(tensor, len(took)), tensor + 1)
        took.append(time.monotonic() - begin)
    try:
        with peer():
            robot.ping()
            with stopped_stranger() as stranger:
                for _ in range(ECHOES):
                    echo()
                stranger.kill()
            for _ in range(ECHOES):
                echo()
    finally:
        robot.channel.close()
        context.try_shutdown()
    assert max(took) < LONGEST, sorted(took)[-10:]


@pytest.mark.slow
@pytest.mark.skipif(available() is not None, reason=str(available()))
def test_a_reader_that_stops_or_dies_holds_up_nobody_over_tcp() -> None:
    with shaped_link(1000.0, 'intradp-stop') as link:
        ended = subprocess.run(
            [*link.exec_prefix('robot'), str(Path(sys.executable).with_name('pytest')), '-v', '-m',
             'slow', '-p', 'no:cacheprovider', __file__, '-k', 'large_data'],
            env={**os.environ, TCP: '1'}, text=True, capture_output=True, timeout=120)
    assert ended.returncode == 0, ended.stdout[-4000:]
    assert ended.stdout.count(' PASSED') == 1


@pytest.mark.parametrize(('given', 'name'), [
    ({}, 'transport_local.xml'),
    ({'INTRADP_TRANSPORT': 'udp'}, ''),
    ({'INTRADP_TRANSPORT': 'udp', 'ROS_AUTOMATIC_DISCOVERY_RANGE': 'LOCALHOST',
      'FASTDDS_DEFAULT_PROFILES_FILE': '/x/transport_udp.xml'}, 'transport_local.xml'),
    ({'FASTDDS_DEFAULT_PROFILES_FILE': '/home/me/own.xml'}, ''),
    ({'FASTDDS_BUILTIN_TRANSPORTS': 'UDPv4'}, ''),
    ({'INTRADP_TRANSPORT': 'large_data'}, ''),
    ({'RMW_IMPLEMENTATION': 'rmw_cyclonedds_cpp'}, '')])
def test_a_profile_of_the_users_is_kept(given: Mapping[str, str], name: str) -> None:
    assert Path(local_environment(given).get('FASTDDS_DEFAULT_PROFILES_FILE', '')).name == name


@pytest.mark.parametrize('there', ['no-such-folder', '/proc'])
def test_little_shared_memory_is_left_as_it_is(there: str) -> None:
    """A container has 64 MB of it, which a few segments would fill; /proc has no room at all."""
    assert local_environment({}, Path('/dev/shm')) and not local_environment({}, Path(there))
