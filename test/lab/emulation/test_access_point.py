# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Links with something between the sides: delay, loss, queues that drop, one air time for both."""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
import subprocess
import sys

import pytest

from intradp_lab.emulation import network
from intradp_lab.emulation.network import LinkSettings, shaped_link, ShapedLink
from intradp_lab.emulation.settings import MOST_PACKETS

PREFIX = 'intradp-test-ap'
REASON = network.available()
needs_root = pytest.mark.skipif(REASON is not None, reason=str(REASON))

ECHO = """
import socket
server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
server.bind(('10.77.0.2', 5000))
print('ready', flush=True)
while True:
    server.sendto(*server.recvfrom(2000))
"""
# Once the link has brought something back: sends numbered datagrams and prints the round trips of
# those that come back, until none has come for half a second.
ASK = """
import socket, sys, time
asker = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
asker.connect(('10.77.0.2', 5000))
count, sent = int(sys.argv[1]), {}
asker.settimeout(0.5)
for attempt in range(int(sys.argv[2])):
    asker.send(b'-1')
    try:
        asker.recv(100)
        break
    except TimeoutError:
        pass
def take(patience):
    asker.settimeout(patience)
    try:
        while True:
            number = int(asker.recv(100))
            if number in sent:
                print(time.monotonic() - sent[number], flush=True)
    except (BlockingIOError, TimeoutError):
        pass

for number in range(count):
    sent[number] = time.monotonic()
    asker.send(b'%d' % number)
    time.sleep(0.001)
    take(0.0)
take(0.5)
"""
# Sends datagrams at 12 Mbit/s, and prints how many bits per second came, with their headers.
BLAST = """
import socket, sys, time
mine, other = sys.argv[1:]
sender, receiver = (socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in '12')
receiver.bind((mine, 5001))
receiver.setblocking(False)
print('ready', flush=True)
sys.stdin.readline()
begin = time.monotonic()
sent = came = 0
while (elapsed := time.monotonic() - begin) < 2.5:
    while sent < elapsed * 12e6 / 8 / 1442:
        sender.sendto(bytes(1400), (other, 5001))
        sent += 1
    try:
        while receiver.recv(2000):
            came += elapsed > 0.5
    except BlockingIOError:
        time.sleep(0.002)
print(came * 1442 * 8 / 2.0, flush=True)
"""


def python(link: ShapedLink, side: str, code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*link.exec_prefix(side), sys.executable, '-I', '-S', '-c', code, *arguments],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@contextmanager
def echoing(settings: LinkSettings) -> Iterator[ShapedLink]:
    """Provide a link whose server sends every datagram back."""
    with shaped_link(settings, PREFIX) as link:
        echo = python(link, 'server', ECHO)
        assert echo.stdout and echo.stdout.readline() == 'ready\n'
        yield link


def round_trips(link: ShapedLink, count: int, attempts: int = 100) -> list[float]:
    output, _ = python(link, 'robot', ASK, str(count), str(attempts)).communicate()
    return [float(line) for line in output.splitlines()]


@needs_root
def test_packets_take_the_delay_both_ways() -> None:
    with echoing(LinkSettings(delay_ms=30.0)) as link:
        times = round_trips(link, 20)
    assert len(times) == 20
    assert min(times) >= 0.060


@needs_root
@pytest.mark.parametrize('loss', [0.0, 0.3])
def test_packets_are_lost_as_often_as_asked(loss: float) -> None:
    count = 400
    with echoing(LinkSettings(100.0, jitter_ms=0.1, loss=loss)) as link:
        back = len(round_trips(link, count))
    kept = (1 - loss) ** 2  # both ways lose
    assert abs(back - count * kept) <= 4 * (count * kept * (1 - kept)) ** 0.5


@needs_root
@pytest.mark.parametrize('settings', [
    LinkSettings(bottleneck='access_point'), LinkSettings(delay_ms=1.0)])
def test_a_cut_link_comes_back(settings: LinkSettings) -> None:
    with echoing(settings) as link:
        assert len(round_trips(link, 3)) == 3
        link.cut()
        assert not round_trips(link, 3, attempts=0)
        link.restore()
        assert len(round_trips(link, 3)) == 3


def both_ways(settings: LinkSettings) -> float:
    """Return the Mbit/s of both ways together when both sides send all the time."""
    with shaped_link(settings, PREFIX) as link:
        blasts = [python(link, side, BLAST, network.ADDRESSES[side], network.ADDRESSES[other])
                  for side, other in (('robot', 'server'), ('server', 'robot'))]
        for blast in blasts:
            assert blast.stdout and blast.stdout.readline() == 'ready\n'
        for blast in blasts:
            assert blast.stdin
            blast.stdin.write('go\n')
            blast.stdin.flush()
        return sum(float(blast.communicate()[0]) for blast in blasts) * 1e-6


@needs_root
def test_both_ways_share_the_air() -> None:
    """Each side sends 12 Mbit/s: too much for one air of 10, not for 10 each way."""
    shared = both_ways(LinkSettings(10.0, medium='shared', bottleneck='access_point'))
    each = both_ways(LinkSettings(10.0, bottleneck='access_point'))
    assert 5.0 < shared < 10.5
    assert each > 1.3 * shared


@needs_root
def test_nothing_remains() -> None:
    with shaped_link(LinkSettings(delay_ms=1.0), PREFIX) as link:
        assert len(network.namespaces(PREFIX)) == 3
        assert link.namespaces['ap'] in network.namespaces(PREFIX)
    assert network.namespaces(PREFIX) == []


@pytest.mark.parametrize(('wrong', 'message'), [
    ({'mbit': 0.0}, 'above 0 Mbit/s'), ({'delay_ms': -1.0}, 'delay_ms'),
    ({'jitter_ms': float('nan')}, 'jitter_ms'), ({'loss': 1.0}, 'below 1'),
    ({'medium': 'sound'}, 'duplex or shared'), ({'bottleneck': 'wall'}, 'access_point'),
    ({'medium': 'shared'}, "needs bottleneck='access_point'"), ({'queue_bytes': 10}, 'packet')])
def test_impossible_links_are_refused(wrong: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        LinkSettings(**wrong)


def test_more_packets_than_can_be_delayed_are_warned_of() -> None:
    assert str(MOST_PACKETS) in LinkSettings(400.0, delay_ms=1.0).warning()
    assert not LinkSettings(100.0, delay_ms=1.0).warning()
    assert not LinkSettings(1000.0, bottleneck='access_point').warning()
