# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Memory is given back when inferences left more than usual, and seldom enough."""
from __future__ import annotations

from dataclasses import dataclass
import mmap

from intradp_ros.profiling.kept_memory import KeptMemory, private_bytes, SHARE, SLACK

USED, WORKING = 500 * 2**20, 20 * 2**20


@dataclass
class Process:
    """A process that holds so much, and what giving it back takes (seconds)."""

    held: int = USED + WORKING
    now: float = 0.0
    took: float = 0.02
    released: int = 0

    def memory(self) -> KeptMemory:
        return KeptMemory(lambda: self.held, self.release, lambda: self.now)

    def release(self) -> None:
        self.held, self.now, self.released = USED, self.now + self.took, self.released + 1


def test_what_usual_inferences_leave_is_kept() -> None:
    process = Process()
    memory = process.memory()
    for number in range(100):
        process.now, process.held = number, USED + WORKING + SLACK * (number % 2)
        assert not memory.look()


def test_what_is_more_than_usual_is_given_back() -> None:
    """Usual is what there is after the first inference that follows, not what is left at once."""
    process = Process()
    memory = process.memory()
    memory.look()
    process.now, process.held = 10.0, USED + WORKING + SLACK + 1
    assert memory.look() and process.released == 1
    for number in range(10):
        process.now, process.held = 20.0 + 10 * number, USED + WORKING
        assert not memory.look()


def test_a_large_inference_makes_no_level_that_stays() -> None:
    """It was the first after a release; what was enough before is tried again, now and then."""
    process = Process()
    memory = process.memory()
    memory.look()
    process.now, process.held = 10.0, USED + WORKING + 2 * SLACK
    assert memory.look()
    for second in range(20, 70, 10):  # a large one comes first, and what follows fits in
        process.now, process.held = float(second), USED + WORKING + 4 * SLACK
        assert not memory.look()
    process.now = 71.0
    assert memory.look() and process.released == 2
    for second in range(80, 400, 10):
        process.now, process.held = float(second), USED + WORKING
        assert not memory.look()


def test_a_process_that_needs_more_than_once_gives_back_each_minute_at_most() -> None:
    process = Process()
    memory = process.memory()
    memory.look()
    for second in range(10, 610):
        process.now, process.held = float(second), USED + 10 * WORKING
        memory.look()
    assert 9 <= process.released <= 11


def test_what_an_unusual_inference_leaves_is_never_usual() -> None:
    """Else it would stay, and as much again on top of it."""
    process = Process()
    memory = process.memory()
    memory.look()
    for number in range(1, 20):
        process.now, process.held = 10.0 * number, process.held + 4 * SLACK
        memory.look(usual=False)
    assert process.released == 19
    process.now, process.held = 300.0, USED + WORKING
    assert not memory.look()
    process.now, process.held = 400.0, USED + WORKING + 4 * SLACK
    assert memory.look(usual=False)


def test_a_process_that_always_grows_gives_back_seldom() -> None:
    process = Process()
    memory, start = process.memory(), process.now
    memory.look()
    while process.now < 100.0:
        process.now += 0.05
        process.held += 2 * SLACK
        memory.look()
    assert process.released > 10
    assert process.released * process.took <= SHARE * (process.now - start) + process.took


def test_a_process_knows_what_it_holds() -> None:
    before = private_bytes()
    # Not from malloc: where `prepare_process` has run, that hands out what others gave back.
    with mmap.mmap(-1, 2**26, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as block:
        for page in range(0, len(block), mmap.PAGESIZE):
            block[page] = 1
        assert private_bytes() == 0 or private_bytes() > before + len(block) // 2
