# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans and emulated links agree on what both ways at once take of a link."""
from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_ros.emulation.network import available, LinkSettings, shaped_link, ShapedLink
from intradp_ros.emulation.settings import ACCESS_POINT, DUPLEX, SHARED
from intradp_ros.planning.cost import CostModel, LinkModel
from intradp_ros.planning.schedule import (
    Receive,
    ROBOT,
    Schedule,
    Send,
    SERVER,
    SIDES,
    Transfer,
)
from intradp_ros.planning.simulator import simulate

REASON = available()
MBIT, NBYTES, ROUNDS = 10.0, 400_000, 3

# Takes and, if asked for with 'b', sends as many bytes at the same time; then says so.
SERVER_CODE = """
import socket, sys, threading
count = int(sys.argv[1])
listener = socket.create_server(('0.0.0.0', 5002))
print('ready', flush=True)
link, _ = listener.accept()
while word := link.recv(1):
    sending = threading.Thread(target=link.sendall, args=(bytes(count if word == b'b' else 0),))
    sending.start()
    left = count
    while left:
        left -= len(link.recv(min(left, 65536)))
    sending.join()
    link.sendall(b'!')
"""
# Prints how long bytes take up alone, and up and down at once, in turn.
ROBOT_CODE = """
import socket, sys, threading, time
count, rounds = map(int, sys.argv[1:])
link = socket.create_connection(('10.77.0.2', 5002))
for _ in range(rounds):
    for word in (b'a', b'b'):
        begin = time.monotonic()
        sending = threading.Thread(target=link.sendall, args=(word + bytes(count),))
        sending.start()
        left = 1 + (count if word == b'b' else 0)
        while left:
            left -= len(link.recv(min(left, 65536)))
        sending.join()
        print(time.monotonic() - begin, flush=True)
"""


def emulated(medium: str) -> tuple[float, float]:
    """Return the seconds that bytes take one way, and both ways at once, on an emulated link."""
    settings = LinkSettings(MBIT, medium=medium, bottleneck=ACCESS_POINT)
    with shaped_link(settings, 'intradp-test-air') as link:
        server = python(link, SERVER, SERVER_CODE, NBYTES)
        assert server.stdout and server.stdout.readline() == 'ready\n'
        said, _ = python(link, ROBOT, ROBOT_CODE, NBYTES, ROUNDS).communicate()
    seconds = [float(line) for line in said.splitlines()]
    assert len(seconds) == 2 * ROUNDS
    return min(seconds[::2]), min(seconds[1::2])


def python(link: ShapedLink, side: str, code: str, *numbers: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*link.exec_prefix(side), sys.executable, '-I', '-S', '-c', code, *map(str, numbers)],
        stdout=subprocess.PIPE, text=True)


def simulated(medium: str) -> tuple[float, float]:
    """Return what plans assume for the same bytes."""
    split = random_split_graph(5, operators=1)
    free = CostModel(split, {side: (np.zeros(split.operators[0].rows + 1),) for side in SIDES})
    rows = split.whole(0)
    rate = MBIT * 125e3 * split.nbytes(0, rows.rows) / NBYTES
    link = LinkModel(rate, rate, shared=medium == SHARED)
    up, down = Transfer(0, 0, rows, ROBOT, SERVER), Transfer(1, 0, rows, SERVER, ROBOT)
    alone = Schedule((Transfer(0, 0, rows, SERVER, ROBOT),),
                     {ROBOT: (Receive(0),), SERVER: (Send(0),)})
    at_once = Schedule((up, down), {ROBOT: (Send(0), Receive(1)), SERVER: (Send(1), Receive(0))})
    return simulate(alone, free, link).latency, simulate(at_once, free, link).latency


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize('medium', [DUPLEX, SHARED])
def test_both_ways_at_once_take_what_plans_assume(medium: str) -> None:
    """The bytes need no less than their share of the rate; and times grow as plans say."""
    (alone, at_once), (planned, planned_at_once) = emulated(medium), simulated(medium)
    assert alone > 0.9 * planned and at_once > 0.9 * planned_at_once
    assert at_once / alone == pytest.approx(planned_at_once / planned, rel=0.3)


def test_plans_assume_twice_the_time_on_a_shared_medium() -> None:
    seconds = NBYTES / (MBIT * 125e3)
    assert simulated(DUPLEX) == pytest.approx((seconds, seconds))
    assert simulated(SHARED) == pytest.approx((seconds, 2 * seconds))
