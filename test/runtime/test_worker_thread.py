# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""The thread that works on the newest images."""
from __future__ import annotations

import threading

from intradp_ros.runtime.requests.worker_thread import Worker

TIMEOUT = 60.0


class Gate:
    """Work that stays at its first item until it is let go."""

    def __init__(self) -> None:
        self.done: list[int] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def __call__(self, item: int) -> None:
        self.begun.set()
        assert self.go_on.wait(TIMEOUT)
        self.done.append(item)


def test_the_oldest_waiting_ones_make_room() -> None:
    """What is at hand is finished, the newest are kept, the others counted."""
    gate = Gate()
    worker = Worker(gate, [].append, 2)
    worker.put(0)
    assert gate.begun.wait(TIMEOUT)
    for item in range(1, 6):
        worker.put(item)
    assert worker.dropped == 3
    gate.go_on.set()
    while len(gate.done) < 3:
        gate.begun.wait(0.01)
    worker.close()
    assert gate.done == [0, 4, 5]


def test_closing_finishes_the_item_at_hand() -> None:
    """Those that wait are dropped, and so are later ones."""
    gate = Gate()
    worker = Worker(gate, [].append, 5)
    worker.put(0)
    worker.put(1)
    assert gate.begun.wait(TIMEOUT)
    threading.Timer(0.05, gate.go_on.set).start()
    worker.close()
    worker.put(2)
    assert gate.done == [0] and worker.dropped == 2


def test_a_failure_does_not_end_the_thread() -> None:
    """Each is handed over, and the next item is worked on."""
    failures: list[Exception] = []
    done = threading.Event()

    def work(item: int) -> None:
        if item == 2:
            done.set()
        else:
            raise KeyError(item)

    worker = Worker(work, failures.append, 5)
    for item in range(3):
        worker.put(item)
    assert done.wait(TIMEOUT)
    worker.close()
    assert [error.args[0] for error in failures] == [0, 1]
