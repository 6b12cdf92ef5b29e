# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Each number is taken once, in whatever order they come."""
from __future__ import annotations

import time

from hypothesis import given
from hypothesis import strategies as st

from intradp_ros.wire.replay_window import first_number, ReplayWindow, WINDOW


@given(st.lists(st.integers(0, 3 * WINDOW)))
def test_as_a_set_of_all_numbers_would(numbers: list[int]) -> None:
    window, seen, highest = ReplayWindow(), set[int](), -1
    for number in numbers:
        wanted = number not in seen and number > highest - WINDOW
        assert window.take(number) == wanted
        seen.add(number)
        highest = max(highest, number)


def test_what_begins_anywhere() -> None:
    window = ReplayWindow()
    assert window.take(2**60) and not window.take(2**60) and window.take(2**60 - 1)
    assert not window.take(2**60 - WINDOW) and window.take(2**64 - 1) and not window.take(2**60)


def test_who_begins_later_counts_from_above() -> None:
    """By the clock, in steps of 2^20 ns; within a step numbers differ by chance."""
    before = time.time_ns()
    numbers = [first_number() for _ in range(3)]
    assert all(before - 2**20 < number < time.time_ns() + 2**20 for number in numbers)
    assert len(set(numbers)) == 3
