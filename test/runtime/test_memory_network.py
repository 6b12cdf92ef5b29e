# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The network in memory against closed forms."""
from __future__ import annotations

from collections.abc import Mapping
import math
import threading
import time

from fleets import TIMEOUT
import pytest
from waiting import wait_for

from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point, ring, Topology
from intradp_ros.runtime.transport.memory_network import MemoryNetwork
from intradp_ros.wire.frames import Chunk, Control, ControlKind, Frame

NBYTES = 10_000


def chunk(number: int, inference: int = 1) -> Chunk:
    return Chunk(1, 1, inference, 0, number, 0, 0, 1, 0, 1, 0, 8, 0, (NBYTES,), bytes(NBYTES))


def carry(topology: Topology, loads: Mapping[tuple[str, str], int],
          ) -> dict[tuple[str, str], float]:
    """Send so many chunks on each path at once; return when each path's last one came (s)."""
    network = MemoryNetwork(topology, NBYTES)
    last: dict[tuple[str, str], float] = {}
    left, done = sum(loads.values()), threading.Event()

    def take(target: str, source: str, frame: Frame) -> None:
        nonlocal left
        last[source, target] = time.monotonic() - begin
        left -= 1
        if not left:
            done.set()

    for name in topology.names:
        network.channel(name).listen(lambda peer, frame, name=name: take(name, peer, frame))
    begin = time.monotonic()
    for (source, target), count in loads.items():
        for number in range(count):
            network.channel(source).send(target, chunk(number))
    assert done.wait(TIMEOUT)
    network.close()
    return last


def devices(names: str) -> list[Device]:
    return [Device(name) for name in names]


def test_what_goes_from_station_to_station_crosses_the_air_twice() -> None:
    cell = behind_access_point(devices('abc'), 2e6, wired=['c'])
    assert carry(cell, {('a', 'b'): 20})['a', 'b'] == pytest.approx(0.2, rel=0.15)
    assert carry(cell, {('a', 'c'): 20})['a', 'c'] == pytest.approx(0.1, rel=0.25)


def test_who_sends_at_once_shares_the_air_equally() -> None:
    cell = behind_access_point(devices('abcd'), 2e6, wired=['c', 'd'])
    last = carry(cell, {('a', 'c'): 60, ('b', 'd'): 30})
    assert last['b', 'd'] == pytest.approx(0.3, rel=0.2)  # half the rate while both send
    assert last['a', 'c'] == pytest.approx(0.45, rel=0.2)


def test_a_slow_hop_holds_up_nobody_else() -> None:
    media = ring(devices('abc'), 20e6, 1e-3)
    slow = Topology(media.devices, tuple(
        m if m.name != 'a>b' else type(m)(m.name, 1e5) for m in media.media), media.paths)
    last = carry(slow, {('a', 'b'): 4, ('a', 'c'): 40})
    assert last['a', 'b'] == pytest.approx(0.4, rel=0.15)
    assert last['a', 'c'] < 0.1


def test_control_frames_overtake_and_what_is_abandoned_or_cut_off_does_not_come() -> None:
    network = MemoryNetwork(behind_access_point(devices('ab'), 1e5), NBYTES)
    got: list[Frame] = []
    network.channel('b').listen(lambda peer, frame: got.append(frame))
    sender = network.channel('a')
    for number in range(40):
        sender.send('b', chunk(number, 1 if number < 39 else 2))
    sender.abandon(1, 1)
    sender.send('b', Control(ControlKind.PING))
    wait_for(lambda: any(isinstance(f, Chunk) and f.inference == 2 for f in got))
    assert isinstance(got[0], Control) and len(got) < 20
    network.cut('b')
    count = len(got)
    sender.send('b', Control(ControlKind.PING))
    time.sleep(0.05)
    network.restore('b')
    assert len(got) == count
    network.close()


def test_impossible_networks_are_refused() -> None:
    cell = behind_access_point(devices('ab'), math.inf)
    with pytest.raises(ValueError, match='chunk_bytes'):
        MemoryNetwork(cell, 0)
    network = MemoryNetwork(cell)
    with pytest.raises(ValueError, match="no device 'x'"):
        network.channel('x')
    with pytest.raises(ValueError, match='no path leads'):
        network.channel('a').send('x', chunk(0))
    network.close()


def test_urgent_chunks_of_all_peers_leave_first() -> None:
    network = MemoryNetwork(behind_access_point(devices('abc'), 1e6), NBYTES)
    came: list[int] = []
    done = threading.Event()

    def take(peer: str, frame: Frame) -> None:
        assert isinstance(frame, Chunk)
        came.append(frame.inference)
        if len(came) == 60:
            done.set()

    for name in 'bc':
        network.channel(name).listen(take)
    for number in range(30):  # the air is full of the first ones before any urgent one is there
        network.channel('a').send('b', chunk(number, 1), 1.0)
    for number in range(30):
        network.channel('a').send('c', chunk(number, 2), 0.0)
    assert done.wait(TIMEOUT)
    network.close()
    window = came.index(2)
    assert window < 20 and 1 not in came[window + 8:window + 20]
    assert came[-10:] == [1] * 10


@pytest.mark.usefixtures('eager_switches')
def test_a_link_is_reported_while_chunks_land() -> None:
    """Anyone who asks, on any thread, gets a report: also while another run of chunks begins."""
    network = MemoryNetwork(behind_access_point(devices('ab'), 50e6), 1000)
    came = threading.Semaphore(0)
    network.channel('b').listen(lambda peer, frame: came.release())
    try:
        for number in range(500):
            for part in range(3):
                network.channel('a').send('b', chunk(3 * number + part))
            until = time.monotonic() + 3e-3
            while time.monotonic() < until:
                assert network.channel('a').report('b').bytes_sent > 0
        assert all(came.acquire(timeout=TIMEOUT) for _ in range(1500))
    finally:
        network.close()
