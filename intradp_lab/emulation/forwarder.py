# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A box between two network devices that delays and loses packets: a program of its own.

``python forwarder.py DEVICE DEVICE DELAY JITTER LOSS SEED`` (seconds; a
probability) hands on what arrives at either device to the other one, until
its standard input ends.  Not every kernel has ``netem``, so this does its
work.  It imports nothing but the standard library, to start at once.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from contextlib import suppress
import ctypes
from dataclasses import dataclass, field
import os
import random
import select
import socket
import sys
import time

_ALL_PROTOCOLS = 0x0003
_SOL_PACKET, _IGNORE_OUTGOING, _VNET_HEADER = 263, 23, 15
_FORCED_RECEIVE_BUFFER = 33
_RECEIVE_BYTES = 4_000_000
_LARGEST = 1 << 16
#: Packets taken from one device before the other one gets its turn.
_TURN = 64
_PR_SET_TIMERSLACK = 29


def packet_socket(device: str) -> socket.socket:
    """
    Open all that a device receives, and can send.

    Packets carry a header that says which checksums are still to be made;
    given back unchanged, the other device makes them.
    """
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.setsockopt(_SOL_PACKET, _IGNORE_OUTGOING, 1)
    opened.setsockopt(_SOL_PACKET, _VNET_HEADER, 1)
    with suppress(PermissionError):
        opened.setsockopt(socket.SOL_SOCKET, _FORCED_RECEIVE_BUFFER, _RECEIVE_BYTES)
    opened.setblocking(False)
    opened.bind((device, _ALL_PROTOCOLS))
    return opened


@dataclass
class Way:
    """One direction: packets in flight, each with the time at which it is due."""

    source: socket.socket
    target: socket.socket
    delay: float
    jitter: float
    loss: float
    chance: random.Random
    flying: deque[tuple[float, bytes]] = field(default_factory=deque)
    last: float = 0.0

    def take(self) -> None:
        """Take what has arrived, and decide its fate."""
        now = time.monotonic()
        with suppress(OSError):  # no more for now; or the device is down for a while
            for _ in range(_TURN):
                packet = self.source.recv(_LARGEST)
                if self.loss and self.chance.random() < self.loss:
                    continue
                due = now + self.delay
                if self.jitter:
                    due += self.jitter * self.chance.random()
                self.last = max(self.last, due)
                self.flying.append((self.last, packet))

    def hand_on(self, now: float) -> None:
        """Send what is due; what a full queue or a dead device does not take is lost."""
        flying, send = self.flying, self.target.send
        while flying and flying[0][0] <= now:
            with suppress(OSError):
                send(flying.popleft()[1])


def forward(ways: Sequence[Way], control: int) -> None:
    """Hand packets on until `control`, a file descriptor, can be read."""
    by_number = {way.source.fileno(): way for way in ways}
    waiting = [*by_number, control]
    while True:
        heads = [way.flying[0][0] for way in ways if way.flying]
        timeout = max(0.0, min(heads) - time.monotonic()) if heads else None
        ready, _, _ = select.select(waiting, (), (), timeout)
        if control in ready:
            return
        for number in ready:
            by_number[number].take()
        now = time.monotonic()
        for way in ways:
            way.hand_on(now)


def be_punctual() -> None:
    """Wake when due, before processes that compute; where the system allows it."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))


def main() -> None:
    """Run the command line."""
    one, other = (packet_socket(device) for device in sys.argv[1:3])
    delay, jitter, loss = map(float, sys.argv[3:6])
    seed = int(sys.argv[6])
    be_punctual()
    print('ready', flush=True)
    forward([Way(one, other, delay, jitter, loss, random.Random(seed)),
             Way(other, one, delay, jitter, loss, random.Random(seed + 1))],
            sys.stdin.fileno())


if __name__ == '__main__':
    main()
