# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Who connects to a training's sockets and says nothing, or nonsense, changes nothing."""
from __future__ import annotations

from collections.abc import Iterator
import hashlib
import os
from pathlib import Path
import socket
import struct
import threading

import pytest
from safetensors.torch import save
import torch
from training_fleet import adam, difference, make_task, shuffled, train
from training_models import train_alone_drawing

from intradp_ros.systems.training.layers.layer_capture import capture
from intradp_ros.systems.training.run.snapshots import pack, TornError, unpack
from intradp_ros.systems.training.run.worker_process import ProcessLink
from intradp_ros.systems.training.run.worker_settings import Settings

NONSENSE = (b'', b'\0' * 8, struct.pack('<Q', 1) * 4, b'\xff' * 4096, os.urandom(512),
            b'intradp1' + bytes(16) + b'\0\4' + bytes(1040))
#: Connections that stay open.
MOST = 200


def listening() -> Iterator[tuple[str, int]]:
    """Yield where this process listens."""
    own = set()
    for name in os.listdir('/proc/self/fd'):
        try:
            own.add(os.readlink(f'/proc/self/fd/{name}'))
        except OSError:
            continue
    for line in Path('/proc/net/tcp').read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == '0A' and f'socket:[{words[9]}]' in own:
            address, _, port = words[1].partition(':')
            yield socket.inet_ntoa(struct.pack('=I', int(address, 16))), int(port, 16)


@pytest.mark.parametrize('key', [b'', bytes(range(32))], ids=['open', 'sealed'])
def test_strangers_at_all_ports_change_nothing(key):
    """Of gloo, devices and the trainer; a device is lost meanwhile."""
    held, over, met = list[socket.socket](), threading.Event(), 0

    def disturb() -> None:
        nonlocal met
        while not over.wait(0.01):
            for place in listening():
                for body in NONSENSE:
                    try:
                        held.append(socket.create_connection(place, 0.3))
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
                               graph=graph, key=key)
    finally:
        over.set()
        stranger.join()
        for one in held:
            one.close()
    assert met > 10
    assert difference(state, alone) < 1e-10
    assert [recovery.lost for recovery in trainer.commit.recoveries] == [('b',)]


@pytest.mark.parametrize('lay', [os.mkfifo, lambda path: path.symlink_to(__file__)])
def test_a_link_or_a_pipe_where_a_worker_logs_is_refused(tmp_path, lay):
    lay(tmp_path / 'a.log')
    with pytest.raises(FileExistsError, match='is a link or a pipe.*remove it.*a.log'):
        ProcessLink('a', 'x.py:task', ('127.0.0.1', 9), Settings(), print, log=tmp_path / 'a.log')


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
