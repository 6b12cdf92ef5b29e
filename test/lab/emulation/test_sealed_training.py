# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""A training over a network that a stranger is on: he reaches all that listens, in vain."""
from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
import json
import subprocess
import sys
import threading
import time
from typing import Any

import pytest
import training_fleet
from training_fleet import difference, shuffled
from training_models import train_alone_drawing
from waiting import wait_for

from intradp_lab.emulation import network
from intradp_lab.emulation.namespaces import owned_namespaces, run
from intradp_ros.cluster.device import Device
from intradp_ros.cluster.topology import behind_access_point
from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.layers.layer_table import LayerTable
from intradp_ros.systems.training.run.worker_settings import Settings
from intradp_ros.systems.training.service.process_fleet import ProcessFleet

REASON = network.available()
NAMES, STRANGER, BRIDGE = ('a', 'b', 'c'), 'stranger', 'sealbr'
ROUNDS = 150
NO_TABLE = LayerTable(('none',), (0.0,), (0.0,), (0.0,), (0.0, 0.0), (0.0, 0.0), {})

#: Finds what listens at the addresses that it is given, and plagues it: silent connections,
#: nonsense, gloo's first words, and what a device that has another key says.
PLAGUE = """
import json, os, socket, struct, sys, threading, time
from intradp_ros.runtime.transport.sealed_stream import connect
hosts, held, done = sys.argv[1:], [], time.monotonic() + 60
low, high = map(int, open('/proc/sys/net/ipv4/ip_local_port_range').read().split())
def listening(host):
    found = []
    for port in range(low, high + 1):
        with socket.socket() as one:
            one.settimeout(1)
            if one.connect_ex((host, port)) == 0:
                found.append(port)
    return found
words = (b'', b'\\0' * 8, *(struct.pack('<Q', k) for k in range(8)), os.urandom(4096),
         b'intradp1' + os.urandom(16) + b'\\0\\4')
def plague(host, port):
    count = 0
    while time.monotonic() < done:
        try:
            one = socket.create_connection((host, port), 1)
            one.sendall(words[count % len(words)])
            held.append(one)
            if not count % 20:
                connect((host, port), os.urandom(32), f'gloo a {host} {port}', 0.5)
        except OSError:
            time.sleep(0.01)
        if len(held) > 300:
            held.pop(0).close()
        count += 1
for line in sys.stdin:
    found = {host: listening(host) for host in hosts}
    for host, ports in found.items():
        for port in ports:
            threading.Thread(target=plague, args=(host, port), daemon=True).start()
    print(json.dumps(found), flush=True)
"""


@contextmanager
def joined(spaces: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Join namespaces by a bridge at which this one is; yield their addresses, '' is its own."""
    of = {'': '10.78.0.254', **{name: f'10.78.0.{k + 1}' for k, name in enumerate(spaces)}}
    run('ip', 'link', 'add', BRIDGE, 'address', '02:00:0a:4e:00:fe', 'type', 'bridge')
    try:
        run('ip', 'addr', 'add', f'{of[""]}/24', 'dev', BRIDGE)
        run('ip', 'link', 'set', BRIDGE, 'up')
        for k, (name, space) in enumerate(spaces.items()):
            run('ip', 'netns', 'add', space)
            run('ip', 'link', 'add', f'seal{k}', 'type', 'veth', 'peer', 'name', 'eth0',
                'netns', space)
            run('ip', 'link', 'set', f'seal{k}', 'master', BRIDGE, 'up')
            run('ip', '-n', space, 'addr', 'add', f'{of[name]}/24', 'dev', 'eth0')
            for link in ('eth0', 'lo'):
                run('ip', '-n', space, 'link', 'set', link, 'up')
        yield of
    finally:
        run('ip', 'link', 'del', BRIDGE)


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
def test_a_stranger_on_the_network_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices listen at one port each, of streams that need the key; the result is exact."""
    monkeypatch.setenv('INTRADP_ROUNDS', str(ROUNDS))
    task = training_fleet.long_sgd()
    graph, alone = capture(task), train_alone_drawing(task)
    with owned_namespaces('intradpseal', [*NAMES, STRANGER]) as spaces, joined(spaces) as of:
        places = {name: (of[name], ('ip', 'netns', 'exec', spaces[name])) for name in NAMES}
        seen: dict[str, Any] = {}

        def plague() -> None:
            stranger.stdin.write('now\n')
            stranger.stdin.flush()
            seen.update(json.loads(stranger.stdout.readline()))
        topology = behind_access_point([Device(name) for name in NAMES], 1e8)
        stranger = subprocess.Popen(
            ['ip', 'netns', 'exec', spaces[STRANGER], sys.executable, '-c', PLAGUE,
             *(of[name] for name in ('', *NAMES))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        try:
            with ProcessFleet(f'{training_fleet.__file__}:long_sgd', task, graph, topology,
                              shuffled(3, len(graph.layers), task), NO_TABLE,
                              Settings(5.0, 5, of['']), places=places) as fleet:
                threading.Thread(target=plague, daemon=True).start()
                fleet.trainer.run(200.0, rounds=ROUNDS // 2)
                wait_for(lambda: len(seen) == 4, 60.0)
                time.sleep(1.0)
                fleet.trainer.run(200.0)
                state = fleet.trainer.collect()
                exchange = fleet.trainer.exchange.place[1]
        finally:
            stranger.kill()
            stranger.wait()
    assert exchange in seen[of['']]
    assert [len(seen[of[name]]) for name in NAMES] == [1, 1, 1]
    assert difference(state, alone) < 1e-10
