# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""
A process that stands for the other work of a machine: other programs, or other guests of its host.

It computes without end, or for a part of the time in bursts of random length.
"""
from __future__ import annotations

import argparse
from collections.abc import Iterator
import os
import random
import time

import numpy as np

_PIECE = 0.001      # seconds of work after which the clock is looked at, about
_STREAMED = 2 ** 24  # doubles (128 MiB), more than caches hold


def bursts(shortest: float, longest: float, seed: int) -> Iterator[float]:
    """Yield the seconds of work at a stretch."""
    chance = random.Random(seed)
    while True:
        yield chance.uniform(shortest, longest)


def rest(worked: float, part: float) -> float:
    """Return the seconds of rest after which work was `part` of the time."""
    return worked * (1 - part) / part


def main() -> None:
    """Work until the process is ended."""
    options = _options()
    if options.realtime:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    work = _Streaming() if options.memory else _Counting()
    shortest, longest = options.bursts
    print('begins', flush=True)
    for busy in bursts(shortest, longest, options.seed):
        begin = time.monotonic()
        while time.monotonic() < begin + busy:
            work.piece()
        time.sleep(rest(time.monotonic() - begin, options.part))


class _Counting:
    def piece(self) -> None:
        end = time.monotonic() + _PIECE
        while time.monotonic() < end:
            sum(range(1000))


class _Streaming:
    def __init__(self) -> None:
        self._from, self._to = np.ones(_STREAMED), np.ones(_STREAMED)

    def piece(self) -> None:
        np.copyto(self._to, self._from)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--part', type=float, default=1.0, help='of the time that it works')
    parser.add_argument('--bursts', type=float, nargs=2, default=(0.05, 2.0), metavar='SECONDS',
                        help='shortest and longest time of work at a stretch')
    parser.add_argument('--memory', action='store_true', help='move memory instead of counting')
    parser.add_argument('--realtime', action='store_true',
                        help='before every ordinary process, as a host takes its processor (root)')
    parser.add_argument('--seed', type=int, default=0)
    return parser.parse_args()


if __name__ == '__main__':
    main()
