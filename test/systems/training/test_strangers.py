# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Who connects to a training's sockets and says nothing, or nonsense, changes nothing."""
from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
import hashlib
import os
from pathlib import Path
import socket
import struct
import subprocess
import sys
import threading

import pytest
from safetensors.torch import save
import torch
from training_fleet import adam, difference, make_task, shuffled, train
from training_models import train_alone_drawing

from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.run.snapshots import pack, TornError, unpack

NONSENSE = (b'', b'\0' * 8, struct.pack('<Q', 1) * 4, b'\xff' * 4096, os.urandom(512))
#: Connections that stay open.
MOST = 200


def listening() -> Iterator[int]:
    """Yield the ports at which this process listens."""
    own = set()
    for name in os.listdir('/proc/self/fd'):
        try:
            own.add(os.readlink(f'/proc/self/fd/{name}'))
        except OSError:
            continue
    for line in Path('/proc/net/tcp').read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == '0A' and f'socket:[{words[9]}]' in own:
            yield int(words[1].partition(':')[2], 16)


def test_strangers_at_the_ports_of_gloo_change_nothing():
    """A device is lost meanwhile."""
    held, over, met = list[socket.socket](), threading.Event(), 0

    def disturb() -> None:
        nonlocal met
        while not over.wait(0.01):
            for port in listening():
                for body in NONSENSE:
                    try:
                        held.append(socket.create_connection(('127.0.0.1', port), 0.3))
                        held[-1].sendall(body)
                        met += 1
                    except OSError:  # the plan was left
                        continue
                    if len(held) > MOST:
                        held.pop(0).close()
    task = make_task('small', adam, rounds=12)
    graph, alone = capture(task), train_alone_drawing(task)
    stranger = threading.Thread(target=disturb)
    stranger.start()
    try:
        trainer, state = train(task, 'abc', shuffled(1, len(graph.layers), task), {'b': (6, 'F1')},
                               graph=graph)
    finally:
        over.set()
        stranger.join()
        for one in held:
            one.close()
    assert met > 10
    assert difference(state, alone) < 1e-10
    assert [recovery.lost for recovery in trainer.commit.recoveries] == [('b',)]


def test_strangers_at_the_store_neither_stop_nor_fill_it():
    """Values above what the store takes end the connection; others wait for themselves alone."""
    from torch._C._distributed_c10d import TCPStore
    store = TCPStore('127.0.0.1', 0, is_master=True, wait_for_workers=False,
                     timeout=timedelta(seconds=10))
    hello = bytes([0]) + struct.pack('<I', 0x3C85F7CE)
    value = hello + bytes([1]) + struct.pack('<Q', 1) + b'k'
    held = []
    for body in (*NONSENSE, hello, value + struct.pack('<Q', 1 << 20) + b'half',
                 value + struct.pack('<Q', 1 << 40)):
        held.append(socket.create_connection(('127.0.0.1', store.port), 5))
        held[-1].sendall(body)
        other = TCPStore('127.0.0.1', store.port, is_master=False, timeout=timedelta(seconds=10))
        other.set('key', body)
        assert store.get('key') == body
    for one in held:
        one.close()


def test_a_snapshot_with_any_bit_flipped_is_torn():
    data = pack({0: {'p:a': torch.randn(3, 4)}, 1: {}})
    assert set(unpack(data, [0, 1])) == {0, 1}
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << place % 8
        with pytest.raises(TornError, match='torn'):
            unpack(bytes(damaged), [0, 1])
    for body, reason in ((b'no safetensors', 'cannot be read'),
                         (save({'5/p:a': torch.zeros(2)}), 'nobody asked for')):
        with pytest.raises(TornError, match=reason):
            unpack(hashlib.sha256(body).digest() + body, [0, 1])


def test_strangers_at_the_store_fill_no_log():
    """In a process of a node; torch writes 17 lines for each of them otherwise."""
    found = subprocess.run([sys.executable, '-c', """
import intradp_ros.nodes
import socket, struct
from intradp_ros.systems.training.run.site_address import open_store
store = open_store('127.0.0.1', 10.0)
for _ in range(20):
    with socket.create_connection(('127.0.0.1', store.port), 5) as one:
        one.sendall(b'\\0' + struct.pack('<I', 0x3C85F7CE) + b'\\1' + struct.pack('<Q', 1 << 40))
        assert one.recv(1) == b''  # it was read, and refused
"""], capture_output=True, text=True, timeout=120, check=False)
    assert found.returncode == 0, found.stderr
    assert 'TCPStore' not in found.stderr
