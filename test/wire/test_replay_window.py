# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Each number is taken once, in whatever order they come."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from intradp_ros.wire.replay_window import ReplayWindow, WINDOW


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


def test_what_was_sent_before_the_first_that_came_is_late() -> None:
    window = ReplayWindow(late=True)
    assert window.take(50) and not any(map(window.take, range(51)))
    assert window.take(53) and window.take(51) and not window.take(51) and not window.take(49)
    assert window.take(53 + 2 * WINDOW) and window.take(54 + WINDOW)
