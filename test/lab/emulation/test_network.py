# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Two namespaces with a shaped link: it carries, it limits, and nothing of it remains."""
from __future__ import annotations

from collections.abc import Iterator
import itertools
import os
from pathlib import Path
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from resident import runs
from waiting import wait_for

from intradp_lab.emulation import network
from intradp_lab.emulation.namespaces import run
from intradp_lab.emulation.network import (
    ADDRESSES,
    LinkSettings,
    NetworkError,
    shaped_link,
    ShapedLink,
)

PREFIX = 'intradp-test'
REASON = network.available()
needs_root = pytest.mark.skipif(REASON is not None, reason=str(REASON))

SINK = """
import socket, time
server = socket.create_server(('10.77.0.2', 5000))
print('ready', flush=True)
connection = server.accept()[0]
count, start = 0, None
while data := connection.recv(65536):
    start = start or time.monotonic()
    count += len(data)
print(count, time.monotonic() - start, flush=True)
"""
SOURCE = """
import socket, sys
with socket.create_connection(('10.77.0.2', 5000)) as connection:
    connection.sendall(bytes(int(sys.argv[1])))
"""
# Sends a numbered datagram every 10 ms; errors of the local stack would end it.
BEACON = """
import itertools, socket, time
sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for number in itertools.count():
    sender.sendto(str(number).encode(), ('{address}', 5001))
    time.sleep(0.01)
"""
LISTENER = """
import socket, struct
receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
receiver.bind(('', 5001))
membership = socket.inet_aton('239.255.0.1') + socket.inet_aton('10.77.0.2')
receiver.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
print('ready', flush=True)
while True:
    print(int(receiver.recv(100)), flush=True)
"""


