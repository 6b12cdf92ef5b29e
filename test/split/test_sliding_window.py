# Copyright 2026 The intradp_ros developers
# SPDX-License-Identifier: Apache-2.0

"""Rows under sliding windows."""
from __future__ import annotations

import tracemalloc

from hypothesis import given, settings
from hypothesis import strategies as st
import numpy as np

from intradp_ros.split.regions.sliding_window import Window

WINDOWS = st.builds(
    Window, size=st.integers(1, 9), stride=st.integers(1, 5), before=st.integers(0, 12),
    dilation=st.integers(1, 7), input_rows=st.integers(1, 20), output_rows=st.integers(1, 20))


@settings(max_examples=500)
@given(WINDOWS)
def test_rows_are_those_that_a_window_touches(window: Window) -> None:
    """From the first to the last one that is no padding; none where all are."""
    for row in range(window.output_rows):
        start = row * window.stride - window.before
        taps = [tap for k in range(window.size)
                if 0 <= (tap := start + k * window.dilation) < window.input_rows]
        assert window.row_map.first[row] == min(taps, default=window.input_rows)
        assert window.row_map.last[row] == max(taps, default=-1) + 1


def test_a_vast_window_takes_no_memory() -> None:
    """Graphs come from the network, too."""
    window = Window(2**24, 2, 0, 1, 96, 48)
    tracemalloc.start()
    try:
        assert np.all(window.row_map.last == 96)
        assert tracemalloc.get_traced_memory()[1] < 10**6
    finally:
        tracemalloc.stop()
