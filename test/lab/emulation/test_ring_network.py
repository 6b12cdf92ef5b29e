# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A ring of namespaces: the shorter way round, each hop and direction with a rate of its own."""
from __future__ import annotations

import subprocess
import sys

import pytest

from intradp_lab.emulation.network import available
from intradp_lab.emulation.ring_network import address, ring_network, RingNetwork
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import ring

REASON = available()
PREFIX = 'intradp-ring-test'
pytestmark = pytest.mark.skipif(REASON is not None, reason=str(REASON))

SINK = """
import socket, sys, time
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind(('0.0.0.0', int(sys.argv[1])))
link.settimeout(60)
print('ready', flush=True)
link.recv(2000)
begin = time.monotonic()
for _ in range(int(sys.argv[2]) - 1):
    link.recv(2000)
print(time.monotonic() - begin, flush=True)
"""
SOURCE = """
import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.connect((sys.argv[1], int(sys.argv[2])))
for _ in range(int(sys.argv[3])):
    link.send(bytes(1400))
"""
COUNT = 120


def python(net: RingNetwork, device: str, code: str, *words: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*net.exec_prefix(device), sys.executable, '-I', '-S', '-c', code, *map(str, words)],
        stdout=subprocess.PIPE, text=True)


def seconds(net: RingNetwork, *ways: str) -> list[float]:
    """Return how long the same bytes take on each of some ways ("ab": from a to b) at once."""
    sinks = [python(net, way[1], SINK, 5000 + k, COUNT) for k, way in enumerate(ways)]
    for sink in sinks:
        assert sink.stdout and sink.stdout.readline() == 'ready\n'
    for k, way in enumerate(ways):
        python(net, way[0], SOURCE, address(net.devices.index(way[1])), 5000 + k, COUNT)
    return [float(sink.communicate(timeout=60)[0]) for sink in sinks]


# Prints what comes until nothing has for so long.
EARS = """
import socket, sys
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind(('0.0.0.0', 6000))
link.settimeout(60)
print('ready', flush=True)
try:
    while True:
        print(link.recv(100).decode(), flush=True)
        link.settimeout(float(sys.argv[1]))
except TimeoutError:
    pass
"""
# Says to whom, and how many hops it may go.
CALL = """
import socket, sys
name, *words = sys.argv[1:]
for there, hops in zip(words[::2], words[1::2]):
    link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    link.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, int(hops))
    link.sendto(f'{name} {hops}'.encode(), (there, 6000))
"""


@pytest.mark.parametrize('count', [
    4, *(pytest.param(n, marks=pytest.mark.slow) for n in (3, 5))])
def test_all_reach_all_by_the_hops_of_the_topology(count: int) -> None:
    """What may go one hop less does not arrive."""
    devices = 'abcde'[:count]
    paths = ring([Device(name) for name in devices], 1e6).paths
    with ring_network(devices, 1000.0, PREFIX) as net:
        ears = [python(net, name, EARS, 3) for name in devices]
        for one in ears:
            assert one.stdout and one.stdout.readline() == 'ready\n'
        for name in devices:
            words = [word for k, other in enumerate(devices) if other != name
                     for hops in range(1, len(paths[name, other]) + 1)
                     for word in (address(k), hops)]
            assert python(net, name, CALL, name, *words).wait(60) == 0
        for name, one in zip(devices, ears):
            heard = sorted(one.communicate(timeout=120)[0].splitlines())
            assert heard == sorted(f'{other} {len(paths[other, name])}'
                                   for other in devices if other != name)


def test_each_hop_and_direction_has_a_rate_of_its_own() -> None:
    """Bytes take no less than the hop's rate says; ways that share a hop take twice as long."""
    with ring_network('abcd', 8.0, PREFIX) as net:
        net.set_rate(4.0, 'a', 'b')
        slow, fast, back = seconds(net, 'ab', 'bc', 'ba')
        least = (COUNT - 1) * 1400 / 0.5e6
        # What an idle hop lets through at once is not waited for.
        assert slow > 0.9 * (least - 8000 / 0.5e6)
        assert fast > 0.9 * (least / 2 - 8000 / 1e6) and back > 0.9 * (least / 2 - 8000 / 1e6)
        assert fast < 0.75 * slow and back < 0.75 * slow
        through, direct = seconds(net, 'ac', 'ab')  # a to c goes by b
        assert max(through, direct) > 1.5 * slow


def test_a_device_that_is_cut_off_passes_nothing_on_until_it_is_back() -> None:
    with ring_network('abcd', 100.0, PREFIX) as net:
        ears = python(net, 'c', EARS, 3)
        assert ears.stdout and ears.stdout.readline() == 'ready\n'
        for number, change in enumerate((lambda name: None, net.cut, net.restore)):
            change('b')
            assert python(net, 'a', CALL, f'call {number}', address(2), 9).wait(60) == 0
        assert ears.communicate(timeout=60)[0].splitlines() == ['call 0 9', 'call 2 9']


def test_only_neighbours_have_a_hop() -> None:
    with ring_network('abcd', 100.0, PREFIX) as net, pytest.raises(ValueError, match='neighbour'):
        net.set_rate(1.0, 'a', 'c')
    with pytest.raises(ValueError, match='3 to 8'), ring_network('ab', 1.0, PREFIX):
        pass