def python(link: ShapedLink, side: str, code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([*link.exec_prefix(side), sys.executable, '-c', code, *arguments],
                            stdout=subprocess.PIPE, text=True)


@pytest.fixture
def link() -> Iterator[ShapedLink]:
    with shaped_link(20.0, PREFIX) as made:
        yield made


@needs_root
@pytest.mark.parametrize('mbit', [4.0, 16.0])
def test_rate_is_the_one_asked_for(link: ShapedLink, mbit: float) -> None:
    link.set_rate(mbit)
    with python(link, 'server', SINK) as sink:
        assert sink.stdout and sink.stdout.readline() == 'ready\n'
        size = round(mbit * 1e6 / 8)
        subprocess.run([*link.exec_prefix('robot'), sys.executable, '-c', SOURCE, str(size)],
                       check=True)
        count, seconds = sink.stdout.readline().split()
    assert int(count) == size
    # Loose below, as the machine may be busy; headers take 5 %.
    assert 0.4 * mbit < size * 8e-6 / float(seconds) < 1.05 * mbit


@needs_root
def test_each_way_has_its_own_rate(link: ShapedLink) -> None:
    link.set_rate(7.0, 'robot')
    shown = {side: subprocess.run(['tc', '-n', link.namespaces[side], 'qdisc'], check=True,
                                  capture_output=True, text=True).stdout for side in ADDRESSES}
    assert 'rate 7Mbit' in shown['robot']
    assert 'rate 20Mbit' in shown['server']


@needs_root
@pytest.mark.parametrize('address', ['10.77.0.2', '239.255.0.1'])
def test_cut_silences_and_restore_resumes(link: ShapedLink, address: str) -> None:
    listener = python(link, 'server', LISTENER)
    assert listener.stdout and listener.stdout.readline() == 'ready\n'
    beacon = python(link, 'robot', BEACON.format(address=address))
    first = int(listener.stdout.readline())
    link.cut()
    time.sleep(0.5)
    link.restore()
    numbers = [first]
    while numbers[-1] - numbers[0] < 100:
        numbers.append(int(listener.stdout.readline()))
    assert beacon.poll() is None, 'the robot must see silence, not errors'
    gaps = [later - earlier for earlier, later in itertools.pairwise(numbers)]
    # Lost as long as the link was cut, and neither before nor afterwards.
    assert sorted(gaps)[:-1] == [1] * (len(gaps) - 1)
    assert max(gaps) > 5


@needs_root
@pytest.mark.skipif(shutil.which('nft') is None, reason="needs the command 'nft'")
def test_packets_are_lost_until_no_more_shall_be(link: ShapedLink) -> None:
    def gaps() -> list[int]:
        with python(link, 'server', LISTENER) as listener:
            assert listener.stdout and listener.stdout.readline() == 'ready\n'
            numbers = [int(listener.stdout.readline()) for _ in range(60)]
            listener.kill()
        return [later - earlier for earlier, later in itertools.pairwise(numbers)]

    beacon = python(link, 'robot', BEACON.format(address='10.77.0.2'))
    link.lose(0.3)
    assert max(gaps()) > 1
    link.lose(0.0)
    assert set(gaps()) == {1}
    beacon.kill()
    beacon.wait()


@needs_root
def test_the_sides_see_only_each_other(link: ShapedLink) -> None:
    done = subprocess.run([*link.exec_prefix('robot'), 'ip', '-brief', 'address'], check=True,
                          capture_output=True, text=True)
    devices = [line.split()[0] for line in done.stdout.splitlines()]
    assert [name.partition('@')[0] for name in devices] == ['lo', network.DEVICE]


@needs_root
def test_nothing_remains_after_an_error() -> None:
    with pytest.raises(KeyError), shaped_link(20.0, PREFIX) as link:
        sleeper = subprocess.Popen([*link.exec_prefix('robot'), 'sleep', '600'])
        wait_until_inside(PREFIX, sleeper.pid)
        assert len(network.namespaces(PREFIX)) == 2
        raise KeyError
    assert network.namespaces(PREFIX) == []
    assert sleeper.wait(60) == -signal.SIGKILL


@needs_root
def test_two_links_side_by_side(link: ShapedLink) -> None:
    with shaped_link(5.0, PREFIX) as other:
        assert not set(link.namespaces.values()) & set(other.namespaces.values())
        assert len(network.namespaces(PREFIX)) == 4
    assert sorted(network.namespaces(PREFIX)) == sorted(link.namespaces.values())


HOLD = """
import signal, subprocess, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # jobs in the background ignore it
from intradp_lab.emulation.network import shaped_link
with shaped_link(20.0, '{prefix}') as link:
    print(subprocess.Popen([*link.exec_prefix('robot'), 'sleep', '600']).pid, flush=True)
    time.sleep(600)
"""


def hold(prefix: str) -> tuple[subprocess.Popen[str], int]:
    process = subprocess.Popen([sys.executable, '-c', HOLD.format(prefix=prefix)],
                               stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout
    sleeper = int(process.stdout.readline())
    wait_until_inside(prefix, sleeper)
    return process, sleeper


def wait_until_inside(prefix: str, pid: int) -> None:
    """Wait until a process is in one of the namespaces: `ip` begins outside."""
    wait_for(lambda: any(str(pid) in run('ip', 'netns', 'pids', name).split()
                         for name in network.namespaces(prefix)))


@needs_root
def test_nothing_remains_after_an_interrupt() -> None:
    process, sleeper = hold(f'{PREFIX}-interrupt')
    process.send_signal(signal.SIGINT)
    process.wait(60)
    assert network.namespaces(f'{PREFIX}-interrupt') == []
    assert not runs(sleeper)


@needs_root
def test_what_a_killed_run_left_is_removed_by_the_next() -> None:
    prefix = f'{PREFIX}-killed'
    process, sleeper = hold(prefix)
    process.kill()
    process.wait(60)
    left = network.namespaces(prefix)
    assert len(left) == 2 and runs(sleeper)
    with shaped_link(20.0, prefix) as link:
        assert sorted(network.namespaces(prefix)) == sorted(link.namespaces.values())
        assert not set(left) & set(link.namespaces.values())
    assert not runs(sleeper)


@needs_root
def test_a_running_link_is_not_stale(link: ShapedLink) -> None:
    assert network.remove_stale(PREFIX) == []
    assert link.namespaces['robot'] in network.namespaces(PREFIX)


@needs_root
def test_a_refusal_is_reported_and_leaves_nothing() -> None:
    with pytest.raises(NetworkError, match=r'tc .*limit'), \
            shaped_link(LinkSettings(queue_bytes=2**40), PREFIX):
        pytest.fail('a queue larger than tc can count was accepted')
    assert network.namespaces(PREFIX) == []


@pytest.mark.parametrize('mbit', [0.0, -3.0, float('nan')])
def test_impossible_rates_are_refused(mbit: float) -> None:
    with pytest.raises(ValueError, match='above 0 Mbit/s'):
        ShapedLink({'robot': 'a', 'server': 'b'}).set_rate(mbit)


def test_unknown_side_is_refused() -> None:
    with pytest.raises(ValueError, match='choose from robot, server'):
        ShapedLink({'robot': 'a', 'server': 'b'}).exec_prefix('cloud')


def test_reason_without_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, 'geteuid', lambda: 1000)
    assert 'root' in str(network.available())


@pytest.mark.skipif(os.geteuid() != 0, reason='asks what root is told')
def test_reason_without_tools(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv('PATH', str(tmp_path))
    assert 'apt install iproute2' in str(network.available())


def test_addresses_are_valid() -> None:
    assert len({socket.inet_aton(address)[:3] for address in ADDRESSES.values()}) == 1
