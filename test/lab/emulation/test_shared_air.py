# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Plans and emulated links agree on what both ways at once take of a link."""
from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from synthetic import random_split_graph

from intradp_lab.emulation.network import available, LinkSettings, shaped_link, ShapedLink
from intradp_lab.emulation.settings import ACCESS_POINT, DUPLEX, SHARED_MEDIUM
from intradp_ros.schedule.cost import CostModel, LinkModel
from intradp_ros.schedule.schedule import (
    Receive,
    ROBOT,
    Schedule,
    Send,
    SERVER,
    SIDES,
    Transfer,
)
from intradp_ros.systems.sharing.judge.simulator import simulate

REASON = available()
MBIT, COUNT, NBYTES, ROUNDS = 10.0, 280, 1400, 3

# Datagrams, as TCP keeps a rate down whose acknowledgements wait behind what goes the other way.
# Takes some and, if told 'both', sends as many at the same time; then says so. Ends at ''.
SERVER_CODE = """
import socket, sys, threading
count, nbytes = map(int, sys.argv[1:])
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.bind(('0.0.0.0', 5002))
print('ready', flush=True)
def send():
    for _ in range(count):
        link.sendto(bytes(nbytes), robot)
while (word := (heard := link.recvfrom(nbytes))[0]):
    robot = heard[1]
    sending = threading.Thread(target=send) if word == b'both' else None
    if sending:
        sending.start()
    for _ in range(count):
        link.recv(nbytes)
    if sending:
        sending.join()
    link.sendto(b'!', robot)
"""
# Prints how long datagrams take up alone, and up and down at once, in turn.
ROBOT_CODE = """
import socket, sys, threading, time
count, nbytes, rounds = map(int, sys.argv[1:])
link = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
link.connect(('10.77.0.2', 5002))
link.settimeout(30)
def send():
    for _ in range(count):
        link.send(bytes(nbytes))
for _ in range(rounds):
    for word, back in ((b'alone', 0), (b'both', count)):
        begin = time.monotonic()
        link.send(word)
        sending = threading.Thread(target=send)
        sending.start()
        for _ in range(1 + back):
            link.recv(nbytes)
        sending.join()
        print(time.monotonic() - begin, flush=True)
link.send(b'')
"""


def emulated(medium: str) -> tuple[float, float]:
    """Return the seconds that bytes take one way, and both ways at once, on an emulated link."""
    settings = LinkSettings(MBIT, medium=medium, bottleneck=ACCESS_POINT,
                            queue_bytes=3 * COUNT * NBYTES)
    with shaped_link(settings, 'intradp-test-air') as link:
        server = python(link, SERVER, SERVER_CODE, COUNT, NBYTES)
        assert server.stdout and server.stdout.readline() == 'ready\n'
        said, _ = python(link, ROBOT, ROBOT_CODE, COUNT, NBYTES, ROUNDS).communicate()
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
    rate = MBIT * 125e3 * split.nbytes(0, rows.rows) / (COUNT * NBYTES)
    link = LinkModel(rate, rate, shared=medium == SHARED_MEDIUM)
    up, down = Transfer(0, 0, rows, ROBOT, SERVER), Transfer(1, 0, rows, SERVER, ROBOT)
    alone = Schedule((Transfer(0, 0, rows, SERVER, ROBOT),),
                     {ROBOT: (Receive(0),), SERVER: (Send(0),)})
    at_once = Schedule((up, down), {ROBOT: (Send(0), Receive(1)), SERVER: (Send(1), Receive(0))})
    return simulate(alone, free, link).latency, simulate(at_once, free, link).latency


@pytest.mark.skipif(REASON is not None, reason=str(REASON))
@pytest.mark.parametrize('medium', [DUPLEX, SHARED_MEDIUM])
def test_both_ways_at_once_take_what_plans_assume(medium: str) -> None:
    """The bytes need no less than their share of the rate; and times grow as plans say."""
    (alone, at_once), (planned, planned_at_once) = emulated(medium), simulated(medium)
    assert alone > 0.9 * planned and at_once > 0.9 * planned_at_once
    assert at_once / alone == pytest.approx(planned_at_once / planned, rel=0.15)


def test_plans_assume_twice_the_time_on_a_shared_medium() -> None:
    seconds = COUNT * NBYTES / (MBIT * 125e3)
    assert simulated(DUPLEX) == pytest.approx((seconds, seconds))
    assert simulated(SHARED_MEDIUM) == pytest.approx((seconds, 2 * seconds))
